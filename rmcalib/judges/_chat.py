"""Language models behind an OpenAI-compatible chat API, which answer questions.

Chat APIs return the log-probabilities of the 20 most likely next tokens. For a label that is not among
them, vLLM is asked again with the labels as the only choice (`structured_outputs`). With other servers it gets an
upper bound: the probability of the least likely token that was returned.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from rmcalib.judges._http import ServerError, open_client
from rmcalib.judges._questions import spellings
from rmcalib.judges._server import Server, connect, printable
from rmcalib.judges._settings import LanguageModelSettings
from rmcalib.judges._templates import Message
from rmcalib.judges.apis import UNKNOWN

_PATH = "/v1/chat/completions"
_LIMITS = ("max_tokens", "max_completion_tokens")  # the second is for OpenAI's newer models
_TOP = (20, 5)  # number of most likely tokens to ask for; some servers allow only a few
_REFUSED = (400, 404, 405, 422, 501)
_PROBE = [{"role": "user", "content": "Reply with the letter A or B."}]
_LEAST = -1000.0  # vLLM has -9999 for tokens that are impossible


@dataclass(frozen=True)
class Answer:
    """A sampled answer, or the log-probabilities of labels at the next token, over all their spellings.

    `floored`: whether each value is only an upper bound, because the server did not return the label.
    `tokens`: number of tokens of the request and the answer.
    """

    tokens: int
    text: str = ""
    logprobs: tuple[float, ...] = ()
    floored: tuple[bool, ...] = ()


class _Way(NamedTuple):
    """What a server accepts: its name for the limit of tokens, how many log-probabilities, and who answers."""

    limit: str
    top: int
    model: str | None


class ChatApi:
    """A chat model of vLLM, SGLang, OpenAI or any server with the same API. Several threads may use it.

    `logprobs` says whether log-probabilities are needed. If so, a server without them is an error.
    """

    def __init__(self, name: str, settings: LanguageModelSettings, *, logprobs: bool) -> None:
        """Keep the settings; the server is not asked yet."""
        self.name, self.settings, self.needs_logprobs = name, settings, logprobs
        self.client = open_client(str(settings.endpoint), settings.api_key_env, settings.timeout)

    @cached_property
    def server(self) -> Server:
        """The server, and what it reports about the model."""
        return connect(self.client, self.name, self.settings.served_name, chat=True)

    @cached_property
    def way(self) -> _Way:
        """How the server is asked, found out with short requests."""
        refusal: ServerError | None = None
        for limit, top in itertools.product(_LIMITS, _TOP if self.needs_logprobs else (0,)):
            more: dict[str, Any] = {"logprobs": True, "top_logprobs": top} if top else {}
            body = {"model": self.server.model, "messages": _PROBE, limit: 1, "temperature": 0, **more}
            try:
                answer = dataclasses.replace(self.client, attempts=2).post(_PATH, body)
            except ServerError as error:
                if error.status not in _REFUSED:
                    raise
                refusal = error
                continue
            self._check_choices(answer)
            if top and not shown_tokens(answer):
                raise ServerError(self._no_logprobs())
            return _Way(limit, top, printable(answer.get("model")))
        raise ServerError(f"{refusal}; {self._no_logprobs()}" if self.needs_logprobs else str(refusal))

    def label_logprobs(self, messages: Sequence[Message], labels: Sequence[str]) -> Answer:
        """Ask for the log-probabilities of one token; a missing label gets an upper bound."""
        answer = self._first_token(messages)
        shown, tokens = shown_tokens(answer), used_tokens(answer)
        if not shown:
            raise ServerError(self._no_logprobs())
        values = [sum_of(shown, label) for label in labels]
        if None in values and self.server.api.chooses:
            again = self._by_choice(messages, labels)
            values = completed(shown, labels, values, shown_tokens(again))
            tokens += used_tokens(again)
        floor = floor_of(shown)
        logprobs = tuple(floor if value is None else value for value in values)
        floored = tuple(value is None for value in values)
        return Answer(tokens, logprobs=logprobs, floored=floored)

    def _by_choice(self, messages: Sequence[Message], labels: Sequence[str]) -> Any:
        """Ask again with the labels as the only choice; return its answer, {} if it does not know that."""
        try:
            answer = self._first_token(messages, structured_outputs={"choice": list(labels)})
        except ServerError as error:
            if error.status not in _REFUSED:
                raise
            return {}
        ignored = any(token.strip() not in labels for token in shown_tokens(answer))
        return {} if ignored else answer

    def _first_token(self, messages: Sequence[Message], **options: Any) -> Any:
        return self._ask(messages, 1, temperature=0, logprobs=True, top_logprobs=self.way.top, **options)

    def sample(
        self, messages: Sequence[Message], *, seed: int, temperature: float, max_tokens: int
    ) -> Answer:
        """Ask for one answer."""
        answer = self._ask(messages, max_tokens, temperature=temperature, seed=seed)
        try:
            text = answer["choices"][0]["message"].get("content")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ServerError(f"{self.client.url}{_PATH}: not the answer of a chat API") from error
        return Answer(used_tokens(answer), text if isinstance(text, str) else "")

    def identity(self) -> dict[str, Any]:
        """Return which model answers; this asks the server."""
        way = self.way
        return {**self.server.identity(), "answered_by": way.model, "top_logprobs": way.top}

    def about(self) -> dict[str, Any]:
        """Return the server's address and version."""
        return self.server.about()

    def check(self) -> None:
        """Raise a `ServerError` if the server has another checkpoint. `_ask` checks each answer."""
        if self.server.api is not UNKNOWN:
            self.server.check_same()

    def _ask(self, messages: Sequence[Message], max_tokens: int, **options: Any) -> Any:
        """Send a question, and check which model answers."""
        way, server = self.way, self.server
        body = {"model": server.model, "messages": list(messages), way.limit: max_tokens, **options}
        body |= server.api.chat
        answer = self.client.post(_PATH, body)
        self._check_choices(answer)
        now = printable(answer.get("model"))
        if now != way.model:
            raise ServerError(f"the model that answers was replaced: it was {way.model!r} and is {now!r}")
        return answer

    def _check_choices(self, answer: Any) -> None:
        if not isinstance(answer, Mapping) or not isinstance(answer.get("choices"), list):
            raise ServerError(
                f"{self.client.url}{_PATH}: not the answer of a chat API: is the address right?"
            )

    def _no_logprobs(self) -> str:
        return f'{self.name}: the server returns no log-probabilities: use sampled answers (judging="votes")'


