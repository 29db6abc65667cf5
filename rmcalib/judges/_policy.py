"""A policy as a judge, with the implicit reward of DPO training.

The log-probabilities come from models that are loaded here, or from vLLM (`/v1/completions` with
`prompt_logprobs`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.files import read_object
from rmcalib._util.hub import HubError
from rmcalib._util.texts import parse_json, parse_yaml
from rmcalib.judges._files import asked_for, check_model_name, find_files, identify, locate
from rmcalib.judges._http import ServerError, in_parallel, open_client
from rmcalib.judges._judge import ScoredItem
from rmcalib.judges._model import LONGEST_DEFAULT, allowed_length, load_tokenizer
from rmcalib.judges._scoring import CHUNK, scored_items
from rmcalib.judges._server import connect
from rmcalib.judges._settings import PolicySettings
from rmcalib.judges._templates import Encoded, encode, response_starts
from rmcalib.scores.scale import Scale

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

SCORING_VERSION = 1  # raise it when the same inputs would get other scores
_DEFAULT_BETA = 0.1
_FILES = ("dpo_config", "training_args", "training_config", "adapter_config")
_KEYS = ("dpo_beta", "pref_beta", "rl_beta", "beta")  # of TRL, LLaMA-Factory, axolotl
_MOVED = (0.2, 0.02)  # largest change of the first text's log-probability: nats, plus a fraction of itself


class PolicyJudge:
    """A language model whose log-probabilities are rewards.

    With a reference, the reward is the implicit reward of DPO, `beta * (log p(y | x) - log p_ref(y | x))`,
    summed over the response's tokens. Without a reference, it is `beta` times the sum or the mean of `log p`.
    The models are loaded, or their server is asked, when the judge is first used.

    Parameters
    ----------
    name : str
        Hub id or folder of the policy: a full model, or a PEFT adapter.
    settings : PolicySettings
        The reference and beta, and how both models are loaded or where they are served.

    Examples
    --------
    >>> PolicyJudge("org/policy", PolicySettings(reference="org/base", beta=0.1)).scale.kind
    'utility'
    """

    def __init__(self, name: str, settings: PolicySettings) -> None:
        """Check the settings; nothing is loaded yet."""
        if settings.reference is not None and settings.reference_free is not None:
            raise ValueError("reference: give either a reference model or reference_free ('sum' or 'mean')")
        if settings.endpoint is not None:
            if settings.reference is None and settings.reference_free is None:
                raise ValueError(
                    "reference: give the model that training started from; it must be served too"
                )
            for url in (settings.endpoint, settings.reference_endpoint or settings.endpoint):
                open_client(url, settings.api_key_env, settings.timeout)
        self.name, self.settings = check_model_name(name), settings
        self.reference = None if settings.reference is None else check_model_name(settings.reference)

    @property
    def scale(self) -> Scale:
        """Utilities for DPO, which fits a Bradley-Terry model; assumed without a reference."""
        return Scale("utility", "DPO") if self.settings.reference_free is None else Scale()

    @cached_property
    def beta(self) -> tuple[float, str]:
        """The factor of the log-probabilities, and where it comes from: `option`, a file, or `default`."""
        if self.settings.beta is not None:
            return float(self.settings.beta), "option"
        if self.settings.reference_free is not None:
            return 1.0, "default"
        folder, _ = locate(self.name, self.settings, small_files_only=True)
        return trained_beta(folder) or (_DEFAULT_BETA, "default")

    @cached_property
    def models(self) -> list[Any]:
        """The policy and its reference, if there is one, each a `LanguageModel` or a `ServedModel`."""
        models = self._loaded() if self.settings.endpoint is None else self._connected()
        if len(models) > 1 and models[0].tokenizer.get_vocab() != models[1].tokenizer.get_vocab():
            raise HubError(f"{self.reference}: its vocabulary differs from that of {self.name}")
        return models

    def identity(self) -> dict[str, Any]:
        """Return everything that changes a reward; this loads the models."""
        return {
            "kind": "policy",
            "reference": self._reference_name(),
            "reference_free": self.settings.reference_free,
            "beta": self.beta[0],
            "template": self._template,
            "max_length": self._max_length,
            "models": [model.identity() for model in self.models],
            "tokenizer": identify(self.name, self.settings.revision),
            "scoring_version": SCORING_VERSION,
        }

    def asked(self) -> dict[str, Any] | None:
        """Return what determines `identity` and is known without the weights; None for a server."""
        if self.settings.endpoint is not None:
            return None
        return {"kind": "policy", **asked_for(self.name, self.settings, self.reference)}

    def about(self) -> dict[str, Any]:
        """Return beta and where it comes from, the reference, and the device or the server."""
        beta, source = self.beta
        about = {"beta": beta, "beta_from": source, "reference": self._reference_name()}
        return {**about, **self.models[0].about()}

    def score(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        """Score prompts in chunks of 32. After each chunk, check that a server still has the same model."""
        models, template = self.models, self._template
        for start in range(0, len(items), CHUNK):
            chunk = items[start : start + CHUNK]
            tokenizer = models[0].tokenizer
            encoded = encode(chunk, tokenizer, max_length=self._max_length, template=template)
            starts = response_starts(chunk, encoded, tokenizer, template)
            texts, begin = [*chain.from_iterable(encoded)], [*chain.from_iterable(starts)]
            logprobs = [model.logprobs(texts, begin, self.settings.token_budget) for model in models]
            for model in models:
                model.check()
            rewards = [self._reward(*each) for each in zip(*logprobs, strict=True)]
            yield scored_items(chunk, encoded, rewards)

    def _reward(self, policy: tuple[float, int], reference: tuple[float, int] = (0.0, 0)) -> float:
        """Return the reward of a response from the sum and the number of its log-probabilities, by model."""
        total = policy[0] - reference[0]
        return self.beta[0] * (total / max(policy[1], 1) if self.settings.reference_free == "mean" else total)

    @property
    def _template(self) -> str | None:
        return self.settings.recipe_for(self.name).template

    @property
    def _max_length(self) -> int:
        longest = min(model.max_length for model in self.models)
        return allowed_length(self.settings.max_length, longest, self.name)

    def _reference_name(self) -> str | None:
        return self.models[1].name if len(self.models) > 1 else None

    def _loaded(self) -> list[Any]:
        from rmcalib.judges._language import load_language_model

        settings, free = self.settings, self.settings.reference_free is not None
        folder, _ = locate(self.name, settings, small_files_only=True)
        base = read_object(folder / "adapter_config.json").get("base_model_name_or_path")
        if self.reference is None and not free and base is None:
            raise ValueError(
                f"{self.name}: is not a PEFT adapter, so give the model that its training started from "
                "(reference), or score without a reference (reference_free)"
            )
        if settings.base is None and base is not None and base == self.reference:
            settings = dataclasses.replace(settings, base=self.reference)  # the user gave it: it may be local
        policy = load_language_model(self.name, settings)
        if free:
            return [policy]
        if policy.base is not None and self.reference in (None, policy.base[0]):
            return [policy, policy.without_adapter(policy.base)]
        # The revision in the settings is the policy's.
        return [
            policy,
            load_language_model(str(self.reference), dataclasses.replace(settings, revision=None)),
        ]

    def _connected(self) -> list[Any]:
        settings = self.settings
        models = [ServedModel(self.name, settings.endpoint, settings.served_name, settings)]
        if self.reference is not None:
            url = settings.reference_endpoint or settings.endpoint
            of_reference = dataclasses.replace(settings, revision=None)
            models.append(ServedModel(self.reference, url, settings.reference_served_name, of_reference))
        return models


class ServedModel:
    """A language model behind vLLM, with the methods that `PolicyJudge` needs of a `LanguageModel`."""

    def __init__(self, name: str, url: str | None, served_name: str | None, settings: PolicySettings) -> None:
        """Connect to the server, which must be vLLM; load the tokenizer alone."""
        client = open_client(str(url), settings.api_key_env, settings.timeout)
        self.server = connect(client, name, served_name)
        if self.server.api.name != "vllm":
            raise ServerError(
                f"{client.url}: is {self.server.api.name}; policies need vLLM, started with: vllm serve MODEL"
            )
        self.name, self.concurrency = name, settings.concurrency
        self.tokenizer = load_tokenizer(find_files(name, settings, small_files_only=True))
        self._first: tuple[list[int], int, float] | None = None  # a text, its start and its log-probability

    @property
    def max_length(self) -> int:
        """The longest text in tokens: one less than the server's limit, because it always adds one."""
        limit = self.server.max_length
        return LONGEST_DEFAULT if limit is None else min(limit - 1, LONGEST_DEFAULT)

    def identity(self) -> dict[str, Any]:
        """Return what the server reports about the model."""
        return self.server.identity()

    def about(self) -> dict[str, Any]:
        """Return the server's address and version."""
        return self.server.about()

    def logprobs(self, texts: Sequence[Encoded], starts: Sequence[int], _: Any) -> list[tuple[float, int]]:
        """Return the summed log-probability of each response's tokens, and their number."""
        tasks = [(list(text.input_ids), start) for text, start in zip(texts, starts, strict=True)]
        sums = list(in_parallel(lambda task: self._logprob(*task), tasks, workers=self.concurrency))
        if tasks and self._first is None:
            self._first = (*tasks[0], sums[0][0])
        return sums

    def check(self) -> None:
        """Raise a `ServerError` if the server's model was replaced since the connection was made."""
        moved = 0.0
        if self._first is not None:
            ids, start, before = self._first
            moved = abs(self._logprob(ids, start)[0] - before)
            moved = moved if moved > _MOVED[0] + _MOVED[1] * abs(before) else 0.0
        text = f"the log-probability of the same text has changed by {moved:.3g}"
        self.server.check_same(text if moved else "")

    def _logprob(self, ids: list[int], start: int) -> tuple[float, int]:
        body = {"model": self.server.model, "prompt": ids, "max_tokens": 1, "temperature": 0}

        def parse(answer: Any) -> tuple[float, int]:
            table = answer["choices"][0]["prompt_logprobs"]
            if len(table) != len(ids):
                raise ValueError(f"{len(table)} prompt_logprobs for {len(ids)} tokens")
            # The first token of a text has no probability. vLLM may list other tokens too.
            places = range(max(start, 1), len(ids))
            total = math.fsum(float(table[place][str(ids[place])]["logprob"]) for place in places)
            if not math.isfinite(total):
                raise ValueError(f"the log-probability of a text is {total}")
            return total, len(places)

        return self.server.ask("/v1/completions", {**body, "prompt_logprobs": 0}, parse, "vllm serve MODEL")


def trained_beta(folder: Path) -> tuple[float, str] | None:
    """Return the beta that a model was trained with, and the file that has it; None if no file has it.

    Only JSON and YAML are read. TRL's `training_args.bin` is a pickle file, which can run code. The files are
    `dpo_config`, `training_args`, `training_config` and `adapter_config` (.json, .yaml, .yml), and the key is
    `beta`, `dpo_beta`, `pref_beta` or `rl_beta`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as name:
    ...     _ = Path(name, "dpo_config.json").write_text('{"beta": 0.05}')
    ...     trained_beta(Path(name))
    (0.05, 'dpo_config.json')
    """
    for path in (folder / f"{name}.{ending}" for name in _FILES for ending in ("json", "yaml", "yml")):
        parse = parse_json if path.suffix == ".json" else parse_yaml
        try:
            content = parse(path.read_bytes(), path.name)
        except (OSError, ValueError):
            continue
        for value in map(content.get, _KEYS) if isinstance(content, Mapping) else ():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
                return float(value), path.name
    return None
