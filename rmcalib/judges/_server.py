"""A server with a model: which API it speaks, and what it reports about itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rmcalib._util.display import clean_line
from rmcalib.judges._http import Client, ServerError
from rmcalib.judges.apis import APIS, UNKNOWN
from rmcalib.judges.apis._api import Api

_LONGEST_NAME = 300
T = TypeVar("T")


@dataclass(frozen=True)
class Server:
    """A server with a model, and what it reports about itself; None for what it does not report.

    `name` and `served_name` are the user's. `model` is its name in requests, `checkpoint` the Hub id or path
    of what is loaded, and `weights` the version of weights that can be replaced while the server runs.
    """

    client: Client
    name: str
    served_name: str | None
    api: Api
    model: str | None = None
    checkpoint: str | None = None
    weights: str | None = None
    version: str | None = None
    max_length: int | None = None

    def identity(self) -> dict[str, Any]:
        """Return what is served. The address is not included, because a server may move."""
        names = ("model", "checkpoint", "weights")
        return {"endpoint_kind": self.api.name, **{f"served_{name}": getattr(self, name) for name in names}}

    def about(self) -> dict[str, Any]:
        """Return the server's address and version."""
        return {"endpoint": self.client.url, "server_version": self.version}

    def ask(self, path: str, body: Any, parse: Callable[[Any], T], start: str) -> T:
        """Send a request, and return what `parse` makes of the answer; `start` says how to start a server."""
        try:
            answer = self.client.post(path, body)
        except ServerError as error:
            if error.status in (404, 405, 501):
                raise ServerError(f"{error}: start the server with: {start}", error.status) from error
            raise
        try:
            return parse(answer)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
            why = f"{type(error).__name__}: {error}"
            wrong = f"{self.client.url}{path}: not the expected answer ({why})"
            raise ServerError(f"{wrong}: start the server with: {start}") from error

    def check_same(self, moved: str = "") -> None:
        """Raise a `ServerError` if the server reports another model than before, or if something `moved`."""
        now = find_server(self.client, self.name, self.served_name, self.api.name)
        changes = [
            f"its {field} was {getattr(self, field)!r} and is {getattr(now, field)!r}"
            for field in ("model", "checkpoint", "weights", "version")
            if getattr(self, field) != getattr(now, field)
        ]
        if moved:
            changes.append(moved)
        if changes:
            raise ServerError(
                f"{self.name}: the model at {self.client.url} was replaced during the run: "
                f"{'; '.join(changes)}. The rewards of the last prompts are not kept: serve the first model "
                "again and run the same command, or start again with fresh=True"
            )


def connect(
    client: Client, name: str, served_name: str | None, kind: str = "auto", *, chat: bool = False
) -> Server:
    """Find out what a server has. One that does not run is reported soon: these requests are not repeated."""
    server = find_server(dataclasses.replace(client, attempts=2), name, served_name, kind, chat=chat)
    return dataclasses.replace(server, client=client)


def find_server(
    client: Client, name: str, served_name: str | None = None, kind: str = "auto", *, chat: bool = False
) -> Server:
    """Ask a server what it is (`kind` may be `auto`), and what it reports about the model `name`.

    For a `chat` model, any server will do. The lists of models of unknown servers are not reliable.
    """
    api = next((api for api in APIS if api.name == kind), UNKNOWN)
    cards = _model_cards(client) if api.cards or kind == "auto" else []
    if kind == "auto":
        api = _recognised(client, cards, chat=chat)
    if api is UNKNOWN and not chat:
        names = ", ".join(api.name for api in APIS if api.paths)
        raise ServerError(f"{client.url}: the kind of server is unknown: give endpoint_kind=... ({names})")
    server = Server(client, name, served_name, api)
    if not api.cards:
        return dataclasses.replace(server, model=served_name or name if chat else None)
    card = _card_of(client, cards, served_name or name)
    length = card.get("max_model_len")
    info, about = _optional(client, *api.model_info), _optional(client, *api.version)
    return dataclasses.replace(
        server,
        model=printable(card.get("id")),
        checkpoint=printable(info.get("model_path")) or printable(card.get("root")),
        weights=printable(info.get("weight_version")),
        version=printable(about.get("version")),
        max_length=length if type(length) is int and length > 0 else None,
    )


def _recognised(client: Client, cards: Sequence[Mapping[str, Any]], *, chat: bool) -> Api:
    """Return the API of a server, from its models' owners, or the paths that it documents."""
    owners = {str(card.get("owned_by")) for card in cards}
    for api in APIS:
        if api.recognise(owners, ()):
            return api
    paths = {} if chat else _optional(client, "/openapi.json").get("paths")
    documented = paths if isinstance(paths, Mapping) else {}
    return next((api for api in APIS if api.recognise(owners, documented)), UNKNOWN)


def _model_cards(client: Client) -> list[Mapping[str, Any]]:
    """Return what a server reports about its models; empty if it does not report them."""
    answer = _optional(client, "/v1/models").get("data")
    return [card for card in answer if isinstance(card, Mapping)] if isinstance(answer, list) else []


def _card_of(client: Client, cards: Sequence[Mapping[str, Any]], wanted: str) -> Mapping[str, Any]:
    """Return what a server reports about a model; raise a `ServerError` if it has another one."""
    names = {wanted, str(Path(wanted).resolve())} if Path(wanted).is_dir() else {wanted}
    for key in ("id", "root"):
        for card in cards:
            if isinstance(card.get(key), str) and card[key] in names:
                return card
    have = ", ".join(repr(printable(card.get("id"))) for card in cards[:5]) or "no model"
    raise ServerError(
        f"{client.url}: the server has {have}, not {wanted!r}: give the model that it serves, or the "
        "server's name for it with served_name=..."
    )


def _optional(client: Client, *paths: str) -> Mapping[str, Any]:
    """Return the answer of the first path that the server has; empty if it has none."""
    for path in paths:
        try:
            answer = client.get(path)
        except ServerError as error:
            # No answer at all, another address, or a wrong key.
            if error.status is None or 300 <= error.status < 400 or error.status in (401, 403):
                raise
            continue
        if isinstance(answer, Mapping):
            return answer
    return {}


def printable(value: Any) -> str | None:
    """Return a value from a server as short printable text; None if it is empty."""
    return None if value is None or value == "" else clean_line(str(value)[:_LONGEST_NAME])
