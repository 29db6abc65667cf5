"""Causal language models that are loaded here: log-probabilities of responses, and answers to questions.

Logits are computed for the tokens of responses only, a block at a time. Each text has its own row; for large
models, vLLM shares prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from rmcalib._util.hub import HubError, translated
from rmcalib.judges import _model
from rmcalib.judges._chat import Answer
from rmcalib.judges._files import find_files, model_from
from rmcalib.judges._questions import spellings
from rmcalib.judges._settings import LoadOptions
from rmcalib.judges._templates import Encoded, Message, question_ids

_LOGITS_AT_ONCE = 2**24  # numbers in one block of logits: 64 MiB in float32
_TOKENS_AT_ONCE = 8192  # tokens in one forward pass, unless the caller says otherwise


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model on its device.

    A PEFT adapter has a `base` (name and commit), and `no_adapter` is a context in which it is switched off.
    """

    name: str
    revision: str
    model: Any
    tokenizer: Any
    template: str | None
    device: torch.device
    dtype: torch.dtype
    max_length: int
    base: tuple[str, str] | None = None
    no_adapter: Callable[[], AbstractContextManager[Any]] = nullcontext
    running: Callable[[], AbstractContextManager[Any]] = nullcontext

    def without_adapter(self, base: tuple[str, str]) -> LanguageModel:
        """Return the base model of a PEFT adapter: the same weights, with the adapter switched off."""
        return replace(self, name=base[0], revision=base[1], base=None, running=self.no_adapter)

    def identity(self) -> dict[str, Any]:
        """Return what changes the model's probabilities."""
        return {
            "revision": self.revision,
            "base": self.base and "@".join(self.base),
            "dtype": str(self.dtype).removeprefix("torch."),
            "template": self.template,
            "max_length": self.max_length,
        }

    def about(self) -> dict[str, Any]:
        """Return the device, and where the model is from."""
        return {"device": str(self.device), "model_from": model_from(self.name)}

    def check(self) -> None:
        """Do nothing: a model in memory cannot be replaced."""

    @torch.no_grad()
    def logprobs(
        self, texts: Sequence[Encoded], starts: Sequence[int], token_budget: int | None = None
    ) -> list[tuple[float, int]]:
        """Return the summed log-probability of each response's tokens, and their number.

        `starts` are the positions of the responses' first tokens. Texts of similar length are run together,
        with at most `token_budget` tokens in a pass.
        """
        sums: dict[int, tuple[float, int]] = {}
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        with self.running():
            while order:
                rows = max(1, (token_budget or _TOKENS_AT_ONCE) // len(texts[order[-1]]))
                batch, order = order[-rows:], order[:-rows]
                results = _pass(self, [texts[i] for i in batch], [starts[i] for i in batch])
                sums |= dict(zip(batch, results, strict=True))
        return [sums[number] for number in range(len(texts))]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the float32 logits (n, vocabulary) of hidden states (n, width), as the model computes them.

        Some architectures scale the logits (Cohere, Granite) or cap them (Gemma 2) after the last layer.
        """
        config = self.model.config.get_text_config()
        head: nn.Module = self.model.get_output_embeddings()
        logits: torch.Tensor = head(hidden)
        logits = logits * (getattr(config, "logit_scale", None) or 1.0)
        logits = logits / (getattr(config, "logits_scaling", None) or 1.0)
        cap = getattr(config, "final_logit_softcapping", None)
        return (torch.tanh(logits / cap) * cap if cap else logits).float()

    @torch.no_grad()
    def label_logprobs(self, messages: Sequence[Message], labels: Sequence[str]) -> Answer:
        """Return the log-probabilities of labels as the next token after a question."""
        ids = self._question(messages)
        tokens = torch.tensor([ids], device=self.device)
        last = _hidden(self, tokens, torch.ones_like(tokens))[0, -1:]
        table = self.logits(last)[0].log_softmax(0).cpu()
        values = tuple(float(table[self._label_ids(label)].logsumexp(0)) for label in labels)
        return Answer(len(ids), logprobs=values, floored=(False,) * len(labels))

    def sample(
        self, messages: Sequence[Message], *, seed: int, temperature: float, max_tokens: int
    ) -> Answer:
        """Generate one answer."""
        ids = self._question(messages)
        chosen: dict[str, Any] = {"do_sample": False}
        if temperature > 0:
            chosen = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        tokens = torch.tensor([ids], device=self.device)
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            torch.manual_seed(seed)
            output = self.model.generate(
                input_ids=tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=min(max_tokens, self.max_length - len(ids)),
                pad_token_id=self.tokenizer.eos_token_id,
                **chosen,
            )
        answer = output[0, len(ids) :].tolist()
        text = self.tokenizer.decode(answer, skip_special_tokens=True)
        return Answer(len(ids) + len(answer), text)

    def _question(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of a question that leaves room for an answer."""
        ids = question_ids(messages, self.tokenizer, self.template)
        if len(ids) >= self.max_length:
            raise ValueError(
                f"the question has {len(ids)} tokens, but the limit is {self.max_length}: increase "
                "max_length=... if the model can read more, or cut long texts with max_characters=..."
            )
        return ids

    def _label_ids(self, label: str) -> list[int]:
        """Return the tokens that spell a label."""
        tokens = set()
        for text in spellings(label):
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            if len(ids) == 1 and self.tokenizer.decode(ids).strip() == text.strip():
                tokens.add(ids[0])
        if not tokens:
            raise ValueError(
                f"the model's vocabulary has no token for the label {label!r}: use other labels, or sampled "
                'answers (judging="votes")'
            )
        return sorted(tokens)


def load_language_model(name: str, options: LoadOptions) -> LanguageModel:
    """Load a causal language model with its tokenizer, and check its logits.

    A PEFT adapter is put on its base and not merged, so that it can be switched off.
    """
    from transformers import AutoModelForCausalLM

    from rmcalib.judges._packing import pack_layers

    files = find_files(name, options)
    prepared = _model.prepare(files)
    tokenizer = _model.load_tokenizer(files)
    with translated(name), _model.quietly():
        module = _model.complete(files, AutoModelForCausalLM, _model.loading_options(files, prepared))
    _model.settle(name, module, prepared.device)
    no_adapter: Callable[[], AbstractContextManager[Any]] = nullcontext
    if files.adapter is not None:
        wrapped = _model.with_adapter(name, module, files.adapter).eval().requires_grad_(False)
        if not getattr(module, "hf_device_map", None):
            wrapped.to(device=prepared.device, dtype=prepared.dtype)
        module, no_adapter = wrapped.get_base_model(), wrapped.disable_adapter
    elif prepared.device.type == "cpu":
        pack_layers(module)
    model = LanguageModel(
        name,
        files.commit,
        module,
        tokenizer,
        files.recipe.template,
        prepared.device,
        prepared.dtype,
        _model.longest_text(files, module.config, tokenizer, "causal"),
        base=files.base,
        no_adapter=no_adapter,
    )
    _check_logits(model)
    return model


@torch.no_grad()
def _check_logits(model: LanguageModel) -> None:
    """Raise a `HubError` if `LanguageModel.logits` differs from the logits of the model itself."""
    size = model.model.get_input_embeddings().weight.shape[0]
    ids = torch.arange(6, device=model.device)[None] % size
    direct = model.model(input_ids=ids).logits[0].float()
    ours = model.logits(_hidden(model, ids, torch.ones_like(ids))[0])
    gap = float((direct.to(ours.device) - ours).abs().max())
    if not gap <= 1e-2 * max(1.0, float(direct.abs().max())):
        raise HubError(
            f"{model.name}: its architecture ({model.model.config.model_type}) computes logits in a way that "
            "is not supported, so log-probabilities would be wrong"
        )


def _token_logprobs(model: LanguageModel, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return log p(target) (n,) after hidden states (n, width), with a block of positions at a time."""
    width = model.model.get_output_embeddings().weight.shape[0]
    block = max(1, _LOGITS_AT_ONCE // width)
    parts = []
    for first in range(0, max(len(targets), 1), block):  # one empty block if there are no positions
        logits = model.logits(hidden[first : first + block])
        ids = targets[first : first + block].to(logits.device)
        chosen = logits.gather(1, ids[:, None])[:, 0]
        parts.append(chosen - logits.logsumexp(1))
    return torch.cat(parts)


def _pass(model: LanguageModel, texts: Sequence[Encoded], starts: Sequence[int]) -> list[tuple[float, int]]:
    """Run texts, padded on the right, through the model once."""
    length = max(len(text) for text in texts)
    ids = torch.tensor([[*text.input_ids, *[0] * (length - len(text))] for text in texts])
    positions = torch.arange(length)[None]
    lengths = torch.tensor([len(text) for text in texts])[:, None]
    present = positions < lengths
    # The first token of a text has no probability.
    counted = present & (positions >= torch.tensor(starts)[:, None]) & (positions > 0)
    hidden = _hidden(model, ids.to(model.device), present.long().to(model.device))
    row, column = counted.nonzero(as_tuple=True)
    values = _token_logprobs(
        model, hidden[row.to(hidden.device), column.to(hidden.device) - 1], ids[row, column]
    )
    sums = torch.zeros(len(texts), dtype=torch.float64).index_add_(0, row, values.double().cpu())
    return list(zip(sums.tolist(), counted.sum(1).tolist(), strict=True))


def _hidden(model: LanguageModel, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return model.model.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
