"""Tiny random reward models, a small tokenizer and a small benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ("<pad>", "<bos>", "<eos>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>")
TEXTS = ("What is two plus two? It is four.", "Name a colour: blue, green or red.", "Why is the sky blue?")


def tiny_tokenizer(*, chat_template: str | None = CHAT_TEMPLATE) -> Any:
    """Return a byte-level BPE tokenizer with a few hundred tokens and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>"
    )
    fast.chat_template = chat_template
    return fast


def tiny_config(model_type: str = "llama", **changes: Any) -> Any:
    """Return a configuration with two layers of width 32, for `tiny_tokenizer`."""
    from transformers import AutoConfig

    values: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "num_labels": 1,
    }
    if model_type in ("deberta-v2", "gpt_neox", "bert"):
        values.pop("num_key_value_heads")
    return AutoConfig.for_model(model_type, **{**values, **changes})


def tiny_classifier(model_type: str = "llama", *, seed: int = 0, **changes: Any) -> Any:
    """Return a random classifier with one label."""
    import torch
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(seed)
    config = tiny_config(model_type, **changes)
    model = AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():  # larger than usual, so that rewards differ clearly
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)
    return model.eval()


def save_model(folder: Path, model: Any = None, *, chat_template: str | None = CHAT_TEMPLATE) -> Path:
    """Save a model (default a tiny llama) with the tokenizer as a folder that `from_pretrained` reads."""
    (model or tiny_classifier()).save_pretrained(folder)
    tiny_tokenizer(chat_template=chat_template).save_pretrained(folder)
    return folder


def benchmark_rows(n: int = 6) -> list[dict[str, Any]]:
    """Return prompts in RewardBench 2's schema; two more are in Ties."""
    rows = [
        {
            "id": str(i),
            "prompt": f"What is {i} plus {i}?",
            "chosen": [f"It is {2 * i}."],
            "rejected": [f"It is {2 * i + d}." for d in (1, 2, 3)],
            "num_correct": 1,
            "num_incorrect": 3,
            "total_completions": 4,
            "models": ["a", "b", "c", "d"],
            "subset": "Math" if i % 2 else "Focus",
            "additional_metadata": {"category": "x"},
        }
        for i in range(n)
    ]
    for name, colours in (("ref:0", ["blue"]), ("tied:0", ["blue", "green", "red"])):
        rows.append(
            rows[0]
            | {
                "id": name,
                "prompt": "Name a colour.",
                "chosen": colours,
                "rejected": ["table", "Tuesday"],
                "num_correct": len(colours),
                "num_incorrect": 2,
                "total_completions": len(colours) + 2,
                "subset": "Ties",
            }
        )
    return rows


def save_benchmark(folder: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    """Save prompts as a Hub data set: a Parquet file under `data/`."""
    import pyarrow
    import pyarrow.parquet

    (folder / "data").mkdir(parents=True)
    table = pyarrow.Table.from_pylist(rows or benchmark_rows())
    pyarrow.parquet.write_table(table, folder / "data" / "test-00000-of-00001.parquet")
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: test\n    path: data/test-*\n---\n"
    )
    return folder
