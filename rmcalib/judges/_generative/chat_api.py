"""A language model behind an OpenAI-compatible chat API.

Chat APIs return the log-probabilities of the 20 most likely next tokens, and a label may not be among them.
vLLM can return those of given token ids, so none is missing. Other servers are asked again with the labels as
the only choice (`structured_outputs`). If they do not support that either, the label gets an upper bound: the
probability of the least likely token that was returned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rmcalib.judges._generative.models import LabelAnswer, TextAnswer
from rmcalib.judges._generative.prompts import Message, spellings
from rmcalib.judges._generative.tokens import (
    completed,
    floor_of,
    log_sum,
    possible,
    shown_tokens,
    sum_of,
    used_tokens,
)
from rmcalib.judges._http import Client, ServerError
from rmcalib.judges._served.servers import (
    PINNED_DATE,
    card_of,
    model_cards,
    optional_answer,
    printable,
    replaced,
)

__all__ = ["ChatApi", "Connected"]

_PATH = "/v1/chat/completions"
_TOP = (20, 5)  # number of most likely tokens to ask for; some servers allow only a few
_REFUSED = (400, 404, 405, 422, 501)
_PROBE = ({"role": "user", "content": "Reply with the letter A or B."},)
_NEWER_NAME = "max_completion_tokens"


@dataclass(frozen=True)
class Connected:
    """What a server reports: the model that answers, the checkpoint, the version and the owner.

    `top` is how many of the most likely tokens it returns; 0 if log-probabilities are not needed.
    """

    model: str | None
    served_name: str
    checkpoint: str | None = None
    version: str | None = None
    owner: str | None = None
    top: int = 0


class ChatApi:
    """A chat model of vLLM, SGLang, OpenAI or any server with the same API.

    Parameters
    ----------
    name : str
        Name of the model, for the server and for messages.
    client : Client
        A client for the server's address.
    served_name : str, optional
        The server's name for the model. Default: `name`.
    workers : int
        The most requests at a time.
    logprobs : bool
        Whether log-probabilities are needed. If so, a server without them is an error.
    """

    def __init__(
        self, name: str, client: Client, *, served_name: str | None, workers: int, logprobs: bool
    ) -> None:
        """Keep the settings; the server is not asked yet."""
        self.name, self.client, self.served_name = name, client, served_name
        self.workers, self.logprobs = workers, logprobs
        self._label_ids: dict[str, tuple[int, ...]] = {}
        self._limit_name = "max_tokens"
        self._knows_ids = self._knows_choice = True  # until the server refuses them

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is known about the server, so that another process asks it again."""
        return {key: value for key, value in self.__dict__.items() if key != "connected"}

    @cached_property
    def connected(self) -> Connected:
        """What the server reports about itself, and the result of one short request."""
        quick = dataclasses.replace(self.client, attempts=2)
        cards = model_cards(quick)
        owner = next((str(card["owned_by"]) for card in cards if card.get("owned_by")), None)
        card: Mapping[str, Any] = {}
        if owner in ("vllm", "sglang"):  # the lists of other servers are not reliable
            card = card_of(quick, cards, self.name, self.served_name)
        served = printable(card.get("id")) or self.served_name or self.name
        version = printable(optional_answer(quick, "/version").get("version")) if owner == "vllm" else None
        top, answer = self._probe(quick, served)
        model = printable(answer.get("model"))
        return Connected(model, served, printable(card.get("root")), version, printable(owner), top)

    def label_logprobs(self, messages: Sequence[Message], labels: Sequence[str]) -> LabelAnswer:
        """Ask for the log-probabilities of one token; a missing label gets an upper bound."""
        if self.connected.owner == "vllm" and self._knows_ids:
            found = self._by_ids(messages, labels)
            if found is not None:
                return found
        answer = self._ask_token(messages)
        shown = possible(shown_tokens(answer))
        if not shown:
            raise ServerError(_no_logprobs(self.name, self.client.url))
        values = [sum_of(shown, label) for label in labels]
        tokens = used_tokens(answer)
        missing = [value is None for value in values]
        if not any(missing):
            return LabelAnswer(tuple(v for v in values if v is not None), tuple(missing), tokens)
        if self._knows_choice:
            more, used = self._by_choice(messages, labels)
            tokens += used
            values = completed(shown, labels, values, more)
        floor = floor_of(shown)
        return LabelAnswer(
            tuple(floor if value is None else value for value in values),
            tuple(value is None for value in values),
            tokens,
        )

    def sample(
        self, messages: Sequence[Message], *, seed: int, temperature: float, max_tokens: int
    ) -> TextAnswer:
        """Ask for one answer."""
        answer = self._ask(messages, max_tokens=max_tokens, temperature=temperature, seed=seed)
        try:
            text = answer["choices"][0]["message"].get("content")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ServerError(self._odd(error)) from error
        return TextAnswer(text if isinstance(text, str) else "", used_tokens(answer))

    def identity(self) -> dict[str, Any]:
        """Return which model answers. The address is not included, because a server may move."""
        known = self.connected
        return {
            "served_name": known.served_name,
            "answered_by": known.model,
            "served_checkpoint": known.checkpoint,
            "top_logprobs": known.top,
        }

    def asked(self) -> dict[str, Any]:
        """Return the identity, because only the server knows which model it has."""
        return self.identity()

    def about(self) -> dict[str, Any]:
        """Return the server's address and version."""
        known = self.connected
        return {"endpoint": self.client.url, "server_version": known.version, "server_owner": known.owner}

    def check(self) -> None:
        """Raise a `ServerError` if the server has another checkpoint. `_ask` checks each answer."""
        known = self.connected
        if known.owner in ("vllm", "sglang"):
            card = card_of(self.client, model_cards(self.client), self.name, self.served_name)
            now = printable(card.get("root"))
            if now != known.checkpoint:
                raise self._replaced(known.checkpoint, now)

    def _probe(self, client: Client, served: str) -> tuple[int, Mapping[str, Any]]:
        """Return how many log-probabilities the server returns, and its answer to a short question."""
        for top in _TOP if self.logprobs else (0,):
            more: dict[str, Any] = {"logprobs": True, "top_logprobs": top} if top else {}
            asked = {"model": served, "messages": list(_PROBE), "max_tokens": 1, "temperature": 0, **more}
            try:
                answer = self._post(client, asked)
            except ServerError as error:
                if error.status in _REFUSED and top not in (_TOP[-1], 0):
                    continue
                if error.status in (400, 422) and top and "logprobs" in str(error).lower():
                    raise ServerError(_no_logprobs(self.name, self.client.url), error.status) from error
                raise
            self._check_choices(answer)
            if top and not shown_tokens(answer):
                raise ServerError(_no_logprobs(self.name, self.client.url))
            return top, answer
        raise AssertionError("the last attempt returns or raises")

    def _ask(self, messages: Sequence[Message], **options: Any) -> Any:
        """Send a question, and check which model answers."""
        known = self.connected
        body: dict[str, Any] = {"model": known.served_name, "messages": list(messages), **options}
        if known.owner == "vllm":
            body["chat_template_kwargs"] = PINNED_DATE
        try:
            answer = self._post(self.client, body)
        except ServerError as error:
            said = str(error).lower()
            if error.status == 400 and ("context" in said or "maximum" in said):
                remedy = "cut long texts with --max-characters"
                raise ServerError(f"{error}: {remedy}", error.status) from error
            raise
        self._check_choices(answer)
        now = printable(answer.get("model"))
        if now != known.model:
            raise self._replaced(known.model, now)
        return answer

    def _ask_token(self, messages: Sequence[Message], **options: Any) -> Any:
        """Ask for one token and the log-probabilities of the most likely ones."""
        asked = {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": self.connected.top}
        return self._ask(messages, **asked, **options)

    def _post(self, client: Client, body: Mapping[str, Any]) -> Any:
        """Send a request. OpenAI's newer models have another name for `max_tokens`."""
        if self._limit_name != "max_tokens":
            body = {self._limit_name if key == "max_tokens" else key: value for key, value in body.items()}
        try:
            return client.post(_PATH, body)
        except ServerError as error:
            if error.status != 400 or _NEWER_NAME not in str(error) or self._limit_name == _NEWER_NAME:
                raise
        self._limit_name = _NEWER_NAME
        return self._post(client, body)

    def _by_ids(self, messages: Sequence[Message], labels: Sequence[str]) -> LabelAnswer | None:
        """Ask vLLM for the log-probabilities of the labels' own tokens; None if it does not support that."""
        try:
            ids = [self._ids_of(label) for label in labels]
            if not all(ids):
                return None
            wanted = sorted({each for own in ids for each in own})
            answer = self._ask_token(messages, logprob_token_ids=wanted, return_tokens_as_token_ids=True)
            shown = shown_tokens(answer)
            values = [[shown[f"token_id:{each}"] for each in own] for own in ids]
        except (ServerError, KeyError) as error:
            if isinstance(error, ServerError) and error.status not in _REFUSED:
                raise
            if isinstance(error, ServerError) and "--max-characters" in str(error):
                raise
            self._knows_ids = False
            return None
        return LabelAnswer(tuple(map(log_sum, values)), (False,) * len(labels), used_tokens(answer))

    def _ids_of(self, label: str) -> tuple[int, ...]:
        """Return the single tokens of vLLM's tokenizer that spell a label."""
        if label not in self._label_ids:
            found: dict[int, None] = {}
            for text in spellings(label):
                body = {"model": self.connected.served_name, "prompt": text, "add_special_tokens": False}
                answer = self.client.post("/tokenize", body)
                ids = answer.get("tokens") if isinstance(answer, Mapping) else None
                if isinstance(ids, list) and len(ids) == 1 and type(ids[0]) is int and ids[0] >= 0:
                    found[ids[0]] = None
            self._label_ids[label] = tuple(found)
        return self._label_ids[label]

    def _by_choice(self, messages: Sequence[Message], labels: Sequence[str]) -> tuple[dict[str, float], int]:
        """Ask with the labels as the only choice; return their log-probabilities and the number of tokens."""
        try:
            answer = self._ask_token(messages, structured_outputs={"choice": list(labels)})
        except ServerError as error:
            if error.status not in _REFUSED:
                raise
            self._knows_choice = False
            return {}, 0
        shown = possible(shown_tokens(answer))
        if not shown or not {token.strip() for token in shown} <= {*labels}:
            self._knows_choice = False  # the server ignored the choice
            return {}, used_tokens(answer)
        return shown, used_tokens(answer)

    def _replaced(self, before: str | None, now: str | None) -> ServerError:
        return replaced(self.name, self.client.url, [f"it was {before!r} and is {now!r}"])

    def _check_choices(self, answer: Any) -> None:
        if not isinstance(answer, Mapping) or not isinstance(answer.get("choices"), list):
            raise ServerError(self._odd(ValueError("no list of choices")))

    def _odd(self, error: Exception) -> str:
        why = f"{type(error).__name__}: {error}"
        return f"{self.client.url}{_PATH}: not the answer of a chat API ({why}): is this the right address?"


def _no_logprobs(name: str, url: str) -> str:
    return f"{name}: the server at {url} returns no log-probabilities: use sampled answers (--judge votes)"
