"""What the servers of reward models expect and answer: vLLM, SGLang and OpenRLHF.

`find_server` finds out what is behind an address. `ask` sends texts to it and returns the model's outputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmcalib.judges._http import Client, ServerError

__all__ = [
    "SERVER_KINDS",
    "Answer",
    "Server",
    "Text",
    "ask",
    "card_of",
    "find_server",
    "model_cards",
    "optional_answer",
    "printable",
    "replaced",
    "server_changes",
]

SERVER_KINDS = ("vllm", "sglang", "openrlhf")
# Templates like Llama 3.2's write today's date into the text. This is the date that they fall back to, and
# that our own scorer uses.
_DATE = {"date_string": "26 Jul 2024"}
_START = {
    "vllm": "start it as a classifier: vllm serve MODEL --runner pooling",
    "sglang": "start it as a classifier: python -m sglang.launch_server --model-path MODEL --is-embedding",
    "openrlhf": "start it with: python -m openrlhf.cli.serve_rm --reward_pretrain MODEL",
}


@dataclass(frozen=True)
class Server:
    """What a server says about itself; None where it says nothing.

    Parameters
    ----------
    kind : one of `SERVER_KINDS`.
    model : the name that requests carry.
    checkpoint : the model that the server has loaded: a Hub id or a path on its machine.
    weights : the version of the weights, where they can be replaced while the server runs (SGLang).
    version : the version of the server's software.
    max_length : the longest text in tokens.
    path : where rewards are asked for.
    raw : what a request must say to get rewards instead of probabilities.
    """

    kind: str
    model: str | None = None
    checkpoint: str | None = None
    weights: str | None = None
    version: str | None = None
    max_length: int | None = None
    path: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Text:
    """A response with its prompt: as chat messages, as token ids, or as one string. One of them is given.

    `n_tokens` and `truncated` are known here only for token ids.
    """

    messages: tuple[Mapping[str, str], ...] = ()
    ids: tuple[int, ...] = ()
    string: str | None = None
    n_tokens: int | None = None
    truncated: bool = False


@dataclass(frozen=True)
class Answer:
    """The outputs of the model for one text, and the text's length in tokens, if the server reports it."""

    outputs: tuple[float, ...]
    n_tokens: int | None = None


def find_server(
    client: Client, kind: str, name: str, served_name: str | None = None, *, attempts: int | None = 2
) -> Server:
    """Return what is behind an address.

    Parameters
    ----------
    client : a client for the address.
    kind : one of `SERVER_KINDS`, or `auto` to find out.
    name : the model that is wanted. The server must say that it has it, if it says anything.
    served_name : the name that the server has for it; default `name`.
    attempts : how often each request is sent (None: as the client does). A server that is not there at the
        beginning should be reported soon.
    """
    client = client if attempts is None else dataclasses.replace(client, attempts=attempts)
    cards = [] if kind == "openrlhf" else model_cards(client)
    if kind == "auto":
        kind = _kind_of(client, cards)
    if kind == "openrlhf":
        return Server(kind, path="/get_reward")
    card = card_of(client, cards, name, served_name)
    length = card.get("max_model_len")
    found = Server(
        kind,
        model=printable(card.get("id")),
        checkpoint=printable(card.get("root")),
        max_length=length if isinstance(length, int) else None,
        path="/classify",
    )
    if kind == "vllm":
        version = optional_answer(client, "/version").get("version")
        return dataclasses.replace(found, version=printable(version), raw={"use_activation": False})
    info = optional_answer(client, "/get_model_info", "/model_info")
    version = optional_answer(client, "/get_server_info", "/server_info").get("version")
    return dataclasses.replace(
        found,
        checkpoint=printable(info.get("model_path")) or found.checkpoint,
        weights=printable(info.get("weight_version")),
        version=printable(version),
    )


def ask(client: Client, server: Server, texts: Sequence[Text], limit: int) -> list[Answer]:
    """Return the model's outputs for some texts, by one request.

    Parameters
    ----------
    client, server : where to ask, and what is there.
    texts : what to score. vLLM takes one conversation, or several texts as token ids.
    limit : the longest text in tokens. vLLM cuts longer conversations at their end.
    """
    body, parse = _FORMS[server.kind](server, texts, limit)
    try:
        answer = client.post(server.path, body)
    except ServerError as error:
        if error.status in (404, 405, 501):
            raise ServerError(f"{error}: {_START[server.kind]}", error.status) from error
        raise
    try:
        answers = parse(answer)
        if len(answers) != len(texts):
            raise ValueError(f"{len(answers)} results for {len(texts)} texts")
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise ServerError(
            f"{client.url}{server.path}: not the answer of a reward model's server of kind {server.kind} "
            f"({type(error).__name__}: {error}): {_START[server.kind]}"
        ) from error
    return answers


_Form = tuple[dict[str, Any], Callable[[Any], list[Answer]]]


