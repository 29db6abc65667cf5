"""A reward model behind an HTTP server, as a judge.

When the judge is first used, it finds out what the server is, and scores a few short texts (probes). Their
rewards show whether the server returns rewards or probabilities. They are scored again after each chunk, to
notice if the model was replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.files import read_object
from rmcalib._util.hub import HubError
from rmcalib.benchmarks import Item
from rmcalib.judges._files import locate
from rmcalib.judges._http import ServerError, in_parallel, open_client
from rmcalib.judges._judge import Progress, Scale, ScoredItem
from rmcalib.judges._model import LONGEST_DEFAULT, Asked, load_tokenizer
from rmcalib.judges._registry import Recipe, about_model, scale_of
from rmcalib.judges._scoring import CHUNK
from rmcalib.judges._servers import Answer, Server, Text, ask, changes_since, find_server, quick, replaced
from rmcalib.judges._settings import LoadOptions, ServedSettings
from rmcalib.judges._templates import conversation, encode, pooled_position, render

if TYPE_CHECKING:
    from rmcalib.judges._http import Client

SCORING_VERSION = 1  # raise it when the same inputs would get other scores
PROBES = tuple(
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
_MOVED = 0.1  # largest change of a probe's reward, relative to the largest reward (or 1); rounding is less
_RAW = ({"use_activation": False}, {"activation": False})  # asks vLLM for rewards; the older name is last
_REMEDIES = {
    "vllm": "Update vLLM, or start it with --pooler-config '{\"use_activation\": false}'",
    "sglang": "Serve a model with one label (*ForSequenceClassification) with --is-embedding",
    "openrlhf": "Serve a model whose output is the reward itself",
}


@dataclass(frozen=True)
class Reward:
    """The reward of one text, its number of tokens (None if unknown), and whether it was truncated."""

    value: float
    n_tokens: int | None
    truncated: bool


@dataclass(frozen=True)
class Connection:
    """A server and its model. `tokenizer` is None if the server writes the texts (`written_by`).

    `pad` is the padding token of the checkpoint, if it is known.
    """

    name: str
    recipe: Recipe
    client: Client
    server: Server
    limit: int
    concurrency: int
    tokenizer: Any = None
    written_by: str = "server"
    pad: int | None = None
    probes: tuple[float, ...] = ()

    def rewards(self, items: Iterable[Item]) -> Iterator[list[Reward]]:
        """Score all responses of all prompts, with many requests at a time; yield those of each request."""

        def call(task: tuple[str, Sequence[Text]]) -> list[Reward]:
            try:
                answers = ask(self.client, self.server, task[1], self.limit)
            except ServerError as error:
                raise ServerError(f"{self.name}: prompt {task[0]!r}: {error}", error.status) from error
            return [self._reward(text, answer) for text, answer in zip(task[1], answers, strict=True)]

        yield from in_parallel(call, self._tasks(items), workers=self.concurrency)

    def probe(self, probes: Sequence[Item] = PROBES) -> tuple[float, ...]:
        """Return the rewards of the probes."""
        return tuple(reward.value for group in self.rewards(probes) for reward in group)

    def with_raw(self, raw: dict[str, bool]) -> Connection:
        """Return the connection with other parameters in its requests."""
        return dataclasses.replace(self, server=dataclasses.replace(self.server, raw=raw))

    def _tasks(self, items: Iterable[Item]) -> Iterator[tuple[str, Sequence[Text]]]:
        """Yield the texts of each request, with their prompt's id: all responses of a prompt, or one."""
        for item in items:
            texts = self._texts(item)
            if texts and texts[0].messages:
                yield from ((item.id, [text]) for text in texts)
            elif texts:
                yield item.id, texts

    def _texts(self, item: Item) -> list[Text]:
        """Return one text per response: chat messages, strings for OpenRLHF, or token ids."""
        recipe, tokenizer = self.recipe, self.tokenizer
        if tokenizer is None:
            return [Text(messages=tuple(conversation(item.prompt, response))) for response in item.responses]
        if self.server.kind == "openrlhf":
            strings = [render(item.prompt, each, tokenizer, recipe.template) for each in item.responses]
            bos = (
                getattr(tokenizer, "bos_token", None) or ""
            )  # remove it if the server's tokenizer adds one itself
            twice = bos and tokenizer(strings[0])["input_ids"][:2] == [tokenizer.bos_token_id] * 2
            return [Text(string=string.removeprefix(bos) if twice else string) for string in strings]
        encoded = encode(
            [item], tokenizer, max_length=self.limit, template=recipe.template, append=recipe.append_token_id
        )
        return [
            Text(ids=self._read(text.input_ids), n_tokens=len(text), truncated=text.truncated)
            for text in encoded[0]
        ]

    def _read(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Return a text up to the token whose state gives the reward: servers take that of the last token."""
        return ids[: pooled_position(ids, pooling=self.recipe.pooling, pad=self.pad) + 1]

    def _reward(self, text: Text, answer: Answer) -> Reward:
        column, outputs = self.recipe.column, answer.outputs
        if column is None and len(outputs) != 1:
            raise ServerError(
                f"{self.name}: the server returns {len(outputs)} numbers per text, not one reward: serve a "
                "classifier with one label, or choose one of them in a recipe (`column`)"
            )
        if column is not None and column >= len(outputs):
            raise ServerError(
                f"{self.name}: the recipe has column {column}, but the server returns {len(outputs)} numbers "
                "per text"
            )
        value = self.recipe.sign * outputs[column or 0]
        if text.n_tokens is not None:
            return Reward(value, text.n_tokens, text.truncated)
        # A server does not report truncation: a text of exactly the limit counts as truncated.
        length = answer.n_tokens
        return Reward(value, length, length is not None and length >= self.limit)


class EndpointJudge:
    """A reward model that is served by vLLM, SGLang or OpenRLHF.

    The server is asked when the judge is first used. Until then the judge can be sent to another process. The
    key is read from the environment for each request, and is not part of the judge.

    Parameters
    ----------
    name : str
        Hub id or folder of the model. Reports use it, and the recipe and tokenizer are found by it.
    settings : ServedSettings
        The server's address, and how to use it.

    Examples
    --------
    >>> EndpointJudge("org/name", ServedSettings(endpoint="http://localhost:8000/v1")).name
    'org/name'
    """

    def __init__(self, name: str, settings: ServedSettings) -> None:
        """Check the settings; the server is not asked yet."""
        if settings.endpoint is None:
            raise ValueError(f"endpoint: {name} needs the address of its server, as http://localhost:8000")
        self.name, self.settings = name, settings
        self.client = open_client(settings.endpoint, settings.api_key_env, settings.timeout)
        known = LoadOptions(recipe=settings.recipe, recipes=settings.recipes).recipe_for(name)
        self.recipe = dataclasses.replace(known, model=name)
        self._connected: Connection | None = None

    @property
    def scale(self) -> Scale:
        """The scale of the rewards, from the recipe."""
        return scale_of(self.recipe)

    @property
    def connection(self) -> Connection:
        """The connection to the server. The first access makes it."""
        if self._connected is None:
            self._connected = self._connect()
        return self._connected

    def identity(self) -> dict[str, Any]:
        """Return everything that changes a reward; this asks the server what it serves.

        The address is not included, because a server may move while a run is interrupted.
        """
        connection, recipe = self.connection, self.recipe
        server = connection.server
        return {
            "kind": "endpoint",
            "endpoint_kind": server.kind,
            "endpoint_path": server.path,
            "served_model": server.model,
            "served_checkpoint": server.checkpoint,
            "served_weights": server.weights,
            "texts_by": connection.written_by,
            "recipe": {
                key: getattr(recipe, key) for key in ("template", "append_token_id", "column", "sign")
            },
            "max_length": connection.limit,
            "scoring_version": SCORING_VERSION,
        }

    def about(self) -> dict[str, Any]:
        """Return the server's address and version, and a description of the model."""
        return {
            "endpoint": self.client.url,
            "server_version": self.connection.server.version,
            "about_model": about_model(self.recipe),
        }

    def score(self, items: Sequence[Item], *, progress: Progress | None = None) -> Iterator[list[ScoredItem]]:
        """Score prompts in chunks of 32. After each chunk, check that the server still has the same model."""
        groups = self.connection.rewards(items)
        for start in range(0, len(items), CHUNK):
            chunk = []
            for item in items[start : start + CHUNK]:
                rewards: list[Reward] = []
                while len(rewards) < len(item.responses):
                    group = next(groups)
                    rewards += group
                    if progress is not None:
                        progress(len(group), sum(reward.n_tokens or 0 for reward in group))
                chunk.append(_scored(item, rewards))
            self._check_same()
            yield chunk

    def _connect(self) -> Connection:
        """Check a server, and find out how it returns raw rewards; raise a `ServerError` if it does not."""
        settings, recipe = self.settings, self.recipe
        if recipe.status == "unsupported":
            raise HubError(f"{self.name}: not supported: {recipe.reason}")
        server = find_server(quick(self.client), settings.endpoint_kind, self.name, settings.served_name)
        limit = self._limit(server)
        found = Connection(self.name, recipe, self.client, server, limit, settings.concurrency)
        plain = recipe.template is None and recipe.append_token_id is None
        if server.kind != "vllm" or settings.tokenize_here or not plain:
            tokenizer, source = _local_tokenizer(server.kind, recipe, settings)
            pad = _checkpoint_pad(self.name, settings)
            found = dataclasses.replace(found, tokenizer=tokenizer, written_by=source, pad=pad)
        if server.kind == "vllm":
            return self._raw_vllm(found)
        return self._checked(dataclasses.replace(found, probes=found.probe()))

    def _limit(self, server: Server) -> int:
        wanted, own = self.settings.max_length, server.max_length
        if wanted is None:
            return min(own or LONGEST_DEFAULT, self.recipe.max_length or LONGEST_DEFAULT, LONGEST_DEFAULT)
        if server.kind == "openrlhf":
            raise ValueError("max_length: OpenRLHF's server has its own limit: start it with --max_len")
        if own is not None and wanted > own:
            raise ValueError(f"max_length: {wanted} is more than the {own} tokens that the server can read")
        return wanted

    def _raw_vllm(self, connection: Connection) -> Connection:
        """Find the path and the parameter with which vLLM returns raw rewards."""
        try:
            connection.probe(PROBES[:1])
        except ServerError as error:
            if error.status not in (400, 404, 405, 501):
                raise
            # vLLM does not serve this reward model as a classifier
            other = dataclasses.replace(connection.server, path="/pooling")
            connection = dataclasses.replace(connection, server=other)
            try:
                connection.probe(PROBES[:1])
            except ServerError:
                raise error from None
        for raw in _RAW:
            rewards = connection.with_raw(raw).probe()
            squashed = connection.with_raw(dict.fromkeys(raw, True)).probe()
            # If the parameter changes the numbers, the server supports it, and these are rewards.
            if not np.allclose(rewards, squashed, rtol=1e-4, atol=1e-6):
                return dataclasses.replace(connection.with_raw(raw), probes=rewards)
        return self._checked(dataclasses.replace(connection.with_raw(_RAW[0]), probes=rewards))

    def _checked(self, connection: Connection) -> Connection:
        """Return a connection whose probes can be raw rewards; raise a `ServerError` otherwise."""
        may_be_bounded = self.recipe.scale is not None or scale_of(self.recipe) == "ratings"
        reason = why_squashed(connection.probes, bounded_is_fine=may_be_bounded)
        if reason is not None:
            raise ServerError(
                f"{self.name}: the server at {self.client.url} does not return raw rewards: {reason}. "
                f"{_REMEDIES[connection.server.kind]}. If these are the model's rewards, state their scale "
                "in a recipe (such as `scale: ratings`)"
            )
        return connection

    def _check_same(self) -> None:
        """Raise a `ServerError` if the server's model was replaced since the connection was made."""
        connection = self.connection
        changes = changes_since(self.client, connection.server, self.name, self.settings.served_name)
        rewards = connection.probe(PROBES[:2])
        moved = max(abs(a - b) for a, b in zip(rewards, connection.probes, strict=False))
        if moved > _MOVED * max(1.0, *map(abs, connection.probes)):
            changes.append(f"the rewards of the same texts have changed by {moved:.3g}")
        if changes:
            raise replaced(self.name, self.client.url, changes)


def why_squashed(rewards: Sequence[float], *, bounded_is_fine: bool = False) -> str | None:
    """Return why some rewards of different texts cannot be raw; None if they can be.

    Servers of classifiers often return a sigmoid or a softmax of the reward, or an embedding of length one.

    >>> why_squashed([1.0, 1.0, 1.0])
    'every reward is 1: the softmax of a single number'
    >>> why_squashed([1.0, -1.0, 1.0])
    'every reward is 1 or -1: an embedding that was scaled to length one'
    >>> why_squashed([0.2, 0.9, 0.4, 0.8, 0.1, 0.7, 0.6, 0.5])
    'all 8 rewards lie between 0 and 1, as after a sigmoid'
    >>> why_squashed([0.2, 0.9, 0.4, 0.8, 0.1, 0.7, 0.6, -3.0]) is None
    True
    """
    values = np.asarray(rewards, dtype=np.float64)
    if np.allclose(values, 1.0, rtol=0, atol=1e-6):
        return "every reward is 1: the softmax of a single number"
    if np.allclose(np.abs(values), 1.0, rtol=0, atol=1e-6):
        return "every reward is 1 or -1: an embedding that was scaled to length one"
    if np.ptp(values) == 0:
        return f"different texts all have the reward {values[0]:g}"
    if not bounded_is_fine and values.min() >= 0 and values.max() <= 1:
        return f"all {len(values)} rewards lie between 0 and 1, as after a sigmoid"
    return None


def _checkpoint_pad(name: str, settings: ServedSettings) -> int | None:
    """Return the padding token of a model's configuration; None if it has none or is not known here."""
    try:
        folder, _ = locate(name, LoadOptions(revision=settings.revision), small_files_only=True)
    except HubError:
        return None
    pad = read_object(folder / "config.json").get("pad_token_id")
    return pad if isinstance(pad, int) else None


def _local_tokenizer(kind: str, recipe: Recipe, settings: ServedSettings) -> tuple[Any, str]:
    """Load the tokenizer that writes the texts here; also return its name and commit."""
    source = recipe.tokenizer or recipe.model
    revision = settings.revision if recipe.tokenizer is None else None
    options = LoadOptions(revision=revision, trust_remote_code=settings.trust_remote_code)
    if kind == "openrlhf" and recipe.append_token_id is not None:
        raise ValueError(
            f"{recipe.model}: its recipe appends a token to every text (append_token_id), which OpenRLHF's "
            "server does not support: serve the model with vLLM or SGLang"
        )
    try:
        folder, commit = locate(source, options, small_files_only=True)
        asked = Asked(recipe.model, recipe, options)
        return load_tokenizer(asked, folder), f"{source}@{commit}"
    except HubError as error:
        raise HubError(
            f"{recipe.model}: its tokenizer is needed here to write the texts for {kind}: {error}"
        ) from error


def _scored(item: Item, rewards: Sequence[Reward]) -> ScoredItem:
    lengths = tuple(reward.n_tokens for reward in rewards if reward.n_tokens is not None)
    return ScoredItem(
        item.id,
        tuple(reward.value for reward in rewards),
        lengths if len(lengths) == len(rewards) else (),
        tuple(reward.truncated for reward in rewards),
    )
