"""A policy as a judge, with the implicit reward of DPO training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rmcalib._util.hub import HubError
from rmcalib.judges._inference.scoring import CHUNK
from rmcalib.judges._judge import Judge, Scale, ScoredItem
from rmcalib.judges._model_files import check_model_name, identify, locate
from rmcalib.judges._options import LoadOptions, check_options, refuse_local_options
from rmcalib.judges._policies.beta import trained_beta
from rmcalib.judges._policies.loading import load_language_model, load_policy_tokenizer
from rmcalib.judges._policies.served import ServedModel, Serving, check_unchanged, connect, served_logprobs

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item
    from rmcalib.judges._inference.templates import Encoded
    from rmcalib.judges._policies.logprobs import LanguageModel

__all__ = ["PolicyJudge", "load_policy"]

SCORING_VERSION = 1  # raise it when the same inputs would get other scores
_REFERENCE_FREE = ("sum", "mean")
_OWN = ("reference", "reference_free", "beta")
_SERVING = tuple(field.name for field in dataclasses.fields(Serving))
_DEFAULT_BETA = 0.1
_OF_THE_TOKENIZER = ("revision", "max_length", "trust_remote_code", "recipe", "recipes")


class PolicyJudge:
    """A language model whose log-probabilities are rewards.

    With a reference, the reward is the implicit reward of DPO, `beta * (log p(y | x) - log p_ref(y | x))`,
    summed over the response's tokens. Without a reference, it is `beta` times the sum or the mean of `log p`.
    The models are loaded, or their server is asked, when the judge is first used.

    Parameters
    ----------
    name : str
        Hub id or folder of the policy: a full model, or a PEFT adapter.
    reference : str, optional
        The model that training started from. Default: the base of a PEFT adapter.
    reference_free : str, optional
        `sum` or `mean`, to use no reference.
    beta : float, optional
        DPO's beta. Default: as in the files beside the weights (`trained_beta`), or 0.1 if they do not have
        it; without a reference, 1.
    serving : Serving, optional
        Settings of the server, if the models are not to be loaded here.
    options : LoadOptions, optional
        Options for loading both models.

    Examples
    --------
    >>> PolicyJudge("org/policy", reference="org/base", beta=0.1).scale
    'log-utilities'
    """

    def __init__(
        self,
        name: str,
        *,
        reference: str | None = None,
        reference_free: str | None = None,
        beta: float | None = None,
        serving: Serving | None = None,
        options: LoadOptions | None = None,
    ) -> None:
        """Check the settings; nothing is loaded yet."""
        if reference is not None and reference_free is not None:
            raise ValueError("reference: give either a reference model or reference_free ('sum' or 'mean')")
        if reference_free not in (None, *_REFERENCE_FREE):
            raise ValueError(f"reference_free: unknown {reference_free!r} (have: sum, mean)")
        if serving is not None and reference is None and reference_free is None:
            raise ValueError("reference: give the model that training started from; it must be served too")
        if beta is not None and not (math.isfinite(float(beta)) and float(beta) > 0):
            raise ValueError(f"beta: must be a positive number, got {beta}")
        self.name = check_model_name(name)
        self.reference = None if reference is None else check_model_name(reference)
        self.reference_free = reference_free
        self.serving = serving
        self.options = options or LoadOptions()
        self._given = None if beta is None else float(beta)
        self._beta: tuple[float, str] | None = None
        self._models: list[Any] | None = None
        self._tokenizer: Any = None
        self._scorers: dict[int, Any] = {}

    @property
    def scale(self) -> Scale:
        """`log-utilities` for DPO, which fits a Bradley-Terry model; `unknown` without a reference."""
        return "log-utilities" if self.reference_free is None else "unknown"

    @property
    def beta(self) -> float:
        """The factor of the log-probabilities."""
        return self._settled_beta()[0]

    @property
    def models(self) -> list[Any]:
        """The policy and its reference, if there is one. The first access loads or connects them."""
        if self._models is None:
            self._models = self._loaded() if self.serving is None else self._connected(self.serving)
        return self._models

    def identity(self) -> dict[str, Any]:
        """Return everything that changes a reward; this loads the models."""
        models = self.models
        about: dict[str, Any] = {
            "kind": "policy",
            "reference": self._reference_name(),
            "reference_free": self.reference_free,
            "beta": self.beta,
            "template": self.options.recipe_for(self.name).template,
            "max_length": self._max_length,
            "scoring_version": SCORING_VERSION,
        }
        if self.serving is not None:
            tokens = identify(self.name, self.options.revision)
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
        if self.serving is not None:
            return None
        options = self.options
        return {
            "kind": "policy",
            "revision": identify(self.name, options.revision),
            "reference": self.reference and [self.reference, identify(self.reference)],
            "reference_free": self.reference_free,
            "beta": self._given,  # None: it is in the files of the revision
            "template": options.recipe_for(self.name).template,
            "dtype": [options.dtype, options.device.partition(":")[0]],
            "max_length": options.max_length,
            "scoring_version": SCORING_VERSION,
        }

    def about(self) -> dict[str, Any]:
        """Return beta and where it comes from, the reference, and the device or the server."""
        beta, source = self._settled_beta()
        about = {"beta": beta, "beta_from": source, "reference": self._reference_name()}
        if self.serving is None:
            return about | {"device": str(self.models[0].device)}
        return about | {
            "endpoint": [model.client.url for model in self.models],
            "server_version": self.models[0].server.version,
        }

    def score(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        """Score prompts in chunks of 32. After each chunk, check that a server still has the same model."""
        from rmcalib.judges._inference.templates import encode, response_starts

        models, template = self.models, self.options.recipe_for(self.name).template
        tokenizer = self._tokenizer or models[0].tokenizer
        for start in range(0, len(items), CHUNK):
            chunk = items[start : start + CHUNK]
            encoded = encode(chunk, tokenizer, max_length=self._max_length, template=template)
            starts = response_starts(chunk, encoded, tokenizer, template)
            found = [self._logprobs(model, encoded, starts) for model in models]
            if self.serving is not None:
                for model in models:
                    check_unchanged(model)
            yield [
                self._scored(item, texts, own)
                for item, texts, *own in zip(chunk, encoded, *found, strict=True)
            ]

    def _logprobs(
        self, model: Any, encoded: Sequence[Sequence[Encoded]], starts: Sequence[Sequence[int]]
    ) -> list[list[tuple[float, int]]]:
        """Return the sum and the number of token log-probabilities of each response, per prompt."""
        if isinstance(model, ServedModel):
            flat = [text for texts in encoded for text in texts]
            values = iter(served_logprobs(model, flat, [start for own in starts for start in own]))
            return [[next(values) for _ in texts] for texts in encoded]
        from rmcalib.judges._policies.sharing import PromptScorer

        if id(model) not in self._scorers:
            self._scorers[id(model)] = PromptScorer(model, self.options.token_budget)
        scorer = self._scorers[id(model)]
        return [scorer.logprobs(texts, own) for texts, own in zip(encoded, starts, strict=True)]

    @property
    def _max_length(self) -> int:
        longest = min(model.max_length for model in self.models)
        asked = self.options.max_length
        if asked is None or self.serving is None:
            return int(longest)
        if asked > longest:
            raise ValueError(
                f"max_length: {asked} is more than the {longest} tokens that the server can read"
            )
        return asked

    def _settled_beta(self) -> tuple[float, str]:
        """Return beta, and where it comes from: `option`, a file, or `default`."""
        if self._beta is None:
            if self._given is not None:
                self._beta = (self._given, "option")
            elif self.reference_free is not None:
                self._beta = (1.0, "default")
            else:
                folder, _ = locate(self.name, self.options, small_files_only=True)
                self._beta = trained_beta(folder) or (_DEFAULT_BETA, "default")
        return self._beta

    def _is_adapter(self) -> bool:
        folder, _ = locate(self.name, self.options, small_files_only=True)
        return (folder / "adapter_config.json").is_file()

    def _reference_name(self) -> str | None:
        if self.reference_free is not None:
            return None
        return self.reference or str(self.models[1].name)

    def _loaded(self) -> list[LanguageModel]:
        if self.reference is None and self.reference_free is None and not self._is_adapter():
            raise ValueError(
                f"{self.name}: is not a PEFT adapter, so give the model that its training started from "
                "(--reference), or score without a reference (--reference-free)"
            )
        policy = load_language_model(self.name, self.options)
        if self.reference_free is not None:
            return [policy]
        if policy.base is not None and self.reference in (None, policy.base[0]):
            return [policy, policy.without_adapter()]
        assert self.reference is not None
        # The revision in the options is the policy's.
        other = load_language_model(self.reference, dataclasses.replace(self.options, revision=None))
        self._check_vocabulary(policy.tokenizer, other.tokenizer)
        return [policy, other]

    def _connected(self, serving: Serving) -> list[ServedModel]:
        self._tokenizer = load_policy_tokenizer(self.name, self.options)
        models = [connect(self.name, serving)]
        if self.reference is not None:
            models.append(connect(self.reference, serving, reference=True))
            options = dataclasses.replace(self.options, revision=None)
            self._check_vocabulary(self._tokenizer, load_policy_tokenizer(self.reference, options))
        return models

    def _check_vocabulary(self, own: Any, other: Any) -> None:
        if own.get_vocab() != other.get_vocab():
            raise HubError(f"{self.reference}: its vocabulary differs from that of {self.name}")

    def _scored(
        self, item: Item, texts: Sequence[Encoded], found: Sequence[Sequence[tuple[float, int]]]
    ) -> ScoredItem:
        if self.reference_free is None:
            rewards = [own - other for (own, _), (other, _) in zip(*found, strict=True)]
        elif self.reference_free == "mean":
            rewards = [total / max(count, 1) for total, count in found[0]]
        else:
            rewards = [total for total, _ in found[0]]
        return ScoredItem(
            item.id,
            tuple(self.beta * reward for reward in rewards),
            tuple(len(text) for text in texts),
            tuple(text.truncated for text in texts),
        )


def load_policy(name: str, **options: Any) -> Judge:
    """Return a policy as a judge.

    The other options are those of `LoadOptions`, without `compile`; with an `endpoint`, those of `Serving`.
    """
    known = {field.name for field in dataclasses.fields(LoadOptions)}
    check_options(options, (*_OWN, *_SERVING, *sorted(known)))
    if options.get("compile"):
        raise ValueError("compile: has no effect on a policy")
    own = {option: options.pop(option) for option in _OWN if option in options}
    asked = {option: options.pop(option) for option in _SERVING if options.get(option) is not None}
    options = {option: value for option, value in options.items() if option in known}
    serving = None
    if asked:
        if "endpoint" not in asked:
            raise ValueError(f"{next(iter(asked))}: has no effect without an endpoint")
        refuse_local_options(options, _OF_THE_TOKENIZER)
        serving = Serving(**asked)
    return PolicyJudge(name, **own, serving=serving, options=LoadOptions.of(**options))
