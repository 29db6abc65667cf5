"""Log calibration while TRL's `RewardTrainer` trains, and watch the samples of its `GRPOTrainer`.

>>> from rmcalib.integrations.trl import BenchmarkCallback, reward_metrics
>>> sorted(reward_metrics())
['compute_metrics', 'preprocess_logits_for_metrics']

::

    trainer = RewardTrainer(model, args=args, train_dataset=..., eval_dataset=..., **reward_metrics())
    trainer.add_callback(BenchmarkCallback(trainer, "demo", output="runs"))
    trainer.train()
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from transformers import Trainer, TrainerCallback

from rmcalib._util.hub import folder_name
from rmcalib._util.storage import as_path
from rmcalib._util.texts import did_you_mean, nearest
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.integrations.alarms import CHANGES
from rmcalib.integrations.training import metric_values, preference_metrics
from rmcalib.integrations.watcher import START, Watcher
from rmcalib.judges import LoadOptions, Recipe, RewardModel
from rmcalib.judges._judge import about_judge, scored_chunks
from rmcalib.judges._scoring import Classifier
from rmcalib.metrics.catalogue import TRAINING_METRICS
from rmcalib.runs._run import Run, score_inputs
from rmcalib.scores import Scores
from rmcalib.scores._roles import parse_columns
from rmcalib.scores.rollouts import Labeller, NoSamplesYetError, RolloutReader

__all__ = ["BenchmarkCallback", "WatchCallback", "compute_metrics", "pair_rewards", "reward_metrics"]

_WATCHED = (
    *("right", "says", "gap", "gap_low", "gap_high", "auroc", "length_correlation", "n_labels"),
    *(change.column for change in CHANGES),
    "alarm",
)
_log = logging.getLogger("rmcalib")
_LONGEST = 1024  # tokens per text, if neither the trainer nor the model has a limit


def reward_metrics() -> dict[str, Callable[..., Any]]:
    """Return the two arguments that make `RewardTrainer` log calibration at every evaluation.

    Returns
    -------
    dict
        `compute_metrics` and `preprocess_logits_for_metrics`. The metrics are logged as
        `eval_calibration/overconfidence`, `eval_calibration/ece`, ...

    Examples
    --------
    >>> reward_metrics()["compute_metrics"] is compute_metrics
    True
    """
    return {"compute_metrics": compute_metrics, "preprocess_logits_for_metrics": pair_rewards}


def pair_rewards(logits: Any, labels: Any = None) -> torch.Tensor:  # noqa: ARG001 (the Trainer passes both)
    """Turn the rewards of a batch into pairs, for the Trainer's `preprocess_logits_for_metrics`.

    The Trainer removes padding from the last batch by counting rows. With two rows per pair, it would remove
    the rewards of rejected responses.

    Parameters
    ----------
    logits : Any
        Tensor (2n, 1) with the rewards of the chosen responses, followed by those of the rejected ones; or a
        tuple that starts with it.
    labels : Any
        Not used.

    Returns
    -------
    torch.Tensor
        (n, 2): the rewards of the chosen and of the rejected response of each pair.

    Examples
    --------
    >>> pair_rewards(torch.tensor([[3.0], [2.0], [0.0], [1.0]])).tolist()
    [[3.0, 0.0], [2.0, 1.0]]
    """
    rewards: torch.Tensor = logits[0] if isinstance(logits, tuple | list) else logits
    if rewards.ndim == 2 and rewards.shape[1] != 1:
        raise ValueError(f"the model has {rewards.shape[1]} outputs; expected one (num_labels=1)")
    return torch.stack(rewards.reshape(-1).chunk(2), dim=1)


def compute_metrics(prediction: Any) -> dict[str, float]:
    """Return calibration metrics of an evaluation set of pairs, for the Trainer's `compute_metrics`.

    Parameters
    ----------
    prediction : Any
        A `transformers.EvalPrediction` with predictions (n, 2): the rewards of the chosen and the rejected
        responses, as `pair_rewards` returns them.

    Returns
    -------
    dict
        Values by name, `calibration/<metric>`, for the metrics that have a value.

    Examples
    --------
    >>> from transformers import EvalPrediction
    >>> pairs = np.array([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> found = compute_metrics(EvalPrediction(predictions=pairs, label_ids=()))
    >>> round(found["calibration/accuracy"], 3)
    0.667
    """
    rewards = np.asarray(prediction.predictions, dtype=np.float64)
    if rewards.ndim != 2 or rewards.shape[1] != 2:
        raise ValueError(
            f"predictions have shape {rewards.shape}, expected (n, 2): also pass "
            "preprocess_logits_for_metrics=pair_rewards to the trainer, or use **reward_metrics()"
        )
    return _named("calibration", preference_metrics(rewards[:, 0], rewards[:, 1]))


class BenchmarkCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types here
    """Score a benchmark with the model in training at every evaluation, and log its calibration.

    The trainer logs the metrics as `eval_<benchmark>/<metric>` to W&B, trackio, TensorBoard or wherever it
    reports to. `trainer.evaluate` returns them too, so `metric_for_best_model` can name one of them:
    `"<benchmark>/kept_information"` with `greater_is_better=True` is the proper one, because it counts both
    the order of the responses and the scale of the rewards. It is used like this::

        trainer.add_callback(BenchmarkCallback(trainer, "reward-bench-2", output="runs"))

    With several processes, each scores the whole benchmark, and the main process writes the run folders.

    Parameters
    ----------
    trainer : Any
        The trainer to which this callback is added.
    benchmark : str | Benchmark
        A benchmark, or its name or path, as for :func:`rmcalib.load_benchmark`.
    output : str | Path, optional
        Folder or URL for the run folders `step-<N>/<benchmark>`, which `rmcalib report` reads. Nothing is
        kept by default.
    name : str, optional
        Name of the model in runs and reports; default the Hub id or the name of the output folder.
    template : str, optional
        A built-in chat template for a tokenizer that has none; see docs/models.md.
    metrics : Iterable[str]
        Names of metrics from the catalogue (docs/metrics.md).
    """

    def __init__(
        self,
        trainer: Any,
        benchmark: str | Benchmark = "demo",
        *,
        output: str | Path | None = None,
        name: str | None = None,
        template: str | None = None,
        metrics: Iterable[str] = TRAINING_METRICS,
    ) -> None:
        """Load the benchmark; nothing is scored yet."""
        self.trainer, self.output, self.template = trainer, output, template
        self.benchmark = load_benchmark(benchmark) if isinstance(benchmark, str) else benchmark
        self.name = name or trainer.args.hub_model_id or Path(trainer.args.output_dir).name
        self.metrics = tuple(metrics)
        self._logged: dict[str, float] = {}
        self._trained: int | None = None  # the last step that was scored while training

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Score the benchmark, once per step of the training, and log the metrics."""
        if not self.trainer.is_in_train or state.global_step != self._trained:
            scores = self._score(state.global_step)
            group = f"eval_{self.benchmark.name.rpartition('/')[2]}"
            self._logged = _named(group, metric_values(scores, self.metrics))
            if self.trainer.is_in_train:
                self._trained = state.global_step
            self.trainer.log(dict(self._logged))
        # With several evaluation sets, this is called several times; the Trainer reads the last metrics.
        kwargs.get("metrics", {}).update(self._logged)

    def _score(self, step: int) -> Scores:
        """Score the benchmark with the model as it is now."""
        # After training, the weights may be those of another step (load_best_model_at_end).
        kept = self.output is not None and (self.trainer.is_in_train or step != self._trained)
        judge = _live_judge(self.trainer, self.name, step, self.template)
        with TemporaryDirectory() as nowhere:
            keep_here = kept and self.trainer.is_world_process_zero()
            place = as_path(str(self.output)) if keep_here else Path(nowhere)
            folder = place / f"step-{step}" / folder_name(self.benchmark.name)
            about = {**about_judge(judge), "step": step}
            training = self.trainer.model.training
            try:
                with Run(
                    folder, self.benchmark, score_inputs(judge, self.benchmark), about=about, fresh=True
                ) as run:
                    for chunk in scored_chunks(judge, self.benchmark.items):
                        run.add(chunk)
                    return run.finish()
            finally:
                self.trainer.model.train(training)


class WatchCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types here
    """Watch the samples of a `GRPOTrainer`: log the gap of every step, and stop when the alarm holds.

    It reads what the trainer writes with ``log_completions=True``. It is used like this::

        watching = WatchCallback(trainer, "reward=my_rm,label=exact_match", scale="log_odds", stop=True)
        trainer.add_callback(watching)
        trainer.train()
        watching.watcher.result().alarm

    The trainer logs `watch/gap`, `watch/right`, `watch/auroc`, ... with the limits of their intervals. An alarm is
    logged as a sentence, too.

    Parameters
    ----------
    trainer : Any
        The trainer to which this callback is added.
    columns : str or mapping, optional
        Which reward function is the reward, and which one the truth; see :func:`rmcalib.watch`. Names that the
        trainer does not have are refused at once, unless reward functions log further columns.
    stop : bool
        Whether to stop the training when the alarm holds. It needs to know what the rewards are: a calibrator,
        or ``scale="log_odds"`` or ``"probability"``.
    labels : path, optional
        A file with labels of some samples, which may come later; see :func:`rmcalib.watch`.
    label_from : function of a row, optional
        Makes the label of a sample from its row, a dictionary.
    **settings
        Of :class:`rmcalib.Watcher`: calibrator, scale, labels_are, level, margin, window, start, both_sides.
    """

    def __init__(
        self,
        trainer: Any,
        columns: Any = None,
        *,
        stop: bool = False,
        labels: str | Path | None = None,
        label_from: Labeller | None = None,
        **settings: Any,
    ) -> None:
        """Check the settings; nothing is read yet."""
        if not getattr(trainer.args, "log_completions", False):
            raise ValueError("log_completions: set it to True in GRPOConfig, so that the samples are written")
        self.trainer, self.stop = trainer, stop
        self.watcher = Watcher(**settings)
        if stop and not self._has_reference():
            raise ValueError(
                "stop: it needs to know what the rewards are, or healthy runs would be stopped: give a calibrator, "
                "calibrator='start', or scale='log_odds' or 'probability' if they are that"
            )
        self._folder = Path(trainer.args.output_dir) / "completions"
        self._reader = RolloutReader(self._folder, columns, label_from, labels, self.watcher.labels_are)
        self._check_columns(columns)
        # Files of an earlier run in the same folder are left out until they are written again.
        self._old = {path: path.stat().st_mtime_ns for path in self._folder.glob("*.parquet")}
        self._logged: set[tuple[str, int]] = set()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        """Add the steps that were written since the last time; at the end of a step, logging would be lost."""
        from accelerate.utils import broadcast_object_list

        if self.trainer.is_world_process_zero():
            self._look()
        alarm = [self.watcher.result().alarm is not None]
        broadcast_object_list(alarm)  # all processes stop together
        if self.stop and alarm[0]:
            control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Add the last steps."""
        if self.trainer.is_world_process_zero():
            self._look()

    def _has_reference(self) -> bool:
        watcher = self.watcher
        return (
            watcher.kind == START
            or watcher.reference is not None
            or watcher.scale in ("log_odds", "probability")
        )

    def _check_columns(self, columns: Any) -> None:
        """Refuse names that no reward function has; their own columns (`log_extra`) are known later."""
        have = getattr(self.trainer, "reward_func_names", None)
        if not have:
            return
        for role in ("reward", "label"):
            for name in parse_columns(columns).get(role, ()):
                plain = name.removeprefix("-")
                if plain not in have and nearest(plain, have):
                    raise ValueError(
                        f"columns: no reward function {plain!r} for {role} ({did_you_mean(plain, have)})"
                    )

    def _look(self) -> None:
        self._reader.skip = {path for path, old in self._old.items() if _written(path) == old}
        try:
            look = self._reader.look(strict=False)
        except NoSamplesYetError:
            return
        except ValueError as error:
            if not self._folder.is_dir():
                return  # nothing is written yet
            raise ValueError(f"{error}") from None
        if len(look.changed) > 1:
            raise ValueError(
                f"columns: which reward is watched? Name it: reward=NAME,label=NAME (has {', '.join(look.changed)})"
            )
        for problem in look.problems:
            _log.warning("%s", problem)
        for samples in next(iter(look.changed.values()), []):
            self.watcher.update([samples], strict=False)
            row = self.watcher.rows.get(samples.step)
            if row is not None:
                # Not the trainer's own `log`, which would write the samples again.
                Trainer.log(self.trainer, _named("watch", {name: float(row[name]) for name in _WATCHED}))
        now = self.watcher.result()
        for alarm in (*now.alarms, *now.changes):
            about = alarm["what"], alarm["look"]
            if about not in self._logged:
                self._logged.add(about)
                _log.warning("step %g: %s", alarm["step"], alarm["reason"])


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _named(group: str, values: dict[str, float]) -> dict[str, float]:
    """Put the group before each name, and leave out metrics without a value."""
    return {f"{group}/{name}": value for name, value in values.items() if not math.isnan(value)}


class _Rewards(torch.nn.Module):
    """The trainer's model in the form that rmcalib runs: from padded ids and their mask to rewards (n,)."""

    def __init__(self, trainer: Any, pad: int) -> None:
        super().__init__()
        self.model, self.pad = trainer.model, pad
        self.autocast = trainer.accelerator.autocast

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        # Not in inference mode: tensors that a model caches there cannot be used in the next training step.
        with torch.inference_mode(False), torch.no_grad(), self.autocast():
            # Classifiers find the last token by the padding token, so it must be the model's own.
            ids = input_ids.masked_fill(attention_mask == 0, self.pad)
            logits: torch.Tensor = self.model(
                input_ids=ids, attention_mask=attention_mask, use_cache=False
            ).logits
        return logits.reshape(len(ids), -1)[:, 0]


def _live_judge(trainer: Any, name: str, step: int, template: str | None) -> Classifier:
    """Return the model in training as a judge."""
    model, args, tokenizer = trainer.model, trainer.args, trainer.processing_class
    config = model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    limits = (getattr(args, "max_length", None), getattr(text, "max_position_embeddings", None))
    max_length = min((limit for limit in limits if limit), default=_LONGEST)
    weight = next(parameter for parameter in model.parameters() if parameter.is_floating_point())
    recipe = Recipe(name, template=template, loss="pairwise log-sigmoid (TRL)", bradley_terry="yes")
    live = RewardModel(
        name=name,
        revision=f"step-{step}",
        recipe=recipe,
        tokenizer=tokenizer,
        backbone=_Rewards(trainer, int(tokenizer.pad_token_id)),
        head=torch.nn.Identity(),
        kind="encoder",
        config=config,
        device=args.device,
        dtype=weight.dtype,
        max_length=max_length,
    )
    # As many tokens per forward pass as in the trainer's own evaluation.
    budget = 2 * args.per_device_eval_batch_size * max_length
    return Classifier(live, LoadOptions(token_budget=budget))
