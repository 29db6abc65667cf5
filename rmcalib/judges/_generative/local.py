"""A language model that is loaded here with transformers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rmcalib.judges._generative.models import LabelAnswer, TextAnswer
from rmcalib.judges._generative.prompts import Message, spellings
from rmcalib.judges._model_files import identify
from rmcalib.judges._options import LoadOptions

if TYPE_CHECKING:
    from rmcalib.judges._policies.logprobs import LanguageModel

__all__ = ["LocalChat"]


class LocalChat:
    """A causal language model from the Hub or a folder. It is loaded when it is first used.

    Parameters
    ----------
    name : str
        Hub id or folder. The tokenizer must have a chat template.
    options : LoadOptions
        Options for loading it.
    """

    workers = 1

    def __init__(self, name: str, options: LoadOptions) -> None:
        """Keep the settings; nothing is loaded yet."""
        self.name, self.options = name, options
        self._known_ids: dict[str, list[int]] = {}

    @cached_property
    def model(self) -> LanguageModel:
        """The loaded model."""
        from rmcalib.judges._policies.loading import load_language_model

        return load_language_model(self.name, self.options)

    @cached_property
    def _template(self) -> str | None:
        return self.options.recipe_for(self.name).template

    def label_logprobs(self, messages: Sequence[Message], labels: Sequence[str]) -> LabelAnswer:
        """Run the question through the model once."""
        from rmcalib.judges._policies.logprobs import next_token_logprobs

        ids = self._ids(messages, 1)
        groups = [self._label_ids(label) for label in labels]
        table = next_token_logprobs(self.model, ids)
        values = tuple(float(table[group].logsumexp(0)) for group in groups)
        return LabelAnswer(values, (False,) * len(labels), len(ids))

    def sample(
        self, messages: Sequence[Message], *, seed: int, temperature: float, max_tokens: int
    ) -> TextAnswer:
        """Generate one answer."""
        import torch

        ids = self._ids(messages, 1)
        model, room = self.model, self.model.max_length - len(ids)
        chosen: dict[str, Any] = {"do_sample": False}
        if temperature > 0:
            chosen = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        tokens = torch.tensor([ids], device=model.device)
        devices = [model.device] if model.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            torch.manual_seed(seed)
            output = model.model.generate(
                input_ids=tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=min(max_tokens, room),
                pad_token_id=model.tokenizer.eos_token_id,
                **chosen,
            )
        answer = output[0, len(ids) :].tolist()
        return TextAnswer(model.tokenizer.decode(answer, skip_special_tokens=True), len(ids) + len(answer))

    def identity(self) -> dict[str, Any]:
        """Return commit, dtype, name of the template and longest text; this loads the model."""
        return {
            "revision": self.model.revision,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "template": self._template,
            "max_length": self.model.max_length,
        }

    def asked(self) -> dict[str, Any]:
        """Return what determines `identity`, as far as it is known without the weights."""
        options = self.options
        return {
            "revision": identify(self.name, options.revision),
            "dtype": [options.dtype, options.device.partition(":")[0]],
            "template": self._template,
            "max_length": options.max_length,
        }

    def about(self) -> dict[str, Any]:
        """Return the device."""
        return {"device": str(self.model.device)}

    def check(self) -> None:
        """Do nothing: the model is in memory."""

    def _ids(self, messages: Sequence[Message], room: int) -> list[int]:
        from rmcalib.judges._inference.templates import question_ids

        model = self.model
        ids = question_ids(messages, model.tokenizer, self._template)
        if len(ids) + room > model.max_length:
            raise ValueError(
                f"the question has {len(ids)} tokens, but the limit is {model.max_length}: increase "
                "--max-length if the model can read more, or cut long texts with --max-characters"
            )
        return ids

    def _label_ids(self, label: str) -> list[int]:
        """Return the tokens that spell a label."""
        if label in self._known_ids:
            return self._known_ids[label]
        tokenizer = self.model.tokenizer
        found = set()
        for text in spellings(label):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            if len(ids) == 1 and tokenizer.decode(ids).strip() == text.strip():
                found.add(ids[0])
        if not found:
            raise ValueError(
                f"the model's vocabulary has no token for the label {label!r}: use other labels, or sampled "
                "answers (--judge votes)"
            )
        self._known_ids[label] = sorted(found)
        return self._known_ids[label]
