"""Reward models behind a server as judges; `apis` has what each kind of server is sent and answers.

When an `EndpointJudge` is first used, it scores a few short texts of the demo. Their rewards show whether the server
returns rewards or probabilities. They are scored again after each chunk, to notice if the model was replaced.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from rmcalib._util.files import read_object
from rmcalib._util.hub import HubError
from rmcalib.benchmarks import Item, load_benchmark
from rmcalib.judges._causes import canaries
from rmcalib.judges._files import find_files, is_local
from rmcalib.judges._http import ServerError, in_parallel, open_client
from rmcalib.judges._judge import Progress, ScoredItem
from rmcalib.judges._model import allowed_length, load_tokenizer
from rmcalib.judges._registry import ABOUT, scale_of
from rmcalib.judges._scoring import CHUNK
from rmcalib.judges._server import Server, connect
from rmcalib.judges._settings import LoadOptions, ServedSettings
from rmcalib.judges._templates import Prompt, conversation, encode, pooled_position, render
from rmcalib.scores.scale import Scale, as_scale

SCORING_VERSION = 1  # raise it when the same inputs would get other scores
_MOVED = 0.1  # largest change of a probe's reward, relative to the largest reward (or 1); rounding is less
_SAFE = 2.0  # characters per token of a text that is certainly shorter than the limit
_MOST_CUT = 0.75  # of a text's tokens: with fewer, the server cuts; other templates differ by less
_NOT_SERVED = (400, 404, 405, 501)  # statuses of a path at which a server does not serve this model
_SERVED_ATTEMPTS = 3  # of a request, in front of a queue that is tried again as a whole
_UNKNOWN_LIMIT = 512  # tokens that a server must read if it does not report its limit
Scored = tuple[float, int | None, bool]
"""The reward of a text, its number of tokens if that is known, and whether it was truncated."""
Lengths = list[tuple[int | None, bool]]
Written = tuple[list[dict[str, Any]], Lengths | None]
"""The bodies of requests, and the lengths of their texts, None if the server counts them."""


@functools.cache
def probes() -> tuple[Item, ...]:
    """Return short texts that show what a server computes: two responses each of four prompts of the demo."""
    items = load_benchmark("demo", limit=4).items
    return tuple(dataclasses.replace(item, responses=item.responses[:2]) for item in items)


class Route(NamedTuple):
    """Where a server returns raw rewards, with what parameters, and the rewards of the probes."""

    path: str
    raw: Mapping[str, bool]
    probes: tuple[float, ...] = ()


class Writer(NamedTuple):
    """The tokenizer that writes the texts; None if the server does. `pad` is the padding token."""

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
        recipe, api, settings = self.recipe, self.server.api, self.settings
        plain = recipe.template is None and recipe.append_token_id is None
        if api.reads == "messages" and plain and not settings.tokenize_here:
            return Writer()
        if api.reads == "texts" and recipe.append_token_id is not None:
            raise ValueError(
                f"{self.name}: {api.title}'s server cannot append a token to texts (append_token_id)"
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
        api = self.server.api
        if wanted is not None and api.limit:
            raise ValueError(f"max_length: {api.title}'s server has its own: start it with {api.limit}")
        limit = min((each for each in limits if each is not None), default=None)
        return allowed_length(wanted, limit, f"the server or {self.name}")

    @cached_property
    def route(self) -> Route:
        """How the server returns raw rewards; a `ServerError` if it does not."""
        api = self.server.api
        for path in api.paths:
            route = Route(path, api.raw)
            try:
                rewards = self._probe(route)
                break
            except ServerError as error:
                if path == api.paths[-1] or error.status not in _NOT_SERVED:
                    raise
        if api.raw:
            squashed = self._probe(route._replace(raw={name: not value for name, value in api.raw.items()}))
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
                f"{api.remedy}. If these are the model's rewards, state their scale in a recipe "
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
                n_tokens = () if None in lengths else lengths
                chunk.append(ScoredItem(item.id, rewards, n_tokens, truncated))
                if progress is not None:
                    progress(len(rewards), sum(n_tokens))
            if self.checks:
                self._check_same()
            yield chunk

    def tokens(self, prompt: Prompt, response: str) -> list[int]:
        """Return the token ids that the server makes of a response with its prompt."""
        api = self.server.api
        (body,) = api.write([conversation(prompt, response)], self.limit)
        return self.server.ask(
            api.tokens,
            {"model": self.server.model, **body},
            lambda answer: [int(token) for token in answer["tokens"]],
            api.start,
        )

    def score_texts(self, texts: Sequence[str | Sequence[int]]) -> list[float]:
        """Score whole texts, or token ids, as they are: no chat template is applied."""
        api = self.server.api

        def call(text: str | Sequence[int]) -> float:
            (body,) = api.write([text if isinstance(text, str) else list(text)], self.limit)
            return self._ask(body, [(None, False)], self.route)[0][0]

        return list(in_parallel(call, texts, workers=self.settings.concurrency))

    def serve(self, hold: float) -> None:
        """Leave checks and most retries to `rmcalib serve`, which holds a request for `hold` seconds."""
        self.checks = False
        client = self.server.client
        client = dataclasses.replace(client, attempts=_SERVED_ATTEMPTS, timeout=min(client.timeout, hold))
        self.server = dataclasses.replace(self.server, client=client)

    def _rewards(self, items: Sequence[Item], route: Route) -> Iterator[list[Scored]]:
        """Yield the rewards of each prompt's responses, with lengths and whether texts were truncated."""

        def call(task: tuple[str, Written]) -> list[Scored]:
            prompt, (bodies, lengths) = task
            try:
                return [scored for body in bodies for scored in self._ask(body, lengths, route)]
            except ServerError as error:
                message = f"{self.name}: prompt {prompt!r}: {error}"
                raise ServerError(message, error.status, temporary=error.temporary) from error

        # Texts are written here, because tokenizers are not meant for several threads.
        tasks = ((item.id, self._written(item)) for item in items)
        return in_parallel(call, tasks, workers=self.settings.concurrency)

    def _ask(self, body: Mapping[str, Any], lengths: Lengths | None, route: Route) -> list[Scored]:
        """Return the rewards of the texts in one request."""
        api = self.server.api

        def parse(answer: Any) -> list[Scored]:
            rewards = [self._reward(row) for row in api.rows(answer)]
            counted = lengths
            if counted is None:
                # A server does not report truncation: a text of exactly the limit counts as truncated.
                length = int(answer["usage"]["prompt_tokens"])
                if not 0 < length < 2**31:
                    raise ValueError("an impossible number of tokens")
                counted = [(length, length >= self.limit)]
            return [(reward, *length) for reward, length in zip(rewards, counted, strict=True)]

        return self.server.ask(
            route.path, {"model": self.server.model, **route.raw, **body}, parse, api.start
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
        recipe, (tokenizer, _, pad), api = self.recipe, self.writer, self.server.api
        if tokenizer is None:
            texts: list[Any] = [conversation(item.prompt, response) for response in item.responses]
            return api.write(texts, self.limit), None if api.tokens else [(None, False)] * len(texts)
        if api.reads == "texts":
            texts = [render(item.prompt, each, tokenizer, recipe.template) for each in item.responses]
            # The server's tokenizer adds no special tokens (add_special_tokens=False), so texts carry theirs.
            bos = getattr(tokenizer, "bos_token", None) or ""
            if bos and tokenizer(texts[0])["input_ids"][:1] == [tokenizer.bos_token_id]:
                texts = [text if text.startswith(bos) else bos + text for text in texts]
            return api.write(texts, self.limit), [(None, False)] * len(texts)
        (encoded,) = encode(
            [item], tokenizer, max_length=self.limit, template=recipe.template, append=recipe.append_token_id
        )
        # Servers take the state of the last token, so a text ends at the pooled one.
        ends = [pooled_position(text.input_ids, pooling=recipe.pooling, pad=pad) + 1 for text in encoded]
        texts = [list(text.input_ids[:end]) for text, end in zip(encoded, ends, strict=True)]
        return api.write(texts, self.limit), [(len(text), text.truncated) for text in encoded]

    def _probe(self, route: Route, n_prompts: int = 4) -> tuple[float, ...]:
        results = self._rewards(probes()[:n_prompts], route)
        return tuple(reward for result in results for reward, _, _ in result)

    def _check_texts(self, route: Route) -> None:
        """Raise a `ServerError` if the server cuts long texts; warn if it counts other tokens than the tokenizer.

        If a text has another reward with another beginning, but not with another end, the server cuts.
        """
        if not self.checks:
            return
        limit = self.limit if self.server.max_length is not None else min(self.limit, _UNKNOWN_LIMIT)
        items = (canaries(limit)[-1], *canaries()[-2:])
        characters = int(limit * _SAFE)
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
                f"characters that differ at their end have the same reward, and its limit is {limit:,} tokens. "
                f"Start it without a shorter limit: {self.server.api.start}"
            )
        tokenizer = self.tokenizer
        if tokenizer is None or self.writer.tokenizer is not None:
            return
        here = encode((long, *items[1:]), tokenizer, max_length=self.limit, template=self.recipe.template)
        counts = [scored[1] for rows in ((first, second, begun), *others) for scored in rows]
        expected = [len(text) for texts in here for text in texts]
        if counts != expected:
            place = next(n for n, pair in enumerate(zip(counts, expected, strict=True)) if pair[0] != pair[1])
            if (counts[place] or 0) < _MOST_CUT * expected[place]:
                raise ServerError(
                    f"{self.name}: the server at {self.client.url} reads {counts[place]} of {expected[place]} "
                    f"tokens of a text. Start it without a shorter limit: {self.server.api.start}"
                )
            warnings.warn(
                f"{self.name}: the server at {self.client.url} counts {counts[place]} tokens where the model's "
                f"tokenizer counts {expected[place]}: it reads other texts. `rmcalib doctor --model {self.name} "
                "--endpoint URL` says more; tokenize_here=True sends tokens",
                stacklevel=2,
            )

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer if it is on this machine; None otherwise."""
        from huggingface_hub import try_to_load_from_cache

        if self.writer.tokenizer is not None:
            return self.writer.tokenizer
        try:
            if is_local(self.name) or isinstance(
                try_to_load_from_cache(self.name, "tokenizer_config.json"), str
            ):
                return load_tokenizer(find_files(self.name, self._options, small_files_only=True))
        except ValueError:  # not a Hub id, or a folder without a tokenizer
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
