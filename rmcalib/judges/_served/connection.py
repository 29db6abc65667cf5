"""A connection to a server, with checks that it returns raw rewards and always has the same model.

`connect` finds out what the server is, and scores a few short texts (probes). Their rewards show whether the
server returns rewards or probabilities. They are scored again later, to notice if the model was replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rmcalib._util.hub import HubError
from rmcalib.benchmarks import Item
from rmcalib.judges._http import CONCURRENCY, Client, ServerError
from rmcalib.judges._parallel import in_parallel
from rmcalib.judges._registry import Recipe
from rmcalib.judges._reward_model import LONGEST_DEFAULT
from rmcalib.judges._scale import scale_of
from rmcalib.judges._served.servers import Answer, Server, Text, ask, changes_since, find_server, replaced
from rmcalib.judges._served.squashed import why_squashed
from rmcalib.judges._served.texts import Writer, text_writer

__all__ = ["Asked", "Connection", "Reward", "check_same", "connect", "responses_rewards"]

_PROBES = tuple(
    Item(f"probe {number}", "", prompt, responses, 1)
    for number, (prompt, responses) in enumerate(
        [
            ("What is 2 + 2?", ("2 + 2 is 4.", "I hate numbers. Go away!")),
            ("Name a colour of the sky.", ("Blue.", "Tuesday tastes of forty-two trains.")),
            ("How do I boil an egg?", ("Put it into boiling water for eight minutes.", "asdf asdf asdf")),
            ("Translate 'good morning' into French.", ("Bonjour.", "No. I will not do that.")),
        ]
    )
)
_MOVED = (
    0.1  # largest change of a probe's reward, relative to the largest reward (or 1); rounding is far less
)
_RAW = ({"use_activation": False}, {"activation": False})  # asks vLLM for rewards; the older name is last
_REMEDIES = {
    "vllm": "Update vLLM, or start it with --pooler-config '{\"use_activation\": false}'",
    "sglang": "Serve a model with one label (*ForSequenceClassification) with --is-embedding",
    "openrlhf": "Serve a model whose output is the reward itself",
}


@dataclass(frozen=True)
class Asked:
    """The user's settings for a served model."""

    name: str
    recipe: Recipe
    client: Client
    kind: str = "auto"
    served_name: str | None = None
    max_length: int | None = None
    concurrency: int = CONCURRENCY
    tokenize_here: bool = False


@dataclass(frozen=True)
class Connection:
    """A server that was checked: how texts are written, the longest length, and the rewards of the probes."""

    asked: Asked
    server: Server
    write: Writer
    written_by: str
    limit: int
    probes: tuple[float, ...] = ()


@dataclass(frozen=True)
class Reward:
    """The reward of one text, its number of tokens (None if unknown), and whether it was truncated."""

    value: float
    n_tokens: int | None
    truncated: bool


def connect(asked: Asked) -> Connection:
    """Check a server, and find out how it returns raw rewards; raise a `ServerError` if it does not."""
    if asked.recipe.status == "unsupported":
        raise HubError(f"{asked.name}: not supported: {asked.recipe.reason}")
    server = find_server(asked.client, asked.kind, asked.name, asked.served_name)
    limit = _limit(asked, server)
    write, written_by = text_writer(server.kind, asked.recipe, limit, here=asked.tokenize_here)
    connection = Connection(asked, server, write, written_by, limit)
    if server.kind == "vllm":
        return _raw_vllm(connection)
    found = dataclasses.replace(connection, probes=_probe(connection))
    _refuse(found, why_squashed(found.probes, bounded_is_fine=_may_be_bounded(asked.recipe)))
    return found


def responses_rewards(connection: Connection, items: Iterable[Item]) -> Iterator[list[Reward]]:
    """Score all responses of all prompts, with many requests at a time; yield the rewards of each request."""

    def call(task: tuple[str, Sequence[Text]]) -> list[Reward]:
        name, (prompt, texts) = connection.asked.name, task
        try:
            answers = ask(connection.asked.client, connection.server, texts, connection.limit)
        except ServerError as error:
            raise ServerError(f"{name}: prompt {prompt!r}: {error}", error.status) from error
        return [_reward(connection, text, answer) for text, answer in zip(texts, answers, strict=True)]

    yield from in_parallel(call, _tasks(connection, items), workers=connection.asked.concurrency)


