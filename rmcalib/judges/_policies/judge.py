"""A policy as a judge: the reward that DPO training leaves in a language model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rmcalib._util.hub import HubError
from rmcalib.judges._inference.scoring import CHUNK
from rmcalib.judges._judge import Judge, Scale, ScoredItem
from rmcalib.judges._options import LoadOptions, check_options
from rmcalib.judges._reward_model import check_model_name, identify, locate, longest_text

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item
    from rmcalib.judges._policies.logprobs import LanguageModel

__all__ = ["PolicyJudge", "load_language_model", "load_policy"]

SCORING_VERSION = 1  # raise it when the same inputs would get other scores
_REFERENCE_FREE = ("sum", "mean")
_OWN = ("reference", "reference_free", "beta")


class PolicyJudge:
    """A language model whose log-probabilities are rewards.

    With a reference the reward is DPO's implicit one, `beta * (log p(y | x) - log p_ref(y | x))`, summed over
    the response's tokens. Without one it is `beta` times the sum or the mean of `log p`. The models are
    loaded when they are first needed.

    Parameters
    ----------
    name : the policy's Hub id or folder.
    reference : the model that training began with.
    reference_free : `sum` or `mean`, instead of a reference.
    beta : DPO's beta; default 0.1 with a reference, else 1.
    options : how to load both models.

    Examples
    --------
    >>> PolicyJudge("org/policy", reference="org/base").beta
    0.1
    """

    def __init__(
        self,
        name: str,
        *,
        reference: str | None = None,
        reference_free: str | None = None,
        beta: float | None = None,
        options: LoadOptions | None = None,
    ) -> None:
        """Check the settings; nothing is loaded yet."""
        if (reference is None) == (reference_free is None):
            raise ValueError("reference: give a reference model, or reference_free ('sum' or 'mean')")
        if reference_free not in (None, *_REFERENCE_FREE):
            raise ValueError(f"reference_free: unknown {reference_free!r} (have: sum, mean)")
        self.beta = (0.1 if reference is not None else 1.0) if beta is None else float(beta)
        if not (math.isfinite(self.beta) and self.beta > 0):
            raise ValueError(f"beta: must be a positive number, got {self.beta}")
        self.name = check_model_name(name)
        self.reference = None if reference is None else check_model_name(reference)
        self.reference_free = reference_free
        self.options = options or LoadOptions()
        self._models: list[LanguageModel] | None = None

    @property
    def scale(self) -> Scale:
        """DPO fits a Bradley-Terry model; of a likelihood by itself nothing is known."""
        return "log-utilities" if self.reference is not None else "unknown"

    @property
    def models(self) -> list[LanguageModel]:
        """The policy and its reference, if it has one."""
        if self._models is None:
            policy = load_language_model(self.name, self.options)
            self._models = [policy]
            if self.reference is not None:
                # The revision that was asked for is the policy's.
                other = load_language_model(self.reference, dataclasses.replace(self.options, revision=None))
                if other.tokenizer.get_vocab() != policy.tokenizer.get_vocab():
                    raise HubError(f"{self.reference}: its vocabulary is not that of {self.name}")
                self._models.append(other)
        return self._models

    def identity(self) -> dict[str, Any]:
        """Return everything that changes a reward; this loads the models."""
        models = self.models
        return {
            "kind": "policy",
            "revisions": [model.revision for model in models],
            "reference": self.reference,
            "reference_free": self.reference_free,
            "beta": self.beta,
            "template": self.options.recipe_for(self.name).template,
            "dtype": str(models[0].dtype).removeprefix("torch."),
            "max_length": self._max_length,
            "scoring_version": SCORING_VERSION,
        }

    def asked(self) -> dict[str, Any]:
        """Return what decides about `identity` and is known without the weights."""
        options = self.options
        return {
            "kind": "policy",
            "revision": identify(self.name, options.revision),
            "reference": self.reference and [self.reference, identify(self.reference)],
            "reference_free": self.reference_free,
            "beta": self.beta,
            "template": options.recipe_for(self.name).template,
            "dtype": [options.dtype, options.device.partition(":")[0]],
            "max_length": options.max_length,
            "scoring_version": SCORING_VERSION,
        }

    def about(self) -> dict[str, Any]:
        """Return beta, the reference and the device."""
        return {"beta": self.beta, "reference": self.reference, "device": str(self.models[0].device)}

    def score(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        """Score prompts in chunks of 32."""
        from rmcalib.judges._inference.templates import encode, response_starts

        tokenizer, template = self.models[0].tokenizer, self.options.recipe_for(self.name).template
        for start in range(0, len(items), CHUNK):
            chunk = items[start : start + CHUNK]
            encoded = encode(chunk, tokenizer, max_length=self._max_length, template=template)
            starts = response_starts(chunk, encoded, tokenizer, template)
            yield [self._scored(*each) for each in zip(chunk, encoded, starts, strict=True)]

    @property
    def _max_length(self) -> int:
        return min(model.max_length for model in self.models)

    def _scored(self, item: Item, texts: Sequence[Any], starts: Sequence[int]) -> ScoredItem:
        from rmcalib.judges._policies.logprobs import response_logprobs

        budget = self.options.token_budget
        found = [response_logprobs(model, texts, starts, token_budget=budget) for model in self.models]
        if self.reference is not None:
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
    """Return a policy as a judge; the other options are those of `LoadOptions`, without `compile`."""
    check_options(options, (*_OWN, *(field.name for field in dataclasses.fields(LoadOptions))))
    if options.get("compile"):
        raise ValueError("compile: has no effect on a policy")
    own = {option: options.pop(option) for option in _OWN if option in options}
    return PolicyJudge(name, **own, options=LoadOptions.of(**options))


def load_language_model(name: str, options: LoadOptions) -> LanguageModel:
    """Load a causal language model with its tokenizer; its logits are checked."""
    recipe = options.recipe_for(name)
    folder, commit = locate(name, options)
    if (folder / "adapter_config.json").is_file():
        raise HubError(
            f"{name}: a PEFT adapter: merge it into its base first (peft's merge_and_unload), and score the "
            "merged model's folder"
        )

    from rmcalib.judges._inference import loading
    from rmcalib.judges._policies.logprobs import LanguageModel, check_logits

    asked = loading.Asked(name, recipe, options)
    tokenizer = loading.load_tokenizer(asked, folder)
    module, device, dtype = loading.load_causal(asked, folder)
    longest = longest_text(name, module.config, tokenizer, "causal", recipe, options.max_length)
    model = LanguageModel(name, commit, module, tokenizer, device, dtype, longest)
    check_logits(model)
    return model
