"""Tiny random reward models of every architecture, made on the spot, and an independent slow way to score."""

from __future__ import annotations

import random
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedTokenizerFast
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from rmcalib.benchmarks import Item
from rmcalib.judges import Recipe, RewardModel
from rmcalib.judges._weights import Head, Output

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
)
_SPECIAL = ["<pad>", "<s>", "</s>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _GROUPED),
    "llama-stray-window": ("llama", {**_GROUPED, "sliding_window": 7}),  # llama has no windows: ignored
    "qwen2-window": (
        "qwen2",
        {**_GROUPED, "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {**_GROUPED, "head_dim": 16}),
    "gemma2": ("gemma2", {**_GROUPED, "head_dim": 8, "sliding_window": 7, "query_pre_attn_scalar": 8}),
    "mistral-window": ("mistral", {**_GROUPED, "sliding_window": 7}),
    "mixtral-window": ("mixtral", {**_GROUPED, "num_local_experts": 4, "sliding_window": 7}),
    "phi3-window": ("phi3", {**_GROUPED, "sliding_window": 7}),
    "gpt_neox": ("gpt_neox", _SIZES),
    "olmo2": ("olmo2", _GROUPED),
    "deberta-v2": (
        "deberta-v2",
        {**_SIZES, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16},
    ),
}
# transformers 4.57 has no sequence classifier for olmo2.
if "olmo2" not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES:
    del ARCHITECTURES["olmo2"]


def tiny_tokenizer(*, bos_twice: bool = True, ends: bool = False) -> Any:
    """A byte-level tokenizer that adds <s> to every text, as its chat template does too."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["the answer is not what you think it is " * 3], trainer)
    if bos_twice:
        single = "<s> $A </s>" if ends else "<s> $A"
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, pair=None, special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    make: Any = PreTrainedTokenizerFast
    fast = make(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    fast.chat_template = CHAT_TEMPLATE
    return fast


def tiny_model(
    architecture: str, *, pad: int | None = None, attention: str | None = None, seed: int = 0, **recipe: Any
) -> tuple[RewardModel, Any]:
    """Build a random reward model; return it and its stock classifier."""
    kind, sizes = ARCHITECTURES[architecture]
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, vocab_size=400, num_labels=1, **sizes)
    config.pad_token_id = 0 if kind == "deberta-v2" else pad
    kwargs = {} if attention is None else {"attn_implementation": attention}
    make: Any = AutoModelForSequenceClassification
    stock = make.from_config(config, **kwargs).eval().float()
    for parameter in stock.parameters():  # far from zero, so that mistakes are visible
        torch.nn.init.normal_(parameter, std=0.2) if parameter.ndim > 1 else None
    head: torch.nn.Module
    if kind == "deberta-v2":
        backbone, head, role = stock, Output(), "encoder"
    else:
        backbone, head, role = stock.base_model, Head([_score_layer(stock)]), "causal"
    model = RewardModel(
        name=f"tiny/{architecture}",
        revision="0" * 40,
        recipe=Recipe(model=f"tiny/{architecture}", **recipe),
        tokenizer=tiny_tokenizer(),
        backbone=backbone,
        head=head,
        kind=role,
        config=stock.config,
        device=torch.device("cpu"),
        dtype=torch.float32,
        max_length=256,
    )
    return model, stock


def tiny_items(n: int = 12, *, seed: int = 0, longest: int = 12) -> list[Item]:
    """Prompts with two to five responses of very different lengths, some empty, one repeated."""
    rng = random.Random(seed)
    words = [
        "the",
        "answer",
        "is",
        "not",
        "what",
        "you",
        "think",
        "7",
        "\u00e9t\u00e9",
        "\U0001f642",
        "yes",
        "no",
    ]

    def text(low: int) -> str:
        return " ".join(rng.choices(words, k=rng.randint(low, longest)))

    items = []
    for number in range(n):
        responses = tuple(text(0) for _ in range(rng.randint(2, 5)))
        if number % 4 == 3:
            responses = (*responses, responses[0])
        items.append(Item(f"item-{number}", "ABC"[number % 3], text(1), responses, 1))
    return items


def slow_rewards(model: RewardModel, stock: Any, items: list[Item]) -> list[tuple[float, ...]]:
    """Score one response at a time with the stock classifier: without padding, sharing or our pooling."""
    rewards = []
    for item in items:
        own = []
        for response in item.responses:
            text = "".join(
                ["<s>", "<|user|>", str(item.prompt), "<|end|>", "<|assistant|>", response, "<|end|>"]
            )
            ids = model.tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
            with torch.no_grad():
                own.append(float(stock(input_ids=ids[:, : model.max_length]).logits[0, 0]))
        rewards.append(tuple(own))
    return rewards


def _score_layer(stock: Any) -> Any:
    return stock.score if hasattr(stock, "score") else stock.classifier
