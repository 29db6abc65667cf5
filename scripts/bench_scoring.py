"""How fast scoring is on a CPU, beside the usual loop, vLLM, and the matrix products alone.

    python scripts/bench_scoring.py [--prompts 32] [--threads 1]

A random llama of about 30 million parameters scores prompts with four responses each. All times are CPU times of
the same run, so that other work on the machine matters less.

- bound: the matrix products alone: those with the weights of every layer are computed for every different token
  once, in blocks of 1,024 tokens; attention is counted at the same speed.
- ours: the scorer of this package, tokenisation included.
- usual loop, as in RewardBench's `run_v2.py`: texts in data order, batches padded to the longest, the stock
  classifier. Batches of 1, 8 and 32; 32 need 5 GB.
- vLLM, if it is installed here or RMCALIB_VLLM names a Python that has it: `--backend vllm`, without compiling,
  as many threads as vLLM takes; its start is not counted.

The result depends on the lengths, which are drawn from log-normal distributions. Long prompts gain from being
shared, and the usual loop pads more if lengths differ more. `--lengths chat`, the default, has as much text
as RewardBench 2: its card gives 13.8 MB for 1,865 prompts, which is about 1,700 tokens per prompt with its
responses, at 4.3 bytes per token. The spread is an assumption: a heavy tail for prompts as people type them
into chats (median 45, sigma 1.5), and responses of different models (median 280, sigma 0.7 between prompts
and 0.5 within), each cut at 2,000 tokens. `--lengths even` has shorter and more similar texts (prompts 80 and
1.0; responses 220, 0.7 and 0.4; cut at 1,000). Every prompt begins with a system text of 30 tokens, as many
chat templates have it.

The rewards of all ways are compared. For a quick try: `--prompts 1 --batches 1 --layers 1`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

from rmcalib.benchmarks import Item
from rmcalib.judges import Recipe, RewardModel, load_judge
from rmcalib.judges._scoring import ItemScorer
from rmcalib.judges._templates import encode, render
from rmcalib.judges._weights import Head

VOCABULARY = 8_192
BLOCK = 1_024
HEADER = "w9 " * 30
# prompts: median, sigma; responses: median, sigma between prompts, sigma within; the longest of either
LENGTHS = {"chat": (45, 1.5, 280, 0.7, 0.5, 2_000), "even": (80, 1.0, 220, 0.7, 0.4, 1_000)}


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--lengths", choices=LENGTHS, default="chat")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model, stock = make_model(args.seed, args.layers)
    items = make_items(args.prompts, args.seed, args.lengths)
    tokens, different, seen = count_tokens(model, items)

    our_loop(model, items[:1])  # warm up
    # The machine may be busier at one time than at another, so the bound is measured around our own run.
    before = bound_seconds(model, different // 2, seen / 2)
    ours, rewards = cpu_time(our_loop, model, items)
    ways = {"bound": before + bound_seconds(model, different - different // 2, seen / 2), "ours": ours}
    differences = {}
    for batch in args.batches:
        way = f"loop, batch {batch}"
        ways[way], found = cpu_time(usual_loop, stock, model.tokenizer, items, batch)
        differences[way] = float(np.abs(np.subtract(found, rewards)).max())
    if has_vllm():
        ways["vLLM"], found = vllm_seconds(stock, model.tokenizer, items)
        differences["vLLM"] = float(np.abs(np.subtract(found, rewards)).max())
    figures: dict[str, Any] = {
        "lengths": args.lengths,
        "parameters": sum(p.numel() for p in stock.parameters()),
        "texts": sum(len(item.responses) for item in items),
        "tokens": tokens,
        "different_tokens": different,
        "load": os.getloadavg()[0],
        "share_of_bound": ways["bound"] / ours,
        "seconds": ways,
        "largest_differences": differences,
    }
    print(json.dumps(figures) if args.json else as_text(figures))


def our_loop(model: RewardModel, items: list[Item]) -> list[float]:
    return [reward for chunk in ItemScorer(model).chunks(items) for item in chunk for reward in item.rewards]


def usual_loop(stock: Any, tokenizer: Any, items: list[Item], batch: int) -> list[float]:
    """Score in data order, `batch` texts at a time padded to the longest, by the stock classifier."""
    texts = [render(item.prompt, response, tokenizer) for item in items for response in item.responses]
    rewards: list[float] = []
    for start in range(0, len(texts), batch):
        inputs = tokenizer(
            texts[start : start + batch], padding=True, truncation=True, max_length=4_096, return_tensors="pt"
        )
        with torch.inference_mode():
            logits = stock(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        rewards += logits[:, 0].tolist()
    return rewards


def count_tokens(model: RewardModel, items: list[Item]) -> tuple[int, int, float]:
    """Count tokens, the different ones among them, and the pairs of tokens that attention needs."""
    tokens = different = seen = 0
    for encoded in encode(items, model.tokenizer, max_length=model.max_length):
        shared = encoded[0].prefix_len
        different += shared
        seen += shared * (shared + 1) // 2
        for text in encoded:
            n = len(text)
            tokens += n
            different += n - shared
            seen += n * (n + 1) // 2 - shared * (shared + 1) // 2
    return tokens, different, float(seen)


def bound_seconds(model: RewardModel, tokens: int, seen: float) -> float:
    """Return the CPU time of the matrix products for some tokens and pairs of tokens, and nothing else."""
    layers: Any = model.backbone.layers
    weights = [part.weight.t() for layer in layers for part in layer.modules() if isinstance(part, nn.Linear)]
    inputs = {weight.shape[0]: torch.randn(BLOCK, weight.shape[0]) for weight in weights}
    start, left = time.process_time(), tokens
    with torch.inference_mode():
        while left > 0:
            for weight in weights:
                torch.mm(inputs[weight.shape[0]][:left], weight)
            left -= BLOCK
    seconds = time.process_time() - start
    operations = 2.0 * tokens * sum(weight.numel() for weight in weights)
    config = model.config
    attention = 4.0 * config.num_attention_heads * config.head_dim * seen * len(layers)
    return seconds * (1 + attention / operations)


def has_vllm() -> bool:
    return bool(os.environ.get("RMCALIB_VLLM")) or importlib.util.find_spec("vllm") is not None


def vllm_seconds(stock: Any, tokenizer: Any, items: list[Item]) -> tuple[float, list[float]]:
    """Return the CPU time of vLLM's processes, and of ours, for scoring; and the rewards."""
    with tempfile.TemporaryDirectory() as folder:
        stock.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        judge: Any = load_judge(folder, backend="vllm", vllm_options="--enforce-eager")
        try:
            judge.identity()  # starts the server
            start = all_seconds()
            rewards = [r for chunk in judge.score(items) for one in chunk for r in one.rewards]
            return all_seconds() - start, rewards
        finally:
            judge.close()


