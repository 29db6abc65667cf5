"""A policy as a judge, with the implicit reward of DPO training.

The log-probabilities come from models that are loaded here, or from vLLM (`/v1/completions` with
`prompt_logprobs`).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.files import read_object
from rmcalib._util.hub import HubError
from rmcalib._util.texts import parse_yaml
from rmcalib.judges._files import check_model_name, identify, locate, model_from
from rmcalib.judges._http import Client, ServerError, in_parallel, open_client
from rmcalib.judges._judge import Scale, ScoredItem
from rmcalib.judges._model import LONGEST_DEFAULT
from rmcalib.judges._scoring import CHUNK
from rmcalib.judges._servers import Server, changes_since, find_server, parsed_answer, quick, replaced
from rmcalib.judges._settings import PolicySettings
from rmcalib.judges._templates import Encoded, encode, response_starts

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item
    from rmcalib.judges._logprobs import LanguageModel

SCORING_VERSION = 1  # raise it when the same inputs would get other scores
_DEFAULT_BETA = 0.1
_NAMES = ("dpo_config", "training_args", "training_config", "train_config", "trainer_config", "trainer_state")
_FILES = (
    *(f"{name}.{ending}" for name in _NAMES for ending in ("json", "yaml", "yml")),
    *("adapter_config.json", "README.md"),
)
_KEYS = ("dpo_beta", "pref_beta", "rl_beta", "beta")  # of TRL, LLaMA-Factory, axolotl
_SECTIONS = ("dpo", "dpo_config", "trainer", "training", "training_args", "args")
_LARGEST = 2**20  # bytes; larger files are not settings
_PATH = "/v1/completions"
_MOVED = (0.2, 0.02)  # largest change of the first text's log-probability: nats, plus a fraction of itself
_NEEDS = "policies need vLLM, started for text: vllm serve MODEL"

Found = list[list[tuple[float, int]]]
"""The sum and the number of the token log-probabilities of each response, per prompt."""


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
    >>> PolicyJudge("org/policy", PolicySettings(reference="org/base", beta=0.1)).scale
    'log-utilities'
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
        self.name = check_model_name(name)
        self.settings = settings
        self.reference = None if settings.reference is None else check_model_name(settings.reference)
        self._beta: tuple[float, str] | None = None
        self._models: list[Any] | None = None
        self._tokenizer: Any = None

    @property
    def scale(self) -> Scale:
        """`log-utilities` for DPO, which fits a Bradley-Terry model; `unknown` without a reference."""
        return "log-utilities" if self.settings.reference_free is None else "unknown"

    @property
    def beta(self) -> tuple[float, str]:
        """The factor of the log-probabilities, and where it comes from: `option`, a file, or `default`."""
        if self._beta is None:
            if self.settings.beta is not None:
                self._beta = (float(self.settings.beta), "option")
            elif self.settings.reference_free is not None:
                self._beta = (1.0, "default")
            else:
                folder, _ = locate(self.name, self.settings, small_files_only=True)
                self._beta = trained_beta(folder) or (_DEFAULT_BETA, "default")
        return self._beta

    @property
    def models(self) -> list[Any]:
        """The policy and its reference, if there is one. The first access loads or connects them."""
        if self._models is None:
            self._models = self._loaded() if self.settings.endpoint is None else self._connected()
        return self._models

    def identity(self) -> dict[str, Any]:
        """Return everything that changes a reward; this loads the models."""
        models = self.models
        about: dict[str, Any] = {
            "kind": "policy",
            "reference": self._reference_name(),
            "reference_free": self.settings.reference_free,
            "beta": self.beta[0],
            "template": self._template,
            "max_length": self._max_length,
            "scoring_version": SCORING_VERSION,
        }
        if self.settings.endpoint is not None:
            tokens = identify(self.name, self.settings.revision)
            return about | {"served": [model.identity() for model in models], "tokenizer": tokens}
        base = models[0].base
        return {
            **about,
            "revisions": [model.revision for model in models],
            "dtype": str(models[0].dtype).removeprefix("torch."),
            **({} if base is None else {"base": "@".join(base)}),
        }

    def asked(self) -> dict[str, Any] | None:
        """Return what determines `identity` and is known without the weights; None for a server."""
        settings = self.settings
        if settings.endpoint is not None:
            return None
        return {
            "kind": "policy",
            "revision": identify(self.name, settings.revision),
            "base": settings.base and identify(settings.base),
            "reference": self.reference and [self.reference, identify(self.reference)],
            "reference_free": settings.reference_free,
            "beta": settings.beta,  # None: it is in the files of the revision
            "template": self._template,
            "dtype": [settings.dtype, settings.device.partition(":")[0]],
            "max_length": settings.max_length,
            "scoring_version": SCORING_VERSION,
        }

    def about(self) -> dict[str, Any]:
        """Return beta and where it comes from, the reference, and the device or the server."""
        beta, source = self.beta
        about = {"beta": beta, "beta_from": source, "reference": self._reference_name()}
        if self.settings.endpoint is None:
            return about | {"device": str(self.models[0].device), "model_from": model_from(self.name)}
        return about | {
            "endpoint": [model.client.url for model in self.models],
            "server_version": self.models[0].server.version,
        }

    def score(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        """Score prompts in chunks of 32. After each chunk, check that a server still has the same model."""
        models, template = self.models, self._template
        tokenizer = self._tokenizer or models[0].tokenizer
        for start in range(0, len(items), CHUNK):
            chunk = items[start : start + CHUNK]
            encoded = encode(chunk, tokenizer, max_length=self._max_length, template=template)
            starts = response_starts(chunk, encoded, tokenizer, template)
            found = [self._logprobs(model, encoded, starts) for model in models]
            for model in models:
                if isinstance(model, ServedModel):
                    model.check()
            yield [
                self._scored(item, texts, own)
                for item, texts, *own in zip(chunk, encoded, *found, strict=True)
            ]

    def _logprobs(
        self, model: Any, encoded: Sequence[Sequence[Encoded]], starts: Sequence[Sequence[int]]
    ) -> Found:
        flat, begin = [text for texts in encoded for text in texts], [at for own in starts for at in own]
        if isinstance(model, ServedModel):
            found = model.logprobs(flat, begin)
        else:
            from rmcalib.judges._logprobs import response_logprobs

            found = response_logprobs(model, flat, begin, self.settings.token_budget)
        values = iter(found)
        return [[next(values) for _ in texts] for texts in encoded]

    @property
    def _template(self) -> str | None:
        return self.settings.recipe_for(self.name).template

    @property
    def _max_length(self) -> int:
        longest, asked = min(model.max_length for model in self.models), self.settings.max_length
        if asked is not None and asked > longest:
            raise ValueError(
                f"max_length: {asked} is more than the {longest} tokens that the server can read"
            )
        return int(longest) if asked is None else asked

    def _reference_name(self) -> str | None:
        if self.settings.reference_free is not None:
            return None
        return self.reference or str(self.models[1].name)

    def _loaded(self) -> list[LanguageModel]:
        from rmcalib.judges._logprobs import load_language_model

        settings, free = self.settings, self.settings.reference_free is not None
        folder, _ = locate(self.name, settings, small_files_only=True)
        adapter = (folder / "adapter_config.json").is_file()
        if self.reference is None and not free and not adapter:
            raise ValueError(
                f"{self.name}: is not a PEFT adapter, so give the model that its training started from "
                "(reference), or score without a reference (reference_free)"
            )
        if adapter and settings.base is None and self.reference == _named_base(folder):
            settings = dataclasses.replace(settings, base=self.reference)  # the user gave it: it may be local
        policy = load_language_model(self.name, settings)
        if free:
            return [policy]
        if policy.base is not None and self.reference in (None, policy.base[0]):
            return [policy, policy.without_adapter()]
        assert self.reference is not None
        # The revision in the settings is the policy's.
        other = load_language_model(self.reference, dataclasses.replace(settings, revision=None))
        self._check_vocabulary(policy.tokenizer, other.tokenizer)
        return [policy, other]

    def _connected(self) -> list[ServedModel]:
        from rmcalib.judges._logprobs import load_policy_tokenizer

        settings = self.settings
        self._tokenizer = load_policy_tokenizer(self.name, settings)
        models = [_connect(self.name, settings.endpoint, settings.served_name, settings)]
        if self.reference is not None:
            url = settings.reference_endpoint or settings.endpoint
            models.append(_connect(self.reference, url, settings.reference_served_name, settings))
            own = dataclasses.replace(settings, revision=None)
            self._check_vocabulary(self._tokenizer, load_policy_tokenizer(self.reference, own))
        return models

    def _check_vocabulary(self, own: Any, other: Any) -> None:
        if own.get_vocab() != other.get_vocab():
            raise HubError(f"{self.reference}: its vocabulary differs from that of {self.name}")

    def _scored(
        self, item: Item, texts: Sequence[Encoded], found: Sequence[Sequence[tuple[float, int]]]
    ) -> ScoredItem:
        if self.settings.reference_free is None:
            rewards = [own - other for (own, _), (other, _) in zip(*found, strict=True)]
        elif self.settings.reference_free == "mean":
            rewards = [total / max(count, 1) for total, count in found[0]]
        else:
            rewards = [total for total, _ in found[0]]
        return ScoredItem(
            item.id,
            tuple(self.beta[0] * reward for reward in rewards),
            tuple(len(text) for text in texts),
            tuple(text.truncated for text in texts),
        )


@dataclass(frozen=True)
class ServedModel:
    """A served language model. `first` has the first text that was scored, and its log-probability."""

    name: str
    client: Client
    server: Server
    served_name: str | None
    concurrency: int
    first: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def max_length(self) -> int:
        """The longest text in tokens: one less than the server's limit, because it always adds one."""
        own = self.server.max_length
        return LONGEST_DEFAULT if own is None else min(own - 1, LONGEST_DEFAULT)

    def identity(self) -> dict[str, Any]:
        """Return what the server reports about the model. The address is not included: it may change."""
        server = self.server
        return {"model": server.model, "checkpoint": server.checkpoint, "weights": server.weights}

    def logprobs(self, texts: Sequence[Encoded], starts: Sequence[int]) -> list[tuple[float, int]]:
        """Return the summed log-probability of each response's tokens, and their number."""
        tasks = [(list(text.input_ids), start) for text, start in zip(texts, starts, strict=True)]
        found = list(in_parallel(lambda task: self._one(*task), tasks, workers=self.concurrency))
        if tasks and not self.first:
            self.first.update(ids=tasks[0][0], start=tasks[0][1], value=found[0][0])
        return found

    def check(self) -> None:
        """Raise a `ServerError` if the server's model was replaced since the connection was made."""
        changes = changes_since(self.client, self.server, self.name, self.served_name)
        if self.first:
            value = self._one(self.first["ids"], self.first["start"])[0]
            moved = abs(value - self.first["value"])
            if moved > _MOVED[0] + _MOVED[1] * abs(value):
                changes.append(f"the log-probability of the same text has changed by {moved:.3g}")
        if changes:
            raise replaced(self.name, self.client.url, changes)

    def _one(self, ids: list[int], start: int) -> tuple[float, int]:
        body = {"model": self.server.model, "prompt": ids, "max_tokens": 1, "temperature": 0}

        def parse(answer: Any) -> tuple[float, int]:
            table = answer["choices"][0]["prompt_logprobs"]
            if len(table) != len(ids):
                raise ValueError(f"{len(table)} log-probabilities for {len(ids)} tokens")
            # The first token of a text has no probability.
            values = [_logprob(table[place], ids[place]) for place in range(max(start, 1), len(ids))]
            return math.fsum(values), len(values)

        wrong = "the answer has no prompt_logprobs of all tokens"
        body["prompt_logprobs"] = 0
        return parsed_answer(self.client, _PATH, body, parse, wrong=wrong, remedy=_NEEDS)


