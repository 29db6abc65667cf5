"""Language models that answer questions: behind an OpenAI-compatible chat API, or loaded here.

Chat APIs return the log-probabilities of the 20 most likely next tokens, and a label may not be among them.
Then the server is asked again with the labels as the only choice (`structured_outputs` of vLLM). If it does
not support that, the label gets an upper bound: the probability of the least likely token that was returned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from rmcalib.judges._files import identify, model_from
from rmcalib.judges._http import Client, ServerError
from rmcalib.judges._prompts import Message, spellings
from rmcalib.judges._servers import (
    PINNED_DATE,
    card_of,
    model_cards,
    optional_answer,
    printable,
    quick,
    replaced,
)
from rmcalib.judges._settings import LoadOptions

if TYPE_CHECKING:
    from rmcalib.judges._logprobs import LanguageModel

_PATH = "/v1/chat/completions"
_TOP = (20, 5)  # number of most likely tokens to ask for; some servers allow only a few
_REFUSED = (400, 404, 405, 422, 501)
_PROBE = ({"role": "user", "content": "Reply with the letter A or B."},)
_NEWER_NAME = "max_completion_tokens"
_LEAST = -9999.0  # vLLM's value for a token that a grammar forbids
_IMPOSSIBLE = -1000.0


@dataclass(frozen=True)
class LabelAnswer:
    """The log-probabilities of labels at the next token, each summed over all spellings of the label.

    `floored`: whether each value is only an upper bound, because the server did not return the label.
    `tokens`: number of tokens of the request.
    """

    logprobs: tuple[float, ...]
    floored: tuple[bool, ...]
    tokens: int = 0


@dataclass(frozen=True)
class TextAnswer:
    """A sampled answer, and the number of tokens of request and answer."""

    text: str
    tokens: int = 0


class ChatModel(Protocol):
    """A language model that answers questions. Up to `workers` threads may use it at the same time."""

    workers: int

    def label_logprobs(self, messages: Sequence[Message], labels: Sequence[str]) -> LabelAnswer:
        """Return the log-probabilities of labels as the next token of the assistant."""

    def sample(
        self, messages: Sequence[Message], *, seed: int, temperature: float, max_tokens: int
    ) -> TextAnswer:
        """Return one sampled answer. The same seed gives the same answer if the model supports seeds."""

    def identity(self) -> dict[str, Any]:
        """Return everything about the model that changes an answer."""

    def asked(self) -> dict[str, Any]:
        """Return what determines `identity`, as far as it is known without loading a model."""

    def about(self) -> dict[str, Any]:
        """Return what else a manifest records."""

    def check(self) -> None:
        """Raise a `ValueError` if the model has changed since it was loaded."""


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
        self._limit_name = "max_tokens"
        self._knows_choice = True  # until the server refuses it

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is known about the server, so that another process asks it again."""
        return {key: value for key, value in self.__dict__.items() if key != "connected"}

    @cached_property
    def connected(self) -> Connected:
        """What the server reports about itself, and the result of one short request."""
        client = quick(self.client)
        cards = model_cards(client)
        owner = next((str(card["owned_by"]) for card in cards if card.get("owned_by")), None)
        card: Mapping[str, Any] = {}
        if owner in ("vllm", "sglang"):  # the lists of other servers are not reliable
            card = card_of(client, cards, self.name, self.served_name)
        served = printable(card.get("id")) or self.served_name or self.name
        version = printable(optional_answer(client, "/version").get("version")) if owner == "vllm" else None
        top, answer = self._probe(client, served)
        model = printable(answer.get("model"))
        return Connected(model, served, printable(card.get("root")), version, printable(owner), top)

    def label_logprobs(self, messages: Sequence[Message], labels: Sequence[str]) -> LabelAnswer:
        """Ask for the log-probabilities of one token; a missing label gets an upper bound."""
        answer = self._ask_token(messages)
        shown = possible(shown_tokens(answer))
        if not shown:
            raise ServerError(_no_logprobs(self.name, self.client.url))
        values = [sum_of(shown, label) for label in labels]
        tokens = used_tokens(answer)
        if None in values and self._knows_choice:
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
                remedy = "cut long texts with -J max_characters"
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