def check_same(connection: Connection) -> None:
    """Raise a `ServerError` if the server's model was replaced since the connection was made."""
    asked = connection.asked
    changes = changes_since(asked.client, connection.server, asked.name, asked.served_name)
    rewards = _probe(connection, _PROBES[:2])
    moved = max(abs(a - b) for a, b in zip(rewards, connection.probes, strict=False))
    if moved > _MOVED * max(1.0, *map(abs, connection.probes)):
        changes.append(f"the rewards of the same texts have changed by {moved:.3g}")
    if changes:
        raise replaced(asked.name, asked.client.url, changes)


def _limit(asked: Asked, server: Server) -> int:
    wanted, own = asked.max_length, server.max_length
    if wanted is None:
        return min(own or LONGEST_DEFAULT, asked.recipe.max_length or LONGEST_DEFAULT, LONGEST_DEFAULT)
    if wanted < 8:
        raise ValueError(f"max_length: must be at least 8 tokens, got {wanted}")
    if server.kind == "openrlhf":
        raise ValueError("max_length: OpenRLHF's server has its own limit: start the server with --max_len")
    if own is not None and wanted > own:
        raise ValueError(f"max_length: {wanted} is more than the {own} tokens that the server can read")
    return wanted


def _raw_vllm(connection: Connection) -> Connection:
    """Find the path and the parameter with which vLLM returns raw rewards."""
    try:
        _probe(connection, _PROBES[:1])
    except ServerError as error:
        if error.status not in (400, 404, 405, 501):
            raise
        try:  # vLLM does not serve this reward model as a classifier
            pooling = dataclasses.replace(connection.server, path="/pooling")
            _probe(dataclasses.replace(connection, server=pooling), _PROBES[:1])
        except ServerError:
            raise error from None
        connection = dataclasses.replace(connection, server=pooling)
    for raw in _RAW:
        probed = _with_raw(connection, raw)
        rewards = _probe(probed)
        other = _probe(_with_raw(connection, dict.fromkeys(raw, True)))
        # If the parameter changes the numbers, the server supports it, and these are rewards.
        if not np.allclose(rewards, other, rtol=1e-4, atol=1e-6):
            return dataclasses.replace(probed, probes=rewards)
    probed = dataclasses.replace(_with_raw(connection, _RAW[0]), probes=rewards)
    _refuse(probed, why_squashed(rewards, bounded_is_fine=_may_be_bounded(connection.asked.recipe)))
    return probed


def _with_raw(connection: Connection, raw: dict[str, bool]) -> Connection:
    return dataclasses.replace(connection, server=dataclasses.replace(connection.server, raw=raw))


def _probe(connection: Connection, probes: Sequence[Item] = _PROBES) -> tuple[float, ...]:
    return tuple(reward.value for group in responses_rewards(connection, probes) for reward in group)


def _tasks(connection: Connection, items: Iterable[Item]) -> Iterator[tuple[str, Sequence[Text]]]:
    """Yield the texts of each request, with their prompt's id: all responses of a prompt, or one."""
    for item in items:
        texts = connection.write(item)
        if texts and texts[0].messages:
            yield from ((item.id, [text]) for text in texts)
        elif texts:
            yield item.id, texts


def _reward(connection: Connection, text: Text, answer: Answer) -> Reward:
    name, recipe, outputs = connection.asked.name, connection.asked.recipe, answer.outputs
    if recipe.column is None and len(outputs) != 1:
        raise ServerError(
            f"{name}: the server returns {len(outputs)} numbers per text, not one reward: serve a classifier "
            "with one label, or choose one of them in a recipe (`column`)"
        )
    if recipe.column is not None and recipe.column >= len(outputs):
        raise ServerError(
            f"{name}: the recipe has column {recipe.column}, but the server returns {len(outputs)} numbers "
            "per text"
        )
    value = recipe.sign * outputs[recipe.column or 0]
    if text.n_tokens is not None:
        return Reward(value, text.n_tokens, text.truncated)
    # A server does not report truncation: a text of exactly the limit counts as truncated.
    length = answer.n_tokens
    return Reward(value, length, length is not None and length >= connection.limit)


def _may_be_bounded(recipe: Recipe) -> bool:
    """Return whether the recipe allows that all raw rewards lie between 0 and 1."""
    return recipe.scale is not None or scale_of(recipe) == "ratings"


def _refuse(connection: Connection, reason: str | None) -> None:
    asked = connection.asked
    if reason is not None:
        raise ServerError(
            f"{asked.name}: the server at {asked.client.url} does not return raw rewards: {reason}. "
            f"{_REMEDIES[connection.server.kind]}. If these are the model's rewards, state their scale in a "
            "recipe (such as `scale: ratings`)"
        )
