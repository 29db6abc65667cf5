"""Judges: everything that gives rewards to responses, and how to load it.

`load_judge` returns a judge of any kind: a Hugging Face reward model, a served model, a DPO policy, a
language model that is asked, or a Python function. The `Judge` protocol says what a judge of your own needs.
"""

from rmcalib.judges._classifier import Classifier
from rmcalib.judges._devices import find_hardware
from rmcalib.judges._doctor import Diagnosis, ServedCheck, compare_served, diagnose
from rmcalib.judges._files import identify, is_local, locate
from rmcalib.judges._generative import Cost, GenerativeJudge
from rmcalib.judges._judge import Judge, Scale, ScoredItem, about_judge, scored_chunks
from rmcalib.judges._load import KINDS, check_judge_name, judge_kind, judge_settings, load_judge
from rmcalib.judges._model import RewardModel, load_model
from rmcalib.judges._readings import answers_summary
from rmcalib.judges._registry import (
    Recipe,
    read_entries,
    recipe_from,
    recipe_of_run,
    registry,
    remember_model,
    scale_note,
    why_no_calibration,
)
from rmcalib.judges._rescale import write_rescaled
from rmcalib.judges._scoring import CHUNK, indifference_note
from rmcalib.judges._settings import (
    FunctionSettings,
    LanguageModelSettings,
    LoadOptions,
    PolicySettings,
    ServedSettings,
    checked_settings,
    parsed_settings,
    setting_help,
)

__all__ = [
    "CHUNK",
    "KINDS",
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
    "about_judge",
    "answers_summary",
    "check_judge_name",
    "checked_settings",
    "compare_served",
    "diagnose",
    "find_hardware",
    "identify",
    "indifference_note",
    "is_local",
    "judge_kind",
    "judge_settings",
    "load_judge",
    "load_model",
    "locate",
    "parsed_settings",
    "read_entries",
    "recipe_from",
    "recipe_of_run",
    "registry",
    "remember_model",
    "scale_note",
    "scored_chunks",
    "setting_help",
    "why_no_calibration",
    "write_rescaled",
]
