"""`Reward`: a judge with its calibrator as the reward of a training loop."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rmcalib._util.arrays import check_choice
from rmcalib._util.storage import read_input
from rmcalib._util.texts import parse_yaml
from rmcalib.judges import Judge, load_judge
from rmcalib.judges._judge import close_judge
from rmcalib.judges.apis.samples import Sample, Scored, as_samples
from rmcalib.live.batching import Batcher, Outcome, deliver_to_threads
from rmcalib.live.log import RewardLog
from rmcalib.live.meaning import Output, in_order, meaning_of
from rmcalib.live.scoring import Raw, raw_rewards

if TYPE_CHECKING:
    from rmcalib.live.policy import PolicyTexts
    from rmcalib.repair import Calibrator
    from rmcalib.repair.calibration import Calibration

CONFIGURATION = "RMCALIB_REWARD"
"""The environment variable with the file that `configured_reward` reads."""


@dataclass
class Counts:
    """How many samples were rewarded, were beyond the calibrator's range, and failed."""

    scored: int = 0
    outside: int = 0
    failed: int = 0


class Reward:
    """Rewards responses with any judge, in the form that a training framework calls.

    Parameters
    ----------
    model : str, Judge or callable, or a list of them
        A Hub id, a folder, `"demo"`, a judge, or a function `f(prompt, responses) -> numbers`; as for
        `load_judge`. Several need a calibrator that takes the rewards of judges with these names.
    endpoint : str or list of str, optional
        Address of a server that has the model; of several models, one each. Default: the model is loaded here.
    calibrator : Calibrator, Calibration or path, optional
        The result of `calibrate`, `combine` or `all_hold`, or its file. It says what a reward means. Rewards beyond
        those that it was fitted on count as its smallest or largest one, and are counted (`counts.outside`).
    output : {"p", "log_p", "logit", "raw"}
        What a reward is:

        - ``"p"``: a probability. With a calibrator that was fitted on single responses, P(correct) =
          σ((r − b)/T). Otherwise P(best of its prompt) = softmax(r/T) over the responses to the same prompt in
          a call, which must be two at least.
        - ``"log_p"``: its logarithm. Of rewards of different things (`all_hold`), it is Σ_k log p_k.
        - ``"logit"``: (r − b)/T, or r/T.
        - ``"raw"``: the judge's own number r; of several judges, the one that the calibrator makes of theirs.
    on_error : {"raise", "none"}
        What a failure returns: an error, or None for the samples that failed; never a number.
    log : str or Path, optional
        Folder for a log of all samples with their rewards, which `rmcalib watch` reads.
    **settings
        Settings of the judge; see `load_judge`.

    Raises
    ------
    ValueError
        If `output` needs probabilities, and neither a calibrator nor the judge states any.

    Examples
    --------
    >>> from rmcalib import Calibrator
    >>> calibrator = Calibrator(2.0, 1.8, 2.2, threshold=10.0, reference=(0.0, 10.0, 20.0))
    >>> reward = Reward(lambda prompt, responses: [len(text) for text in responses], name="length",
    ...                 calibrator=calibrator)
    >>> [round(p, 3) for p in reward(["Why?", "Why?"], ["Because of it.", "No."])]
    [0.881, 0.029]
    >>> Reward("demo", output="raw").trl().__name__
    'demo'
    """

    def __init__(
        self,
        model: str | Judge | Callable[..., Any] | Sequence[str | Judge | Callable[..., Any]],
        *,
        endpoint: str | Sequence[str | None] | None = None,
        calibrator: Calibrator | Calibration | str | Path | None = None,
        output: Output = "p",
        on_error: Literal["raise", "none"] = "raise",
        log: str | Path | None = None,
        **settings: Any,
    ) -> None:
        """Check the arguments; a model is loaded, or its server is asked, with the first samples."""
        from rmcalib.repair.calibrator import as_calibrator

        check_choice(on_error, "on_error", ("raise", "none"))
        self.on_error = on_error
        models: list[Any] = list(model) if isinstance(model, list | tuple) else [model]
        places: list[Any] = list(endpoint) if isinstance(endpoint, list | tuple) else [endpoint] * len(models)
        if len(places) != len(models):
            raise ValueError(f"endpoint: {len(places)} addresses for {len(models)} models")
        judges = [
            load_judge(each, endpoint=place, **settings) for each, place in zip(models, places, strict=True)
        ]
        used = None if calibrator is None else as_calibrator(calibrator, panel=True)
        self.judges = in_order(judges, used)
        self.meaning = meaning_of(self.judges, used, output)
        self.log = None if log is None else RewardLog(log)
        self.counts = Counts()
        self._lock = threading.Lock()
        self._batcher: Batcher[Future[list[Outcome]]] | None = None
        _REWARDS.add(self)

    def __repr__(self) -> str:
        """Return the name of the judge, and what a reward is."""
        return f"Reward({self.name!r}, output={self.meaning.output!r})"

    @property
    def name(self) -> str:
        """The name of the judge, or of the panel."""
        return self.judges[0].name if len(self.judges) == 1 else self.meaning.calibrator.model

    def __call__(
        self,
        prompts: Sequence[Any],
        responses: Sequence[Any],
        *,
        labels: Sequence[Any] | None = None,
        step: int | None = None,
    ) -> list[float | None]:
        """Return the rewards of responses.

        Parameters
        ----------
        prompts : sequence of n texts or lists of messages
            The prompt of each response. Equal prompts are scored together.
        responses : sequence of n texts or lists of messages
            The responses.
        labels : sequence of n, optional
            What is known about each response, for the log.
        step : int, optional
            The step of training, for the log.

        Returns
        -------
        list of n floats
            With ``on_error="none"``, None for the samples that failed.
        """
        outcomes = self.outcomes(as_samples(prompts, responses, labels, step))
        return [None if isinstance(outcome, Exception) else outcome.reward for outcome in outcomes]

    def outcomes(self, samples: Sequence[Sample]) -> list[Outcome]:
        """Return what became of samples: a `Scored`, or with ``on_error="none"`` also the error."""
        (outcomes,) = self.score([samples], partial=self.on_error == "none")
        if self.on_error == "raise":
            raise_first(outcomes)
        return outcomes

    def score(
        self,
        groups: Sequence[Sequence[Sample]],
        *,
        partial: bool = False,
        check: Callable[[], Exception | None] = lambda: None,
    ) -> list[list[Outcome]]:
        """Score groups of samples in one batch; those of a group are compared with each other.

        If a sample fails and the rest is of no use without it (not `partial`), its group is not logged. `check`
        may return why the batch's rewards are not to be believed.
        """
        flat = [sample for group in groups for sample in group]
        with self._lock:
            rewards = raw_rewards(self.judges, flat)
            error = None if all(isinstance(reward, Exception) for reward in rewards) else check()
            raw = iter(rewards if error is None else [error] * len(flat))
            outcomes = [self._meant(group, [next(raw) for _ in group]) for group in groups]
            rows: list[tuple[Sample, Scored]] = []
            for group, results in zip(groups, outcomes, strict=True):
                good = [
                    (sample, result)
                    for sample, result in zip(group, results, strict=True)
                    if isinstance(result, Scored)
                ]
                self.counts.failed += len(results) - len(good)
                if partial or len(good) == len(results):
                    rows += good
            self.counts.scored += len(rows)
            self.counts.outside += sum(result.outside for _, result in rows)
            if self.log is not None:
                self.log.write(rows)
        return outcomes

    def _meant(self, group: Sequence[Sample], raw: Sequence[Raw]) -> list[Outcome]:
        """Return the meaning of a group's raw rewards; errors stay."""
        outcomes: list[Outcome] = [each if isinstance(each, Exception) else RuntimeError() for each in raw]
        good = [number for number, each in enumerate(raw) if not isinstance(each, Exception)]
        try:
            meanings = self.meaning.of([group[i].key for i in good], [raw[i] for i in good])  # type: ignore[misc]
        except ValueError as error:
            return [each if isinstance(each, Exception) else error for each in raw]
        for number, scored in zip(good, meanings, strict=True):
            outcomes[number] = scored
        return outcomes

    def submit(self, samples: Sequence[Sample]) -> Future[list[Outcome]]:
        """Queue samples; those that other threads or tasks submit meanwhile are in the same batch."""
        with self._lock:
            if self._batcher is None:
                self._batcher = Batcher(self.score, Future, deliver_to_threads)
        return self._batcher.submit(samples).future

    def renew(self) -> None:
        """Make a forked process independent: its parent's threads, which may hold locks, are not in it."""
        self._lock, self._batcher = threading.Lock(), None
        if self.log is not None:
            self.log.lock = threading.Lock()

    def close(self) -> None:
        """Free what the judge holds, and close the log."""
        if self._batcher is not None:
            self._batcher.close()
        for judge in self.judges:
            close_judge(judge)
        if self.log is not None:
            self.log.close()

    def trl(self, *, name: str | None = None, label: str | None = None) -> Callable[..., list[float | None]]:
        """Return a reward function for TRL's `GRPOTrainer(reward_funcs=[...])` and its relatives.

        Parameters
        ----------
        name : str, optional
            Its name in TRL's logs and files. Default: that of the judge.
        label : str, optional
            The column of the data set that the log keeps as the label.
        """
        from rmcalib.live import adapters

        return adapters.trl(self, name, label)

    def openrlhf(self, policy: PolicyTexts | str | None = None) -> Callable[..., dict[str, Any]]:
        """Return a `reward_func(queries, prompts, labels)` for OpenRLHF.

        Parameters
        ----------
        policy : str, optional
            The policy's tokenizer (a Hub id or a folder), whose chat template is in the texts that OpenRLHF
            sends. Default: prompts and responses are plain texts, without a template.
        """
        from rmcalib.live import adapters

        return adapters.openrlhf(self, policy)

    def slime(self) -> Callable[..., Any]:
        """Return an `async` function for slime's `--custom-rm-path`, also for groups (`--group-rm`)."""
        from rmcalib.live import adapters

        return adapters.slime(self)

    def verl(self) -> Callable[..., Any]:
        """Return an `async compute_score` for verl, which needs the prompt in the data set's `extra_info`."""
        from rmcalib.live import adapters

        return adapters.verl(self)

    def swift(self) -> type:
        """Return a class for ms-swift's `orms`."""
        from rmcalib.live import adapters

        return adapters.swift(self)


