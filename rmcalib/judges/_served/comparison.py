"""Compare the rewards of a served model with those of the same model loaded here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmcalib.benchmarks import load_benchmark
from rmcalib.judges._classifier import Classifier
from rmcalib.judges._doctor import largest_differences
from rmcalib.judges._judge import scored_chunks
from rmcalib.judges._options import LoadOptions
from rmcalib.judges._served.judge import EndpointJudge

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item
    from rmcalib.judges._judge import Judge

__all__ = ["ServedCheck", "compare_served"]

# Differences of rewards, relative to the largest reward (or to 1).
_EQUAL = 1e-3
_ROUNDING = 5e-2


@dataclass(frozen=True)
class ServedCheck:
    """The result of `compare_served`.

    Attributes
    ----------
    model : str
        The model's name.
    endpoint, endpoint_kind, server_version, served_model
        The server, its kind and version, and the name that it has for the model.
    n_responses : int
        Number of responses that were scored by both.
    dtype : str
        Dtype of the model loaded here.
    reward_difference, probability_difference : float
        The largest difference of rewards, and of the probabilities computed from them.
    seconds_served, seconds_here : float
        Time for scoring.
    status : str
        `right`, `rounding` (the differences are as large as those of a narrower dtype) or `differs`.
    """

    model: str
    endpoint: str
    endpoint_kind: str
    server_version: str | None
    served_model: str | None
    n_responses: int
    dtype: str
    reward_difference: float
    probability_difference: float
    seconds_served: float
    seconds_here: float
    status: str

    @property
    def healthy(self) -> bool:
        """Whether the server returns this model's rewards, up to rounding."""
        return self.status != "differs"


def compare_served(
    model: str, endpoint: str, *, prompts: int = 8, here: LoadOptions | None = None, **options: Any
) -> ServedCheck:
    """Score prompts of the demo with a server and with the same model loaded here, and compare the rewards.

    Parameters
    ----------
    model : str
        Hub id or folder of the model.
    endpoint : str
        Address of the server.
    prompts : int
        Number of prompts, with four responses each.
    here : LoadOptions, optional
        Options for loading the model on this machine.
    **options
        More options of served models, as in `load_judge`.

    Returns
    -------
    ServedCheck
        The largest differences. `.healthy` is True if they are only rounding.

    Examples
    --------
    With a running server::

        check = rmcalib.judges.compare_served("org/name", "http://localhost:8000")
        print(check.status, check.reward_difference)
    """
    items = load_benchmark("demo", limit=prompts).items
    served = EndpointJudge(model, endpoint, **options)
    server = served.connection.server  # an unsuitable server is reported before the model is loaded
    there, seconds_served = _rewards(served, items)
    loaded = Classifier(model, here)
    own, seconds_here = _rewards(loaded, items)
    difference, probabilities = largest_differences(there, own)
    largest = max(1.0, *(abs(reward) for rewards in own for reward in rewards))
    status = "right" if difference <= _EQUAL * largest else "rounding"
    return ServedCheck(
        model=model,
        endpoint=served.about()["endpoint"],
        endpoint_kind=server.kind,
        server_version=server.version,
        served_model=server.model,
        n_responses=sum(map(len, own)),
        dtype=str(loaded.model.dtype).removeprefix("torch."),
        reward_difference=difference,
        probability_difference=probabilities,
        seconds_served=seconds_served,
        seconds_here=seconds_here,
        status=status if difference <= _ROUNDING * largest else "differs",
    )


def _rewards(judge: Judge, items: Sequence[Item]) -> tuple[list[tuple[float, ...]], float]:
    judge.identity()  # loads the model, which is not part of the time
    start = time.perf_counter()
    rewards = [scored.rewards for chunk in scored_chunks(judge, items) for scored in chunk]
    return rewards, time.perf_counter() - start