def trained_beta(folder: Path) -> tuple[float, str] | None:
    """Return the beta that a model was trained with, and the file that has it; None if no file has it.

    Only JSON and YAML are read. TRL's `training_args.bin` is a pickle file, which can run code.

    The files are `dpo_config`, `training_args`, `training_config`, `train_config`, `trainer_config` and
    `trainer_state` (.json, .yaml, .yml), `adapter_config.json`, and the front matter of `README.md`. The key
    is `beta`, `dpo_beta`, `pref_beta` or `rl_beta`, at the top level or in a section such as `dpo`. Files
    that contradict each other are an error.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as name:
    ...     _ = Path(name, "dpo_config.json").write_text('{"beta": 0.05}')
    ...     trained_beta(Path(name))
    (0.05, 'dpo_config.json')
    """
    found: dict[str, float] = {}
    for name in _FILES:
        path = folder / name
        if path.is_file() and path.stat().st_size <= _LARGEST:
            beta = _beta_in(_content(path))
            if beta is not None:
                found[name] = beta
    if len({*found.values()}) > 1:
        said = ", ".join(f"{name} {beta:g}" for name, beta in found.items())
        raise ValueError(f"beta: the files in {folder} contradict each other ({said}): give beta")
    return next(((beta, name) for name, beta in found.items()), None)