def _vllm(server: Server, texts: Sequence[Text], limit: int) -> _Form:
    body: dict[str, Any] = {"model": server.model, **server.raw}
    if texts[0].messages:
        body |= {
            "messages": list(texts[0].messages),
            "add_generation_prompt": False,
            "chat_template_kwargs": _DATE,
            "truncate_prompt_tokens": limit,
        }
    else:
        body["input"] = [list(text.ids) for text in texts]
    column = "probs" if server.path == "/classify" else "data"

    def parse(answer: Any) -> list[Answer]:
        rows = sorted(answer["data"], key=lambda row: row["index"])
        length = int(answer["usage"]["prompt_tokens"]) if len(rows) == 1 else None
        return [Answer(_numbers(row[column]), length) for row in rows]

    return body, parse


def _sglang(server: Server, texts: Sequence[Text], limit: int) -> _Form:  # noqa: ARG001 (cut already)
    def parse(answer: Any) -> list[Answer]:
        return [Answer(_numbers(row["embedding"])) for row in answer]

    return {"model": server.model, "input_ids": [list(text.ids) for text in texts]}, parse


def _openrlhf(server: Server, texts: Sequence[Text], limit: int) -> _Form:  # noqa: ARG001 (cut by the server)
    def parse(answer: Any) -> list[Answer]:
        return [Answer(_numbers(row if isinstance(row, list) else [row])) for row in answer["rewards"]]

    return {"query": [text.string for text in texts]}, parse


_FORMS: dict[str, Callable[[Server, Sequence[Text], int], _Form]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "openrlhf": _openrlhf,
}


def _numbers(row: Any) -> tuple[float, ...]:
    """Return a model's outputs as numbers; of one list per token, those of the last token."""
    while isinstance(row[-1], list):
        row = row[-1]
    return tuple(float(value) for value in row)


def model_cards(client: Client) -> list[Mapping[str, Any]]:
    """Return what a server says about its models; nothing if it does not say."""
    try:
        answer = client.get("/v1/models")
    except ServerError as error:
        if error.status in (404, 405):
            return []
        raise
    cards = answer.get("data") if isinstance(answer, Mapping) else None
    return [card for card in cards if isinstance(card, Mapping)] if isinstance(cards, list) else []


def _kind_of(client: Client, cards: Sequence[Mapping[str, Any]]) -> str:
    for card in cards:
        if card.get("owned_by") in SERVER_KINDS:
            return str(card["owned_by"])
    paths = optional_answer(client, "/openapi.json").get("paths")
    if isinstance(paths, Mapping) and "/get_reward" in paths:
        return "openrlhf"
    raise ServerError(
        f"{client.url}: the kind of server is unknown: name it with --endpoint-kind "
        f"({', '.join(SERVER_KINDS)})"
    )


def card_of(
    client: Client, cards: Sequence[Mapping[str, Any]], name: str, served_name: str | None
) -> Mapping[str, Any]:
    """Return what a server says about the model that is wanted; raise a `ServerError` if it has another."""
    wanted = served_name or name
    names = {wanted, str(Path(wanted).resolve())} if Path(wanted).is_dir() else {wanted}
    for key in ("id", "root"):
        for card in cards:
            if isinstance(card.get(key), str) and card[key] in names:
                return card
    have = ", ".join(repr(printable(card.get("id"))) for card in cards[:5]) or "no model"
    raise ServerError(
        f"{client.url}: the server has {have}, not {wanted!r}: give the model that it serves, or the name "
        "that it has there with --served-name"
    )


def optional_answer(client: Client, *paths: str) -> Mapping[str, Any]:
    """Return the first of some optional answers; empty if there is none."""
    for path in paths:
        try:
            answer = client.get(path)
        except ServerError as error:
            if error.status is None:  # not there at all
                raise
            continue
        if isinstance(answer, Mapping):
            return answer
    return {}


def printable(value: Any) -> str | None:
    """Return a short text from a server as printable text; None if there is none."""
    if value is None or value == "":
        return None
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in str(value)[:300])


def server_changes(before: Server, now: Server) -> list[str]:
    """Return in words how a server differs from what it was.

    >>> server_changes(Server("vllm", model="a"), Server("vllm", model="b"))
    ["its model was 'a' and is 'b'"]
    """
    return [
        f"its {name} was {getattr(before, name)!r} and is {getattr(now, name)!r}"
        for name in ("model", "checkpoint", "weights", "version")
        if getattr(before, name) != getattr(now, name)
    ]


def replaced(name: str, url: str, changes: Sequence[str]) -> ServerError:
    """Return the error for a server whose model was replaced while it was scoring.

    >>> str(replaced("org/rm", "http://localhost", ["its model was 'a' and is 'b'"])).partition(": ")[2][:50]
    'the model at http://localhost was replaced during '
    """
    return ServerError(
        f"{name}: the model at {url} was replaced during the run: {'; '.join(changes)}. The last prompts are "
        "not kept: serve the first model again and run the same command, or start again with --fresh"
    )
