"""What rewards a response: the `Judge` protocol, the kinds of judges, and how to load them."""

from rmcalib.judges._bench import Benchmarked, bench, measured_rate, remember_rate
from rmcalib.judges._classifier import Classifier
from rmcalib.judges._doctor import Diagnosis, diagnose
from rmcalib.judges._function import FunctionJudge
from rmcalib.judges._generative.judge import Cost, GenerativeJudge
from rmcalib.judges._generative.loading import JUDGES
from rmcalib.judges._generative.summary import answers_summary
from rmcalib.judges._inference.devices import (
    available_devices,
    choose_device,
    describe_device,
    main_memory,
    total_memory,
)
from rmcalib.judges._inference.scoring import CHUNK, INDIFFERENT, is_indifferent, score_items, shard
from rmcalib.judges._judge import (
    SCALES,
    Judge,
    Progress,
    Scale,
    ScoredItem,
    about_judge,
    asked_of,
    scored_chunks,
    work_of,
)
from rmcalib.judges._options import LoadOptions
from rmcalib.judges._registry import (
    LEADERBOARD,
    Recipe,
    read_entries,
    read_recipes,
    recipe_for,
    recipe_from,
    registry,
)
from rmcalib.judges._rescale import Rescaled, write_rescaled
from rmcalib.judges._resolve import KINDS, check_judge_name, judge_kind, load_judge, registered_judges
from rmcalib.judges._reward_model import RewardModel, check_model_name, identify, is_local, load_model, locate
from rmcalib.judges._scale import recipe_of_run, remember_model, scale_note, why_no_calibration
from rmcalib.judges._served.comparison import ServedCheck, compare_served
from rmcalib.judges._served.judge import EndpointJudge

__all__ = [
    "CHUNK",
    "INDIFFERENT",
    "JUDGES",
    "KINDS",
    "LEADERBOARD",
    "SCALES",
    "Benchmarked",
    "Classifier",
    "Cost",
    "Diagnosis",
    "EndpointJudge",
    "FunctionJudge",
    "GenerativeJudge",
    "Judge",
    "LoadOptions",
    "Progress",
    "Recipe",
    "Rescaled",
    "RewardModel",
    "Scale",
    "ScoredItem",
    "ServedCheck",
    "about_judge",
    "answers_summary",
    "asked_of",
    "available_devices",
    "bench",
    "check_judge_name",
    "check_model_name",
    "choose_device",
    "compare_served",
    "describe_device",
    "diagnose",
    "identify",
    "is_indifferent",
    "is_local",
    "judge_kind",
    "load_judge",
    "load_model",
    "locate",
    "main_memory",
    "measured_rate",
    "read_entries",
    "read_recipes",
    "recipe_for",
    "recipe_from",
    "recipe_of_run",
    "registered_judges",
    "registry",
    "remember_model",
    "remember_rate",
    "scale_note",
    "score_items",
    "scored_chunks",
    "shard",
    "total_memory",
    "why_no_calibration",
    "work_of",
    "write_rescaled",
]
