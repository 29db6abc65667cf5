"""What rewards a response: reward models and how to load and run them."""

from rmcalib.judges._classifier import RewardModel, check_model_name, identify, is_local, load_model, locate
from rmcalib.judges._doctor import Diagnosis, diagnose
from rmcalib.judges._inference.devices import available_devices, choose_device, main_memory, total_memory
from rmcalib.judges._inference.scoring import (
    CHUNK,
    INDIFFERENT,
    ItemScorer,
    ScoredItem,
    is_indifferent,
    score_items,
    shard,
)
from rmcalib.judges._registry import LEADERBOARD, Recipe, read_recipes, recipe_for, registry
from rmcalib.judges._scale import recipe_of_run, remember_model, scale_note, why_no_calibration

__all__ = [
    "CHUNK",
    "INDIFFERENT",
    "LEADERBOARD",
    "Diagnosis",
    "ItemScorer",
    "Recipe",
    "RewardModel",
    "ScoredItem",
    "available_devices",
    "check_model_name",
    "choose_device",
    "diagnose",
    "identify",
    "is_indifferent",
    "is_local",
    "load_model",
    "locate",
    "main_memory",
    "read_recipes",
    "recipe_for",
    "recipe_of_run",
    "registry",
    "remember_model",
    "scale_note",
    "score_items",
    "shard",
    "total_memory",
    "why_no_calibration",
]
