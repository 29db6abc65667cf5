"""A reward model behind an HTTP server, as a judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib.judges._http import CONCURRENCY, TIMEOUT, open_client
from rmcalib.judges._inference.scoring import CHUNK
from rmcalib.judges._judge import Judge, Progress, Scale, ScoredItem
from rmcalib.judges._options import LoadOptions, check_options, refuse_local_options
from rmcalib.judges._registry import Recipe
from rmcalib.judges._scale import about_model, scale_of
from rmcalib.judges._served.connection import (
    Asked,
    Connection,
    Reward,
    check_same,
    connect,
    responses_rewards,
)
from rmcalib.judges._served.servers import SERVER_KINDS

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

__all__ = ["EndpointJudge", "load_endpoint"]

SCORING_VERSION = 1  # raise it when the same inputs would get other scores
_OPTIONS = (
    *("endpoint", "endpoint_kind", "served_name", "api_key_env", "concurrency", "timeout"),
    *("tokenize_here", "max_length", "recipe", "recipes"),
)


class EndpointJudge:
    """A reward model that is served by vLLM, SGLang or OpenRLHF.

    The server is asked when the judge is first used. Until then the judge can be sent to another process. The
    key is read from the environment for each request, and is not part of the judge.

    Parameters
    ----------
    name : str
        Hub id or folder of the model. Reports use it, and the recipe and tokenizer are found by it.
    endpoint : str
        Address of the server, such as `http://localhost:8000`.
    endpoint_kind : str
        `vllm`, `sglang`, `openrlhf`, or `auto` to find out.
    served_name : str, optional
        The server's name for the model. Default: `name`.
    api_key_env : str, optional
        The environment variable with the key. Default: `RMCALIB_API_KEY`, if it is set.
    concurrency : int
        The most requests at a time.
    timeout : float
        Seconds to wait for an answer before a request is sent again.
    tokenize_here : bool
        Send token ids to vLLM, as for a model that is loaded here, instead of chat messages. This needs the
        model's tokenizer. SGLang always gets token ids.
    max_length : int, optional
        The longest text in tokens. Default: the server's limit, at most 4096. OpenRLHF's server has its own
        limit.
    recipe, recipes
        As in `LoadOptions`.

    Examples
    --------
    >>> EndpointJudge("org/name", "http://localhost:8000/v1").name
    'org/name'
    """

    def __init__(
        self,
        name: str,
        endpoint: str,
        *,
        endpoint_kind: str = "auto",
        served_name: str | None = None,
        api_key_env: str | None = None,
        concurrency: int = CONCURRENCY,
        timeout: float = TIMEOUT,
        tokenize_here: bool = False,
        max_length: int | None = None,
        recipe: Recipe | None = None,
        recipes: Sequence[str | Path] = (),
    ) -> None:
        """Check the settings; the server is not asked yet."""
        if endpoint_kind not in ("auto", *SERVER_KINDS):
            have = ", ".join(("auto", *SERVER_KINDS))
            raise ValueError(f"endpoint_kind: unknown {endpoint_kind!r} (have: {have})")
        client = open_client(endpoint, api_key_env=api_key_env, timeout=timeout, concurrency=concurrency)
        known = LoadOptions(recipe=recipe, recipes=tuple(recipes)).recipe_for(name)
        self.name = name
        self._asked = Asked(
            name=name,
            recipe=dataclasses.replace(known, model=name),
            client=client,
            kind=endpoint_kind,
            served_name=served_name,
            max_length=max_length,
            concurrency=concurrency,
            tokenize_here=tokenize_here,
        )
        self._connected: Connection | None = None

    @property
    def recipe(self) -> Recipe:
        """The recipe of the model."""
        return self._asked.recipe

    @property
    def scale(self) -> Scale:
        """The scale of the rewards, from the recipe."""
        return scale_of(self.recipe)

    @property
    def connection(self) -> Connection:
        """The connection to the server. The first access makes it."""
        if self._connected is None:
            self._connected = connect(self._asked)
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
                name: getattr(recipe, name) for name in ("template", "append_token_id", "column", "sign")
            },
            "max_length": connection.limit,
            "scoring_version": SCORING_VERSION,
        }

    def about(self) -> dict[str, Any]:
        """Return the server's address and version, and a description of the model."""
        return {
            "endpoint": self._asked.client.url,
            "server_version": self.connection.server.version,
            "about_model": about_model(self.recipe),
        }

    def score(self, items: Sequence[Item], *, progress: Progress | None = None) -> Iterator[list[ScoredItem]]:
        """Score prompts in chunks of 32. After each chunk, check that the server still has the same model."""
        connection = self.connection
        groups = responses_rewards(connection, items)
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
            check_same(connection)
            yield chunk


def load_endpoint(name: str, **options: Any) -> Judge:
    """Return a served model as a judge."""
    refuse_local_options(options, _OPTIONS)
    check_options(options, _OPTIONS)
    if options.get("endpoint") is None:
        raise ValueError(f"endpoint: {name} needs the address of its server, such as http://localhost:8000")
    return EndpointJudge(name, **options)


def _scored(item: Item, rewards: Sequence[Reward]) -> ScoredItem:
    lengths = tuple(reward.n_tokens for reward in rewards if reward.n_tokens is not None)
    return ScoredItem(
        item.id,
        tuple(reward.value for reward in rewards),
        lengths if len(lengths) == len(rewards) else (),
        tuple(reward.truncated for reward in rewards),
    )
