"""Judges: everything that gives rewards to responses, and how to load it.

`load_judge` returns a judge of any kind: a Hugging Face reward model, a served model, a DPO policy, a
language model that is asked, or a Python function. The `Judge` protocol says what a judge of your own needs.
"""

from rmcalib.judges._classifier import Classifier
from rmcalib.judges._doctor import Diagnosis, ServedCheck, compare_served, diagnose
from rmcalib.judges._generative import Cost, GenerativeJudge
from rmcalib.judges._judge import Judge, Scale, ScoredItem, scored_chunks
from rmcalib.judges._load import load_judge
from rmcalib.judges._model import RewardModel, load_model
from rmcalib.judges._registry import Recipe, registry
from rmcalib.judges._settings import (
    FunctionSettings,
    LanguageModelSettings,
    LoadOptions,
    PolicySettings,
    ServedSettings,
)

__all__ = [
    "Classifier",
    "Cost",
    "Diagnosis",
    "FunctionSettings",
    "GenerativeJudge",
    "Judge",
    "LanguageModelSettings",
    "LoadOptions",
    "PolicySettings",
    "Recipe",
    "RewardModel",
    "Scale",
    "ScoredItem",
    "ServedCheck",
    "ServedSettings",
    "compare_served",
    "diagnose",
    "load_judge",
    "load_model",
    "registry",
    "scored_chunks",
]
