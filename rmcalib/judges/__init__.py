"""Judges: everything that gives rewards to responses, and how to load it.

`load_judge` returns a judge of any kind: a Hugging Face reward model, a served model, a DPO policy, a
language model that is asked, or a Python function. The `Judge` protocol says what a judge of your own needs.
"""

from rmcalib.judges._bench import Benchmarked, bench
from rmcalib.judges._classifier import Classifier
from rmcalib.judges._doctor import Diagnosis, diagnose
from rmcalib.judges._generative.judge import Cost, GenerativeJudge
from rmcalib.judges._generative.summary import answers_summary
from rmcalib.judges._hardware import Hardware, find_hardware
from rmcalib.judges._inference.scoring import CHUNK, indifference_note
from rmcalib.judges._judge import Judge, Scale, ScoredItem, about_judge, scored_chunks
from rmcalib.judges._model_files import identify, is_local, locate
from rmcalib.judges._options import LoadOptions
from rmcalib.judges._registry import Recipe, read_entries, recipe_from, registry
from rmcalib.judges._rescale import write_rescaled
from rmcalib.judges._resolve import check_judge_name, judge_kind, load_judge
from rmcalib.judges._reward_model import RewardModel, load_model
from rmcalib.judges._scale import recipe_of_run, remember_model, scale_note, why_no_calibration
from rmcalib.judges._served.comparison import ServedCheck, compare_served

__all__ = [
    "CHUNK",
    "Benchmarked",
    "Classifier",
    "Cost",
    "Diagnosis",
    "GenerativeJudge",
    "Hardware",
    "Judge",
    "LoadOptions",
    "Recipe",
    "RewardModel",
    "Scale",
    "ScoredItem",
    "ServedCheck",
    "about_judge",
    "answers_summary",
    "bench",
    "check_judge_name",
    "compare_served",
    "diagnose",
    "find_hardware",
    "identify",
    "indifference_note",
    "is_local",
    "judge_kind",
    "load_judge",
    "load_model",
    "locate",
    "read_entries",
    "recipe_from",
    "recipe_of_run",
    "registry",
    "remember_model",
    "scale_note",
    "scored_chunks",
    "why_no_calibration",
    "write_rescaled",
]