class LocalChat:
    """A causal language model from the Hub or a folder. It is loaded when it is first used.

    Parameters
    ----------
    name : str
        Hub id or folder. The tokenizer must have a chat template.
    options : LoadOptions
        Options for loading it.
    """

    workers = 1

    def __init__(self, name: str, options: LoadOptions) -> None:
        """Keep the settings; nothing is loaded yet."""
        self.name, self.options = name, options
        self._known_ids: dict[str, list[int]] = {}

    @cached_property
    def model(self) -> LanguageModel:
        """The loaded model."""
        from rmcalib.judges._logprobs import load_language_model

        return load_language_model(self.name, self.options)

    @cached_property
    def _template(self) -> str | None:
        return self.options.recipe_for(self.name).template

    def label_logprobs(self, messages: Sequence[Message], labels: Sequence[str]) -> LabelAnswer:
        """Run the question through the model once."""
        from rmcalib.judges._logprobs import next_token_logprobs

        ids = self._ids(messages, 1)
        groups = [self._label_ids(label) for label in labels]
        table = next_token_logprobs(self.model, ids)
        values = tuple(float(table[group].logsumexp(0)) for group in groups)
        return LabelAnswer(values, (False,) * len(labels), len(ids))

    def sample(
        self, messages: Sequence[Message], *, seed: int, temperature: float, max_tokens: int
    ) -> TextAnswer:
        """Generate one answer."""
        import torch

        ids = self._ids(messages, 1)
        model, room = self.model, self.model.max_length - len(ids)
        chosen: dict[str, Any] = {"do_sample": False}
        if temperature > 0:
            chosen = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        tokens = torch.tensor([ids], device=model.device)
        devices = [model.device] if model.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            torch.manual_seed(seed)
            output = model.model.generate(
                input_ids=tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=min(max_tokens, room),
                pad_token_id=model.tokenizer.eos_token_id,
                **chosen,
            )
        answer = output[0, len(ids) :].tolist()
        return TextAnswer(model.tokenizer.decode(answer, skip_special_tokens=True), len(ids) + len(answer))

    def identity(self) -> dict[str, Any]:
        """Return commit, dtype, name of the template and longest text; this loads the model."""
        return {
            "revision": self.model.revision,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "template": self._template,
            "max_length": self.model.max_length,
        }

    def asked(self) -> dict[str, Any]:
        """Return what determines `identity`, as far as it is known without the weights."""
        options = self.options
        return {
            "revision": identify(self.name, options.revision),
            "dtype": [options.dtype, options.device.partition(":")[0]],
            "template": self._template,
            "max_length": options.max_length,
        }

    def about(self) -> dict[str, Any]:
        """Return the device, and where the model is from."""
        return {"device": str(self.model.device), "model_from": model_from(self.name)}

    def check(self) -> None:
        """Do nothing: the model is in memory."""

    def _ids(self, messages: Sequence[Message], room: int) -> list[int]:
        from rmcalib.judges._templates import question_ids

        model = self.model
        ids = question_ids(messages, model.tokenizer, self._template)
        if len(ids) + room > model.max_length:
            raise ValueError(
                f"the question has {len(ids)} tokens, but the limit is {model.max_length}: increase "
                "-J max_length=... if the model can read more, or cut long texts with -J max_characters=..."
            )
        return ids

    def _label_ids(self, label: str) -> list[int]:
        """Return the tokens that spell a label."""
        if label in self._known_ids:
            return self._known_ids[label]
        tokenizer = self.model.tokenizer
        found = set()
        for text in spellings(label):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            if len(ids) == 1 and tokenizer.decode(ids).strip() == text.strip():
                found.add(ids[0])
        if not found:
            raise ValueError(
                f"the model's vocabulary has no token for the label {label!r}: use other labels, or sampled "
                "answers (-J judging=votes)"
            )
        self._known_ids[label] = sorted(found)
        return self._known_ids[label]


def shown_tokens(answer: Any) -> dict[str, float]:
    """Return the log-probabilities of an answer's first token; empty if there are none."""
    try:
        rows = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        found = {str(row["token"]): float(row["logprob"]) for row in rows}
    except (KeyError, IndexError, TypeError, ValueError):
        return {}
    return {token: max(min(value, 0.0), _LEAST) for token, value in found.items() if not math.isnan(value)}


def possible(shown: Mapping[str, float]) -> dict[str, float]:
    """Leave out tokens that a grammar forbids."""
    return {token: value for token, value in shown.items() if value > _IMPOSSIBLE}


def sum_of(shown: Mapping[str, float], label: str) -> float | None:
    """Return log p of a label, summed over its spellings; None if none of them is shown."""
    known = {spelling.strip() for spelling in spellings(label)}
    values = [value for token, value in shown.items() if token.strip(" \u2581\n") in known]
    return log_sum(values) if values else None


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


def log_sum(values: Sequence[float]) -> float:
    """Return the log of a sum of probabilities, from their logs."""
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


def used_tokens(answer: Any) -> int:
    """Return the number of tokens of request and answer; 0 if the server does not report it."""
    usage = answer.get("usage") if isinstance(answer, Mapping) else None
    total = usage.get("total_tokens") if isinstance(usage, Mapping) else None
    return total if isinstance(total, int) and 0 <= total < 2**53 else 0


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


def _no_logprobs(name: str, url: str) -> str:
    return f"{name}: the server at {url} returns no log-probabilities: use sampled answers (-J judging=votes)"