def raise_first(outcomes: Sequence[Outcome]) -> list[Scored]:
    """Return the outcomes if all are rewards; raise the first error otherwise."""
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return list(outcomes)  # type: ignore[arg-type]


_REWARDS: weakref.WeakSet[Reward] = weakref.WeakSet()
_KEPT: dict[str, Reward] = {}
_KEPT_LOCK = threading.Lock()


def _after_fork() -> None:
    global _KEPT_LOCK
    _KEPT_LOCK = threading.Lock()
    for reward in _REWARDS:
        reward.renew()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


def configured_reward() -> Reward:
    """Return the reward of the file that `RMCALIB_REWARD` names, for frameworks that import a path.

    The YAML file has the arguments of `Reward`: ``model``, ``calibrator``, ``output`` and so on. The paths in
    it are relative to it. Each process loads it once.
    """
    file = os.environ.get(CONFIGURATION, "")
    if not file:
        raise ValueError(
            f"{CONFIGURATION}: not set; name a YAML file with the arguments of rmcalib.Reward, such as model"
        )
    with _KEPT_LOCK:
        if file not in _KEPT:
            _KEPT[file] = Reward(**configuration(Path(file)))
        return _KEPT[file]


def configuration(file: Path) -> dict[str, Any]:
    """Return the arguments of `Reward` that a YAML file has."""
    content = parse_yaml(read_input(file), str(file))
    named = content.get("model") if isinstance(content, Mapping) else None
    names = named if isinstance(named, list) else [named]
    if not isinstance(content, Mapping) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{file}: expected the arguments of rmcalib.Reward, at least `model: NAME`")
    arguments = {str(name): value for name, value in content.items() if value is not None}
    for name in ("calibrator", "log"):
        if name in arguments:
            arguments[name] = file.resolve().parent / arguments[name]
    models = arguments["model"] if isinstance(arguments["model"], list) else [arguments["model"]]
    folders = [file.resolve().parent / name for name in models]
    models = [str(path) if path.is_dir() else name for path, name in zip(folders, models, strict=True)]
    return {**arguments, "model": models if len(models) > 1 else models[0]}
