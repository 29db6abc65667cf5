"""The APIs of servers: vLLM, SGLang and OpenRLHF.

`find_server` finds out what kind of server an address has, and which model. `ask` sends texts to a served
reward model and returns its outputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rmcalib.judges._http import Client, ServerError

SERVER_KINDS = ("vllm", "sglang", "openrlhf")
# Templates like Llama 3.2's write today's date into the text. This is their default date, which our own
# scorer uses too.
PINNED_DATE = {"date_string": "26 Jul 2024"}
T = TypeVar("T")
_START = {
    "vllm": "start it as a classifier: vllm serve MODEL --runner pooling",
    "sglang": "start it as a classifier: python -m sglang.launch_server --model-path MODEL --is-embedding",
    "openrlhf": "start it with: python -m openrlhf.cli.serve_rm --reward_pretrain MODEL",
}


@dataclass(frozen=True)
class Server:
    """What a server reports about itself; None for what it does not report.

    `model` is its name in requests, `checkpoint` the Hub id or path of what is loaded, and `weights` the
    version of weights that can be replaced while the server runs (SGLang). `path` returns rewards, and `raw`
    asks for rewards instead of probabilities.
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
    """A response with its prompt, as chat messages, as token ids, or as one string.

    `n_tokens` and `truncated` are known only for token ids.
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


def find_server(client: Client, kind: str, name: str, served_name: str | None = None) -> Server:
    """Ask a server what it is (`kind` may be `auto`), and what it reports about the model `name`."""
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
    """Return the model's outputs for some texts, with one request.

    vLLM takes one conversation, which it truncates at `limit` tokens, or several texts as token ids.
    """
    body, parse = _FORMS[server.kind](server, texts, limit)

    def parse_all(answer: Any) -> list[Answer]:
        answers = parse(answer)
        if len(answers) != len(texts):
            raise ValueError(f"{len(answers)} results for {len(texts)} texts")
        return answers

    wrong = f"not the answer of a reward model's server of kind {server.kind}"
    return parsed_answer(client, server.path, body, parse_all, wrong=wrong, remedy=_START[server.kind])


def parsed_answer(
    client: Client, path: str, body: Any, parse: Callable[[Any], T], *, wrong: str, remedy: str
) -> T:
    """Send a request, and return what `parse` makes of the answer.

    `parse` may raise any error of a wrong format, which is reported as `wrong`. The `remedy` says how the
    server must be started.
    """
    try:
        answer = client.post(path, body)
    except ServerError as error:
        if error.status in (404, 405, 501):
            raise ServerError(f"{error}: {remedy}", error.status) from error
        raise
    try:
        return parse(answer)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ServerError(f"{client.url}{path}: {wrong} ({why}): {remedy}") from error


_Form = tuple[dict[str, Any], Callable[[Any], list[Answer]]]


def _vllm(server: Server, texts: Sequence[Text], limit: int) -> _Form:
    body: dict[str, Any] = {"model": server.model, **server.raw}
    if texts[0].messages:
        body |= {
            "messages": list(texts[0].messages),
            "add_generation_prompt": False,
            "chat_template_kwargs": PINNED_DATE,
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


def _sglang(server: Server, texts: Sequence[Text], limit: int) -> _Form:  # noqa: ARG001 (truncated already)
    def parse(answer: Any) -> list[Answer]:
        return [Answer(_numbers(row["embedding"])) for row in answer]

    return {"model": server.model, "input_ids": [list(text.ids) for text in texts]}, parse


def _openrlhf(server: Server, texts: Sequence[Text], limit: int) -> _Form:  # noqa: ARG001 (the server truncates)
    def parse(answer: Any) -> list[Answer]:
        return [Answer(_numbers(row if isinstance(row, list) else [row])) for row in answer["rewards"]]

    return {"query": [text.string for text in texts]}, parse


_FORMS: dict[str, Callable[[Server, Sequence[Text], int], _Form]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "openrlhf": _openrlhf,
}


def quick(client: Client) -> Client:
    """Return a client for the first requests, so that a server that does not run is reported soon."""
    return dataclasses.replace(client, attempts=2)


def _numbers(row: Any) -> tuple[float, ...]:
    """Return a model's outputs as numbers. If there is a list per token, take that of the last token."""
    while isinstance(row[-1], list):
        row = row[-1]
    return tuple(float(value) for value in row)


def model_cards(client: Client) -> list[Mapping[str, Any]]:
    """Return what a server reports about its models; empty if it does not report them."""
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
        f"{client.url}: the kind of server is unknown: give it with -J endpoint_kind=... "
        f"({', '.join(SERVER_KINDS)})"
    )


def card_of(
    client: Client, cards: Sequence[Mapping[str, Any]], name: str, served_name: str | None
) -> Mapping[str, Any]:
    """Return what a server reports about a model; raise a `ServerError` if it has another one."""
    wanted = served_name or name
    names = {wanted, str(Path(wanted).resolve())} if Path(wanted).is_dir() else {wanted}
    for key in ("id", "root"):
        for card in cards:
            if isinstance(card.get(key), str) and card[key] in names:
                return card
    have = ", ".join(repr(printable(card.get("id"))) for card in cards[:5]) or "no model"
    raise ServerError(
        f"{client.url}: the server has {have}, not {wanted!r}: give the model that it serves, or the "
        "server's name for it with -J served_name=..."
    )


def optional_answer(client: Client, *paths: str) -> Mapping[str, Any]:
    """Return the answer of the first path that the server knows; empty if it knows none."""
    for path in paths:
        try:
            answer = client.get(path)
        except ServerError as error:
            if error.status is None:  # no answer at all
                raise
            continue
        if isinstance(answer, Mapping):
            return answer
    return {}


def printable(value: Any) -> str | None:
    """Return a value from a server as short printable text; None if it is empty."""
    if value is None or value == "":
        return None
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in str(value)[:300])


def changes_since(client: Client, before: Server, name: str, served_name: str | None) -> list[str]:
    """Ask a server again what it has, and return how that differs from `before`, in words."""
    now = find_server(client, before.kind, name, served_name)
    return [
        f"its {field} was {getattr(before, field)!r} and is {getattr(now, field)!r}"
        for field in ("model", "checkpoint", "weights", "version")
        if getattr(before, field) != getattr(now, field)
    ]


def replaced(name: str, url: str, changes: Sequence[str]) -> ServerError:
    """Return the error for a server whose model was replaced during the run.

    >>> str(replaced("org/rm", "http://localhost", ["its model was 'a' and is 'b'"])).partition(": ")[2][:50]
    'the model at http://localhost was replaced during '
    """
    return ServerError(
        f"{name}: the model at {url} was replaced during the run: {'; '.join(changes)}. The rewards of the "
        "last prompts are not kept: serve the first model again and run the same command, or start again "
        "with --fresh"
    )