def _content(path: Path) -> Any:
    """Return the content of a file; None if it cannot be parsed."""
    try:
        content = path.read_bytes()
        if path.suffix == ".json":
            return json.loads(content)
        if path.suffix == ".md":
            parts = content.split(b"---", 2)
            content = parts[1] if len(parts) == 3 and not parts[0].strip() else b""
        return parse_yaml(content, str(path))
    except (OSError, ValueError, RecursionError):
        return None


def _beta_in(content: Any) -> float | None:
    for part in _parts(content):
        for key in _KEYS:
            value = part.get(key)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            if math.isfinite(value) and value > 0:
                return float(value)
    return None


def _parts(content: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(content, Mapping):
        yield content
        yield from (content[name] for name in _SECTIONS if isinstance(content.get(name), Mapping))


def _named_base(adapter: Path) -> Any:
    """Return the base model that an adapter names."""
    return read_object(adapter / "adapter_config.json").get("base_model_name_or_path")


def _connect(name: str, url: str | None, served_name: str | None, settings: PolicySettings) -> ServedModel:
    """Connect to a vLLM with this model; raise a `ServerError` if the server is something else."""
    client = open_client(str(url), settings.api_key_env, settings.timeout)
    server = find_server(quick(client), "auto", name, served_name)
    if server.kind != "vllm":
        raise ServerError(f"{client.url}: is {server.kind}, which has no prompt_logprobs: {_NEEDS}")
    return ServedModel(name, client, server, served_name, settings.concurrency)


def _logprob(entry: Mapping[str, Any], token: int) -> float:
    """Return the log-probability of the token itself; vLLM may list other tokens too."""
    found = entry[str(token)]
    value = float(found["logprob"] if isinstance(found, Mapping) else found)
    if not math.isfinite(value):
        raise ValueError(f"the log-probability of token {token} is {value}")
    return value
