"""Log-probabilities of responses from a server: vLLM's `/v1/completions` with `prompt_logprobs`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmcalib.judges._http import CONCURRENCY, TIMEOUT, Client, ServerError, open_client
from rmcalib.judges._parallel import in_parallel
from rmcalib.judges._reward_model import LONGEST_DEFAULT
from rmcalib.judges._served.servers import Server, changes_since, find_server, parsed_answer, replaced

if TYPE_CHECKING:
    from rmcalib.judges._inference.templates import Encoded

__all__ = ["ServedModel", "Serving", "check_unchanged", "connect", "served_logprobs"]

_PATH = "/v1/completions"
_MOVED = (0.2, 0.02)  # largest change of the first text's log-probability: nats, plus a fraction of itself
_NEEDS = "policies need vLLM, started for text: vllm serve MODEL"


@dataclass(frozen=True)
class Serving:
    """The user's settings for a served policy and its reference."""

    endpoint: str
    reference_endpoint: str | None = None
    served_name: str | None = None
    reference_served_name: str | None = None
    api_key_env: str | None = None
    concurrency: int = CONCURRENCY
    timeout: float = TIMEOUT

    def __post_init__(self) -> None:
        """Check the settings; no server is asked yet."""
        self.client()
        self.client(reference=True)

    def client(self, *, reference: bool = False) -> Client:
        """Return a client for the policy's server, or for the reference's, which may be the same."""
        url = self.reference_endpoint if reference and self.reference_endpoint else self.endpoint
        return open_client(
            url, api_key_env=self.api_key_env, timeout=self.timeout, concurrency=self.concurrency
        )


@dataclass(frozen=True)
class ServedModel:
    """A served language model. `first` has the first text that was scored, and its log-probability."""

    name: str
    client: Client
    server: Server
    served_name: str | None
    concurrency: int
    first: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def max_length(self) -> int:
        """The longest text in tokens: one less than the server's limit, because it always adds one."""
        own = self.server.max_length
        return LONGEST_DEFAULT if own is None else min(own - 1, LONGEST_DEFAULT)

    def identity(self) -> dict[str, Any]:
        """Return what the server reports about the model. The address is not included: it may change."""
        server = self.server
        return {"model": server.model, "checkpoint": server.checkpoint, "weights": server.weights}


def connect(name: str, serving: Serving, *, reference: bool = False) -> ServedModel:
    """Connect to a vLLM with this model; raise a `ServerError` if the server is something else."""
    client = serving.client(reference=reference)
    served_name = serving.reference_served_name if reference else serving.served_name
    server = find_server(client, "auto", name, served_name)
    if server.kind != "vllm":
        raise ServerError(f"{client.url}: is {server.kind}, which has no prompt_logprobs: {_NEEDS}")
    return ServedModel(name, client, server, served_name, serving.concurrency)


def served_logprobs(
    model: ServedModel, texts: Sequence[Encoded], starts: Sequence[int]
) -> list[tuple[float, int]]:
    """Return the summed log-probability of each response's tokens, and their number.

    Parameters
    ----------
    model : ServedModel
        The served model.
    texts : Sequence[Encoded]
        Prompts with responses as token ids.
    starts : Sequence[int]
        For each text, the position of the response's first token.
    """

    def call(task: tuple[Encoded, int]) -> tuple[float, int]:
        return _one(model, list(task[0].input_ids), task[1])

    tasks = list(zip(texts, starts, strict=True))
    found = list(in_parallel(call, tasks, workers=model.concurrency))
    if tasks and not model.first:
        model.first.update(ids=list(texts[0].input_ids), start=starts[0], value=found[0][0])
    return found


def check_unchanged(model: ServedModel) -> None:
    """Raise a `ServerError` if the server's model was replaced since the connection was made."""
    changes = changes_since(model.client, model.server, model.name, model.served_name)
    if model.first:
        value = _one(model, model.first["ids"], model.first["start"])[0]
        moved = abs(value - model.first["value"])
        if moved > _MOVED[0] + _MOVED[1] * abs(value):
            changes.append(f"the log-probability of the same text has changed by {moved:.3g}")
    if changes:
        raise replaced(model.name, model.client.url, changes)


def _one(model: ServedModel, ids: list[int], start: int) -> tuple[float, int]:
    body = {
        "model": model.server.model,
        "prompt": ids,
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": 0,
    }

    def parse(answer: Any) -> tuple[float, int]:
        table = answer["choices"][0]["prompt_logprobs"]
        if len(table) != len(ids):
            raise ValueError(f"{len(table)} log-probabilities for {len(ids)} tokens")
        # The first token of a text has no probability.
        values = [_logprob(table[place], ids[place]) for place in range(max(start, 1), len(ids))]
        return math.fsum(values), len(values)

    wrong = "the answer has no prompt_logprobs of all tokens"
    return parsed_answer(model.client, _PATH, body, parse, wrong=wrong, remedy=_NEEDS)


def _logprob(entry: Mapping[str, Any], token: int) -> float:
    """Return the log-probability of the token itself; vLLM may list other tokens too."""
    found = entry[str(token)]
    value = float(found["logprob"] if isinstance(found, Mapping) else found)
    if not math.isfinite(value):
        raise ValueError(f"the log-probability of token {token} is {value}")
    return value