def all_seconds() -> float:
    me = psutil.Process()
    times = [one.cpu_times() for one in (me, *me.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def cpu_time(work: Callable[..., list[float]], *args: Any) -> tuple[float, list[float]]:
    start = time.process_time()
    result = work(*args)
    return time.process_time() - start, result


def make_items(n: int, seed: int, lengths: str = "chat") -> list[Item]:
    prompt_median, prompt_sigma, median, between, within, longest = LENGTHS[lengths]
    rng = np.random.default_rng(seed)

    def words(length: float) -> str:
        return " ".join(f"w{i}" for i in rng.integers(10, VOCABULARY - 10, max(1, int(length))))

    items = []
    for number in range(n):
        prompt = min(rng.lognormal(np.log(prompt_median), prompt_sigma), longest)
        usual = rng.normal(np.log(median), between)
        own = np.minimum(rng.lognormal(usual, within, size=4), longest)
        responses = tuple(words(length) for length in own)
        items.append(Item(str(number), "bench", words(prompt), responses, 1))
    return items


def make_model(seed: int, layers: int = 8) -> tuple[RewardModel, Any]:
    torch.manual_seed(seed)
    configure: Any = LlamaConfig
    config = configure(
        vocab_size=VOCABULARY,
        hidden_size=512,
        intermediate_size=1_408,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=4_096,
        num_labels=1,
        pad_token_id=0,
    )
    classifier: Any = LlamaForSequenceClassification
    stock = classifier(config).eval()
    vocabulary = {"<pad>": 0, "<user>": 1, "<assistant>": 2, "<unk>": 3}
    vocabulary |= {f"w{i}": i for i in range(4, VOCABULARY)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    make: Any = PreTrainedTokenizerFast
    tokenizer = make(tokenizer_object=words, pad_token="<pad>", unk_token="<unk>")
    tokenizer.chat_template = (
        HEADER + "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} {% endfor %}"
    )
    model = RewardModel(
        name="bench",
        revision="",
        recipe=Recipe(model="bench"),
        tokenizer=tokenizer,
        backbone=stock.model,
        head=Head([stock.score]),
        kind="causal",
        config=stock.config,
        device=torch.device("cpu"),
        dtype=torch.float32,
        max_length=4_096,
    )
    return model, stock


def as_text(figures: dict[str, Any]) -> str:
    ours = figures["seconds"]["ours"]
    lines = [
        f"random llama, {figures['parameters'] / 1e6:.1f}M parameters, float32; {figures['texts']} texts,"
        f" {figures['tokens']:,} tokens, {figures['different_tokens']:,} of them different;"
        f" load {figures['load']:.1f}",
        f"ours reaches {figures['share_of_bound']:.0%} of the bound",
        "",
        f"{'':<16}{'CPU s':>8}{'tokens/s':>10}{'/ ours':>8}{'largest difference':>20}",
    ]
    for way, seconds in figures["seconds"].items():
        speed, ratio = f"{figures['tokens'] / seconds:,.0f}", f"{seconds / ours:.2f}"
        difference = figures["largest_differences"].get(way)
        shown = "" if difference is None else f"{difference:.0e}"
        lines.append(f"{way:<16}{seconds:>8.1f}{speed:>10}{ratio:>8}{shown:>20}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
