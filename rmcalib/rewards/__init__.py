"""From a reward model's name to the scores of a benchmark's responses."""

from rmcalib.rewards.benchmarks import Benchmark, Item, load_benchmark
from rmcalib.rewards.hub import HubError
from rmcalib.rewards.manifest import describe, score_inputs
from rmcalib.rewards.models import RewardModel, load_model
from rmcalib.rewards.published import published_models, published_scores
from rmcalib.rewards.registry import Recipe, recipe_for
from rmcalib.rewards.rewardbench import category_scores, item_accuracy, leaderboard_score, ties_score
from rmcalib.rewards.runs import Run, RunError, run_folder
from rmcalib.rewards.store import Scores, load_scores

__all__ = [
    "Benchmark",
    "HubError",
    "Item",
    "Recipe",
    "RewardModel",
    "Run",
    "RunError",
    "Scores",
    "category_scores",
    "describe",
    "item_accuracy",
    "leaderboard_score",
    "load_benchmark",
    "load_model",
    "load_scores",
    "published_models",
    "published_scores",
    "recipe_for",
    "run_folder",
    "score_inputs",
    "ties_score",
]
