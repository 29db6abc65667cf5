"""Models behind a server of vLLM, SGLang or OpenRLHF, and reward models there as judges.

`find_server` finds out what an address has. When an `EndpointJudge` is first used, it scores a few short texts
of the demo. Their rewards show whether the server returns rewards or probabilities. They are scored again after
each chunk, to notice if the model was replaced.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rmcalib._util.display import clean_line
from rmcalib._util.files import read_object
from rmcalib._util.hub import HubError
from rmcalib.benchmarks import Item, load_benchmark
from rmcalib.judges._causes import canaries
from rmcalib.judges._files import find_files, is_local
from rmcalib.judges._http import Client, ServerError, in_parallel, open_client
from rmcalib.judges._judge import Progress, ScoredItem
from rmcalib.judges._model import allowed_length, load_tokenizer
from rmcalib.judges._registry import ABOUT, scale_of
from rmcalib.judges._scoring import CHUNK
from rmcalib.judges._settings import LoadOptions, ServedSettings
from rmcalib.judges._templates import Prompt, conversation, encode, pooled_position, render
from rmcalib.scores.scale import Scale, as_scale

SCORING_VERSION = 1  # raise it when the same inputs would get other scores
# Templates like Llama 3.2's write today's date into the text. This is their default date, which our own
# scorer uses too.
PINNED_DATE = {"date_string": "26 Jul 2024"}
OTHER = "other"  # a server of which only the chat API is known
_MOVED = 0.1  # largest change of a probe's reward, relative to the largest reward (or 1); rounding is less
_LONGEST_NAME = 300
_SAFE = 2.0  # characters per token of a text that is certainly shorter than the limit
_UNKNOWN_LIMIT = 512  # tokens that a server must read if it does not report its limit
T = TypeVar("T")
Scored = tuple[float, int | None, bool]
"""The reward of a text, its number of tokens if that is known, and whether it was truncated."""
Lengths = list[tuple[int | None, bool]]
Written = tuple[list[dict[str, Any]], Lengths | None]
"""The bodies of requests, and the lengths of their texts, None if the server counts them."""


class Dialect(NamedTuple):
    """How a kind of server gives rewards.

    `texts` is the field of a request with the texts, and `rows` gets the outputs of each text from an answer.
    `start` says how the server is started, and `remedy` what to do if it does not return raw rewards.
    """

    path: str
    texts: str
    rows: Callable[[Any], list[Any]]
    start: str
    remedy: str


DIALECTS = {
    "vllm": Dialect(
        "/classify",
        "input",
        lambda answer: [
            row.get("probs", row.get("data")) for row in sorted(answer["data"], key=lambda row: row["index"])
        ],
        "vllm serve MODEL --runner pooling",
        "Update vLLM, or start it with --pooler-config '{\"use_activation\": false}'",
    ),
    "sglang": Dialect(
        "/classify",
        "input_ids",
        lambda answer: [row["embedding"] for row in answer],
        "python -m sglang.launch_server --model-path MODEL --is-embedding",
        "Serve a model with one label (*ForSequenceClassification) with --is-embedding",
    ),
    "openrlhf": Dialect(
        "/get_reward",
        "query",
        lambda answer: [row if isinstance(row, list) else [row] for row in answer["rewards"]],
        "python -m openrlhf.cli.serve_rm --reward_pretrain MODEL",
        "Serve a model whose output is the reward itself",
    ),
}


@dataclass(frozen=True)
class Server:
    """A server with a model, and what it reports about itself; None for what it does not report.

    `name` and `served_name` are the user's. `model` is its name in requests, `checkpoint` the Hub id or path
    of what is loaded, and `weights` the version of weights that can be replaced while the server runs.
    """

    client: Client
    name: str
    served_name: str | None
    kind: str
    model: str | None = None
    checkpoint: str | None = None
    weights: str | None = None
    version: str | None = None
    max_length: int | None = None

    def identity(self) -> dict[str, Any]:
        """Return what is served. The address is not included, because a server may move."""
        found = {"model": self.model, "checkpoint": self.checkpoint, "weights": self.weights}
        return {"endpoint_kind": self.kind, **{f"served_{key}": value for key, value in found.items()}}

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
        now = find_server(self.client, self.name, self.served_name, self.kind)
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
                "again and run the same command, or start again with --fresh"
            )


@functools.cache
def probes() -> tuple[Item, ...]:
    """Return short texts that show what a server computes: two responses each of four prompts of the demo."""
    items = load_benchmark("demo", limit=4).items
    return tuple(dataclasses.replace(item, responses=item.responses[:2]) for item in items)


def connect(
    client: Client, name: str, served_name: str | None, kind: str = "auto", *, chat: bool = False
) -> Server:
    """Find out what a server has. One that does not run is reported soon: these requests are not repeated."""
    found = find_server(dataclasses.replace(client, attempts=2), name, served_name, kind, chat=chat)
    return dataclasses.replace(found, client=client)


def find_server(
    client: Client, name: str, served_name: str | None = None, kind: str = "auto", *, chat: bool = False
) -> Server:
    """Ask a server what it is (`kind` may be `auto`), and what it reports about the model `name`.

    For a `chat` model, any server will do. The lists of models of unknown servers are not reliable.
    """
    cards = [] if kind in ("openrlhf", OTHER) else _model_cards(client)
    if kind == "auto":
        owners = [str(card.get("owned_by")) for card in cards if str(card.get("owned_by")) in DIALECTS]
        paths = {} if owners or chat else _optional(client, "/openapi.json").get("paths")
        is_openrlhf = isinstance(paths, Mapping) and "/get_reward" in paths
        kind = owners[0] if owners else "openrlhf" if is_openrlhf else OTHER
    if kind == OTHER and not chat:
        known = ", ".join(DIALECTS)
        raise ServerError(f"{client.url}: the kind of server is unknown: give -J endpoint_kind=... ({known})")
    found = Server(client, name, served_name, kind)
    if kind in ("openrlhf", OTHER):
        return dataclasses.replace(found, model=served_name or name if chat else None)
    card = _card_of(client, cards, served_name or name)
    length = card.get("max_model_len")
    info: Mapping[str, Any] = {}
    if kind == "sglang":
        info = _optional(client, "/get_model_info", "/model_info")
        about = _optional(client, "/get_server_info", "/server_info")
    else:
        about = _optional(client, "/version")
    return dataclasses.replace(
        found,
        model=printable(card.get("id")),
        checkpoint=printable(info.get("model_path")) or printable(card.get("root")),
        weights=printable(info.get("weight_version")),
        version=printable(about.get("version")),
        max_length=length if type(length) is int and length > 0 else None,
    )


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
        "server's name for it with -J served_name=..."
    )


def _optional(client: Client, *paths: str) -> Mapping[str, Any]:
    """Return the answer of the first path that the server knows; empty if it knows none."""
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


class Route(NamedTuple):
    """Where a server returns raw rewards, with what parameters, and the rewards of the probes."""

    path: str
    raw: dict[str, bool]
    probes: tuple[float, ...] = ()


class Writer(NamedTuple):
    """The tokenizer that writes the texts; None if the server writes them. `pad` is the padding token."""

    tokenizer: Any = None
    source: str = "server"
    pad: int | None = None


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
        self.recipe = settings.recipe_for(name)
        self.checks = True
        """Whether a server that gives no raw rewards, cuts texts, or has changed is refused."""

    @property
    def scale(self) -> Scale | str:
        """The scale of the rewards, from the recipe."""
        return scale_of(self.recipe)

    @cached_property
    def server(self) -> Server:
        """The server and its model."""
        return connect(self.client, self.name, self.settings.served_name, self.settings.endpoint_kind)

    @cached_property
    def writer(self) -> Writer:
        """Who writes the texts: vLLM itself, or a tokenizer that is loaded here."""
        recipe, kind, settings = self.recipe, self.server.kind, self.settings
        plain = recipe.template is None and recipe.append_token_id is None
        if kind == "vllm" and plain and not settings.tokenize_here:
            return Writer()
        if kind == "openrlhf" and recipe.append_token_id is not None:
            raise ValueError(
                f"{self.name}: OpenRLHF's server cannot append a token to texts (append_token_id)"
            )
        try:
            files = find_files(self.name, self._options, small_files_only=True)
            pad = read_object(files.weights / "config.json").get("pad_token_id")
            source = files.sources.get("tokenizer") or f"{self.name}@{files.commit}"
            return Writer(load_tokenizer(files), source, pad if isinstance(pad, int) else None)
        except HubError as error:
            raise HubError(f"{self.name}: its tokenizer is needed here to write texts: {error}") from error

    @property
    def _options(self) -> LoadOptions:
        """How the tokenizer is found."""
        settings = self.settings
        return LoadOptions(
            recipe=self.recipe, revision=settings.revision, trust_remote_code=settings.trust_remote_code
        )

    @cached_property
    def limit(self) -> int:
        """The longest text in tokens."""
        wanted, limits = self.settings.max_length, (self.server.max_length, self.recipe.max_length)
        if wanted is not None and self.server.kind == "openrlhf":
            raise ValueError("max_length: OpenRLHF's server has its own limit: start it with --max_len")
        limit = min((each for each in limits if each is not None), default=None)
        return allowed_length(wanted, limit, f"the server or {self.name}")

    @cached_property
    def route(self) -> Route:
        """How the server returns raw rewards; a `ServerError` if it does not."""
        kind = self.server.kind
        route = Route(DIALECTS[kind].path, {"use_activation": False} if kind == "vllm" else {})
        try:
            rewards = self._probe(route)
        except ServerError as error:
            if kind != "vllm" or error.status not in (400, 404, 405, 501):
                raise
            route = route._replace(path="/pooling")  # vLLM does not serve this model as a classifier
            rewards = self._probe(route)
        if kind == "vllm":
            squashed = self._probe(route._replace(raw={"use_activation": True}))
            # If the parameter changes the numbers, the server supports it, and these are rewards.
            if not np.allclose(rewards, squashed, rtol=1e-4, atol=1e-6):
                self._check_texts(route)
                return route._replace(probes=rewards)
        reason = why_squashed(
            rewards, bounded_is_fine=self.recipe.scale is not None or as_scale(self.scale).kind == "rating"
        )
        if reason is not None and self.checks:
            raise ServerError(
                f"{self.name}: the server at {self.client.url} does not return raw rewards: {reason}. "
                f"{DIALECTS[kind].remedy}. If these are the model's rewards, state their scale in a recipe "
                "(such as `scale: rating`)"
            )
        self._check_texts(route)
        return route._replace(probes=rewards)

    def identity(self) -> dict[str, Any]:
        """Return everything that changes a reward; this asks the server what it serves."""
        recipe = self.recipe
        return {
            "kind": "endpoint",
            **self.server.identity(),
            "endpoint_path": self.route.path,
            "texts_by": self.writer.source,
            "recipe": {
                key: getattr(recipe, key) for key in ("template", "append_token_id", "column", "sign")
            },
            "max_length": self.limit,
            "scoring_version": SCORING_VERSION,
        }

    def about(self) -> dict[str, Any]:
        """Return the server's address and version, and a description of the model."""
        return {
            **self.server.about(),
            "about_model": {name: getattr(self.recipe, name) for name in ABOUT[2:]},
        }

    def score(self, items: Sequence[Item], *, progress: Progress | None = None) -> Iterator[list[ScoredItem]]:
        """Score prompts in chunks of 32. After each chunk, check that the server still has the same model."""
        results = self._rewards(items, self.route)
        for start in range(0, len(items), CHUNK):
            chunk = []
            for item in items[start : start + CHUNK]:
                rewards, lengths, truncated = zip(*next(results), strict=True)
                known = () if None in lengths else lengths
                chunk.append(ScoredItem(item.id, rewards, known, truncated))
                if progress is not None:
                    progress(len(rewards), sum(known))
            if self.checks:
                self._check_same()
            yield chunk

    def tokens(self, prompt: Prompt, response: str) -> list[int]:
        """Return the token ids that vLLM makes of a response with its prompt."""
        body: dict[str, Any] = {"model": self.server.model, "messages": conversation(prompt, response)}
        body |= {"add_generation_prompt": False, "chat_template_kwargs": PINNED_DATE}
        return self.server.ask(
            "/tokenize", body, lambda answer: [int(one) for one in answer["tokens"]], "vLLM"
        )

    def score_texts(self, texts: Sequence[str | Sequence[int]]) -> list[float]:
        """Score whole texts, or token ids, as they are: no chat template is applied."""
        kind, cut = self.server.kind, {"truncate_prompt_tokens": self.limit}
        fields = {"vllm": "input", "sglang": "text", "openrlhf": "query"}

        def call(text: str | Sequence[int]) -> float:
            if not isinstance(text, str) and kind == "openrlhf":
                raise ValueError(f"{self.name}: OpenRLHF's server takes texts, not token ids")
            field = fields[kind] if isinstance(text, str) else DIALECTS[kind].texts
            sent = text if isinstance(text, str) else list(text)
            body = {field: [sent], **(cut if kind == "vllm" else {})}
            return self._ask(body, [(None, False)], self.route)[0][0]

        return list(in_parallel(call, texts, workers=self.settings.concurrency))

    def _rewards(self, items: Sequence[Item], route: Route) -> Iterator[list[Scored]]:
        """Yield the rewards of each prompt's responses, with lengths and whether texts were truncated."""

        def call(task: tuple[str, Written]) -> list[Scored]:
            prompt, (bodies, lengths) = task
            try:
                return [one for body in bodies for one in self._ask(body, lengths, route)]
            except ServerError as error:
                message = f"{self.name}: prompt {prompt!r}: {error}"
                raise ServerError(message, error.status, temporary=error.temporary) from error

        # Texts are written here, because tokenizers are not meant for several threads.
        tasks = ((item.id, self._written(item)) for item in items)
        return in_parallel(call, tasks, workers=self.settings.concurrency)

    def _ask(self, body: Mapping[str, Any], lengths: Lengths | None, route: Route) -> list[Scored]:
        """Return the rewards of the texts in one request."""
        dialect = DIALECTS[self.server.kind]

        def parse(answer: Any) -> list[Scored]:
            rewards = [self._reward(row) for row in dialect.rows(answer)]
            known = lengths
            if known is None:
                # A server does not report truncation: a text of exactly the limit counts as truncated.
                length = int(answer["usage"]["prompt_tokens"])
                if not 0 < length < 2**31:
                    raise ValueError("an impossible number of tokens")
                known = [(length, length >= self.limit)]
            return [(reward, *length) for reward, length in zip(rewards, known, strict=True)]

        return self.server.ask(
            route.path, {"model": self.server.model, **route.raw, **body}, parse, dialect.start
        )

    def _reward(self, row: Any) -> float:
        while isinstance(row[-1], list):  # a list per token: take that of the last token
            row = row[-1]
        column = self.recipe.column
        if not 0 <= (column or 0) < len(row) or (column is None and len(row) != 1):
            raise ValueError(
                f"{len(row)} numbers per text, not one reward: serve a classifier with one label, or choose one "
                f"of them in a recipe (`column`, which is column {column} now)"
            )
        return self.recipe.sign * float(row[column or 0])

    def _written(self, item: Item) -> Written:
        """Return what is sent for a prompt, with the lengths of its texts if they are known here."""
        recipe, (tokenizer, _, pad) = self.recipe, self.writer
        if tokenizer is None:  # vLLM takes one conversation at a time
            options: dict[str, Any] = {
                "add_generation_prompt": False,
                "chat_template_kwargs": PINNED_DATE,
                "truncate_prompt_tokens": self.limit,
            }
            return [{"messages": conversation(item.prompt, one), **options} for one in item.responses], None
        field = DIALECTS[self.server.kind].texts
        if self.server.kind == "openrlhf":
            texts = [render(item.prompt, each, tokenizer, recipe.template) for each in item.responses]
            # The server's tokenizer adds no special tokens (add_special_tokens=False), so texts carry theirs.
            bos = getattr(tokenizer, "bos_token", None) or ""
            if bos and tokenizer(texts[0])["input_ids"][:1] == [tokenizer.bos_token_id]:
                texts = [text if text.startswith(bos) else bos + text for text in texts]
            return [{field: texts}], [(None, False)] * len(texts)
        (encoded,) = encode(
            [item], tokenizer, max_length=self.limit, template=recipe.template, append=recipe.append_token_id
        )
        # Servers take the state of the last token, so a text ends at the pooled one.
        ends = [pooled_position(text.input_ids, pooling=recipe.pooling, pad=pad) + 1 for text in encoded]
        ids = [list(text.input_ids[:end]) for text, end in zip(encoded, ends, strict=True)]
        return [{field: ids}], [(len(text), text.truncated) for text in encoded]

    def _probe(self, route: Route, n_prompts: int = 4) -> tuple[float, ...]:
        results = self._rewards(probes()[:n_prompts], route)
        return tuple(reward for result in results for reward, _, _ in result)

    def _check_texts(self, route: Route) -> None:
        """Raise a `ServerError` if the server cuts long texts; warn if it counts other tokens than the tokenizer.

        If a text has another reward with another beginning, but not with another end, the server cuts.
        """
        if not self.checks:
            return
        known = self.limit if self.server.max_length is not None else min(self.limit, _UNKNOWN_LIMIT)
        items = (canaries(known)[-1], *canaries()[-2:])
        characters = int(known * _SAFE)
        while True:
            text = items[0].responses[0][:characters]
            ends = (f"{text} The answer is four.", f"{text} I do not care, go away!")
            long = dataclasses.replace(items[0], responses=(*ends, f"Nobody knows! {ends[0]}"))
            first, second, begun = next(self._rewards([long], route))
            if not first[2] or characters < _SAFE:  # within the limit, not cut there as it should be
                break
            characters //= 2
        others = list(self._rewards(items[1:], route))
        same = 1e-6 * max(1.0, abs(first[0]))
        if abs(first[0] - second[0]) <= same < abs(first[0] - begun[0]):
            counted = f" (it counts {first[1]} tokens)" if self.writer.tokenizer is None else ""
            raise ServerError(
                f"{self.name}: the server at {self.client.url} cuts long texts{counted}: two of {len(ends[0]):,} "
                f"characters that differ at their end have the same reward, and its limit is {known:,} tokens. "
                f"Start it without a shorter limit: {DIALECTS[self.server.kind].start}"
            )
        tokenizer = None if self.writer.tokenizer is not None else self._tokenizer_at_hand()
        if tokenizer is None:
            return
        here = encode((long, *items[1:]), tokenizer, max_length=self.limit, template=self.recipe.template)
        counts = [one[1] for rows in ((first, second, begun), *others) for one in rows]
        own = [len(text) for texts in here for text in texts]
        if counts != own:
            place = next(n for n, pair in enumerate(zip(counts, own, strict=True)) if pair[0] != pair[1])
            warnings.warn(
                f"{self.name}: the server at {self.client.url} counts {counts[place]} tokens where the model's "
                f"tokenizer counts {own[place]}: it reads other texts. `rmcalib doctor --model {self.name} "
                "--endpoint URL` says more; -J tokenize_here=yes sends tokens",
                stacklevel=2,
            )

    def _tokenizer_at_hand(self) -> Any:
        """Return the model's tokenizer if it is on this machine; None otherwise."""
        from huggingface_hub import try_to_load_from_cache

        try:
            if is_local(self.name) or isinstance(
                try_to_load_from_cache(self.name, "tokenizer_config.json"), str
            ):
                return load_tokenizer(find_files(self.name, self._options, small_files_only=True))
        except ValueError:  # a name that is no Hub id, or a folder without a tokenizer
            pass
        return None

    def _check_same(self) -> None:
        """Raise a `ServerError` if the server's model was replaced since the judge was first used."""
        before = self.route.probes
        rewards = self._probe(self.route, 2)
        moved = max(abs(a - b) for a, b in zip(rewards, before, strict=False))
        far = moved > _MOVED * max(1.0, *map(abs, before))
        self.server.check_same(f"the rewards of the same texts have changed by {moved:.3g}" if far else "")


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