def shown_tokens(answer: Any) -> dict[str, float]:
    """Return the log-probabilities of an answer's first token; empty if there are none."""
    try:
        rows = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        shown = {str(row["token"]): float(row["logprob"]) for row in rows}
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        return {}
    return {token: min(value, 0.0) for token, value in shown.items() if value > _LEAST}


def sum_of(shown: Mapping[str, float], label: str) -> float | None:
    """Return log p of a label, summed over its spellings; None if none of them is shown."""
    written = {spelling.strip() for spelling in spellings(label)}
    values = [value for token, value in shown.items() if token.strip(" \u2581\n") in written]
    if not values:
        return None
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


def completed(
    shown: Mapping[str, float],
    labels: Sequence[str],
    values: Sequence[float | None],
    choice: Mapping[str, float],
) -> list[float | None]:
    """Fill in missing labels from `choice`, the log-probabilities of an answer that had to be a label.

    `choice` gives the odds between labels. A label that both answers show gives the scale. If no label is
    shown, the likeliest gets its upper bound (`floor_of`).

    >>> shown, choice = {"A": -1.0, "x": -2.0}, {"A": -0.1, "B": -2.4}
    >>> completed(shown, ["A", "B"], [-1.0, None], choice)
    [-1.0, -3.3]
    """
    anchor = next((label for label in labels if label in shown and label in choice), None)
    if anchor is not None:
        offset = shown[anchor] - choice[anchor]
    elif choice and not any(value is not None for value in values):
        offset = floor_of(shown) - max(choice.values())
    else:
        return list(values)
    return [
        choice[label] + offset if value is None and label in choice else value
        for label, value in zip(labels, values, strict=True)
    ]


def floor_of(shown: Mapping[str, float]) -> float:
    """Return the log of the largest probability that a token outside the list can have.

    It is at most the probability of the least likely token in the list, and at most 1 minus the sum of the
    list.

    >>> round(math.exp(floor_of({"A": math.log(0.7), "B": math.log(0.2)})), 3)
    0.1
    """
    least = min(shown.values())
    left = 1 - sum(math.exp(value) for value in shown.values())
    # If rounding leaves nothing, the bound is still finite.
    return max(min(least, math.log(left) if left > 0 else -math.inf), least - 10)


def used_tokens(answer: Any) -> int:
    """Return the number of tokens of request and answer; 0 if the server does not report it."""
    usage = answer.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, Mapping) else None
    return total if isinstance(total, int) and 0 <= total < 2**53 else 0
