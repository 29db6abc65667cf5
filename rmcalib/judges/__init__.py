"""Judges: everything that gives rewards to responses, and how to load it.

`load_judge` returns a judge of any kind: a Hugging Face reward model, a served model, a DPO policy, a
language model that is asked, or a Python function. The `Judge` protocol says what a judge of your own needs.
"""

from rmcalib.judges._doctor import compare_served, diagnose
from rmcalib.judges._judge import Judge, ScoredItem
from rmcalib.judges._load import load_judge
from rmcalib.judges._model import RewardModel, load_model
from rmcalib.judges._registry import Recipe, registry
from rmcalib.judges._settings import LoadOptions

__all__ = [
    "Judge",
    "LoadOptions",
    "Recipe",
    "RewardModel",
    "ScoredItem",
    "compare_served",
    "diagnose",
    "load_judge",
    "load_model",
    "registry",
]
