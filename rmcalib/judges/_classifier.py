"""A Hugging Face reward model as a judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rmcalib.judges._files import check_model_name, identify, model_from
from rmcalib.judges._judge import Progress, Scale, ScoredItem
from rmcalib.judges._model import RewardModel, load_model
from rmcalib.judges._registry import Recipe, scale_of
from rmcalib.judges._scoring import ItemScorer
from rmcalib.judges._settings import LoadOptions
from rmcalib.judges._sharing import running_config

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

SCORING_VERSION = 1  # raise it when the same inputs would get other scores
# Fields of a recipe that describe the model and do not change its scores.
_ABOUT = ("status", "reason", "loss", "evidence", "bradley_terry", "parameters", "note")
_DESCRIPTIVE = (*_ABOUT, "model", "scale", "family")


class Classifier:
    """A Hugging Face reward model as a judge: from the Hub, from a folder, or already loaded.

    A model that is given by name is loaded when it is first used. Until then the judge is small and can be
    sent to another process.

    Parameters
    ----------
    model : str | RewardModel
        A Hub id, a folder, `"demo"`, or a loaded `RewardModel`. A loaded model is identified by its name and
        revision. If its weights have changed, as in training, do not resume an earlier run.
    options : LoadOptions, optional
        Settings for loading and running it. For a loaded model, only `token_budget` has an effect.

    Examples
    --------
    >>> from rmcalib.benchmarks import load_benchmark
    >>> judge = Classifier("demo", LoadOptions(device="cpu"))
    >>> judge.name, judge.scale
    ('demo', 'unknown')
    >>> [len(chunk) for chunk in judge.score(load_benchmark("demo").items[:40])]
    [32, 8]
    """

    def __init__(self, model: str | RewardModel, options: LoadOptions | None = None) -> None:
        """Keep the settings; nothing is loaded yet."""
        self.options = options or LoadOptions()
        self.name = check_model_name(model) if isinstance(model, str) else model.name
        self._loaded = None if isinstance(model, str) else model
        self._by_name = isinstance(model, str)
        self._scorer: ItemScorer | None = None

    @property
    def model(self) -> RewardModel:
        """The model. The first access loads it."""
        if self._loaded is None:
            self._loaded = load_model(self.name, self.options)
        return self._loaded

    @property
    def recipe(self) -> Recipe:
        """The recipe of the model."""
        return self._loaded.recipe if self._loaded is not None else self.options.recipe_for(self.name)

    @property
    def scale(self) -> Scale:
        """The scale of the rewards, from the recipe."""
        return scale_of(self.recipe)

    @property
    def commit(self) -> str:
        """The model's commit, or the SHA-256 of a folder's files. Nothing is downloaded."""
        return identify(self.name, self.options.revision) if self._loaded is None else self._loaded.revision

    def identity(self) -> dict[str, Any]:
        """Return everything that changes a reward; this loads the model."""
        model = self.model
        return {
            "model_revision": model.revision,
            "model_sources": dict(model.sources),
            "recipe": _hashed(model.recipe),
            "kind": model.kind,
            "own_code": _own_code(model),
            # the attention that transformers has chosen, because each one rounds differently
            "attention": getattr(running_config(model), "_attn_implementation", None),
            "dtype": str(model.dtype).removeprefix("torch."),
            "max_length": model.max_length,
            "scoring_version": SCORING_VERSION,
        }

    def asked(self) -> dict[str, Any] | None:
        """Return what determines `identity` and is known without the weights; None for a loaded model.

        Settings that depend on the machine stay `auto`, because another machine may do the scoring. The base
        model of a PEFT adapter is included only if the user gave it, because only the adapter's files name
        it.
        """
        if not self._by_name:
            return None
        options = self.options
        recipe = _hashed(options.recipe_for(self.name))  # loading may change it
        tokenizer = recipe["tokenizer"]
        automatic = [options.dtype, options.device.partition(":")[0]]  # `auto` depends on the device
        return {
            "revision": self.commit,
            "base": options.base and identify(options.base),
            "tokenizer": tokenizer and identify(tokenizer),
            "recipe": recipe,
            "dtype": automatic if options.dtype == "auto" else options.dtype,
            "max_length": options.max_length,
            "allowed": [options.trust_remote_code, options.allow_pickle],
            "scoring_version": SCORING_VERSION,
        }

    def about(self) -> dict[str, Any]:
        """Return the device, where the model is from, and what is known about it."""
        return {
            "device": str(self.model.device),
            "dtype_from": self.model.dtype_from,
            **({"model_from": model_from(self.name)} if self._by_name else {}),
            "about_model": {name: getattr(self.model.recipe, name) for name in _ABOUT},
        }

    def work(self) -> dict[str, int]:
        """Return the number of forward passes, and of tokens: scored, shared and padding."""
        return {} if self._scorer is None else dataclasses.asdict(self._scorer.work)

    def score(self, items: Sequence[Item], *, progress: Progress | None = None) -> Iterator[list[ScoredItem]]:
        """Score prompts in chunks of 32; `progress` is called after each forward pass."""
        if self._scorer is None:  # kept: it learns how many tokens fit and whether prompts can be shared
            self._scorer = ItemScorer(self.model, self.options.token_budget)
        self._scorer.progress = progress
        yield from self._scorer.chunks(items)


def _hashed(recipe: Recipe) -> dict[str, Any]:
    """Return the fields of a recipe that change scores."""
    return {name: value for name, value in dataclasses.asdict(recipe).items() if name not in _DESCRIPTIVE}


def _own_code(model: RewardModel) -> list[str]:
    """Return the classes that came with the checkpoint: other code with the same files is another model."""
    kinds = {type(part) for part in (*model.backbone.modules(), model.tokenizer, model.config)}
    return sorted(kind.__name__ for kind in kinds if kind.__module__.startswith("transformers_modules"))
