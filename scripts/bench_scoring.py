"""How fast scoring is on a CPU, beside the usual loop, vLLM, and the matrix products alone.

    python scripts/bench_scoring.py [--model FOLDER] [--prompts 32] [--threads 1]

A classifier scores prompts with four responses each: the model in a folder, or a random llama of about 30 million
parameters. All ways take turns, a few prompts at a time, and all times are CPU times, so that other work on the
machine changes the ratios less.

- torch's products: the matrix products alone: those with the weights of every layer are computed for every different
  token once, in blocks of 1,024 tokens, by `torch.mm`; attention is counted at the same speed.
- packed products: the same with packed weights, the fastest that we know: the bound.
- ours: the scorer of this package, tokenisation included.
- usual loop, as in RewardBench's `run_v2.py`: texts in data order, batches padded to the longest, the stock
  classifier.
- vLLM, if it is installed here or RMCALIB_VLLM names a Python that has it: `--backend vllm`, without compiling,
  as many threads as vLLM takes; its start is not counted.

The result depends on the lengths, which are drawn from log-normal distributions. Long prompts gain from being
shared, and the usual loop pads more if lengths differ more. `--lengths chat`, the default, has as much text
as RewardBench 2: its card gives 13.8 MB for 1,865 prompts, which is about 1,700 tokens per prompt with its
responses, at 4.3 bytes per token. The spread is an assumption: a heavy tail for prompts as people type them
into chats (median 45, sigma 1.5), and responses of different models (median 280, sigma 0.7 between prompts
and 0.5 within), each cut at 2,000 tokens. `--lengths even` has shorter and more similar texts (prompts 80 and
1.0; responses 220, 0.7 and 0.4; cut at 1,000). The words are random.

The rewards of all ways are compared. For a quick try: `--prompts 1 --batches 1 --layers 1`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import psutil
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from rmcalib.benchmarks import Item
from rmcalib.judges import RewardModel, load_judge
from rmcalib.judges._model import load_model
from rmcalib.judges._packing import PackedLinear
from rmcalib.judges._scoring import ItemScorer
from rmcalib.judges._templates import encode, render

VOCABULARY = 8_192
BLOCK = 1_024
_TURN = 4  # prompts that each way scores in its turn
_VLLM = "--enforce-eager --gpu-memory-utilization 0.4"  # our scorer and the loop need memory, too
HEADER = "w9 " * 30
# prompts: median, sigma; responses: median, sigma between prompts, sigma within; the longest of either
LENGTHS = {"chat": (45, 1.5, 280, 0.7, 0.5, 2_000), "even": (80, 1.0, 220, 0.7, 0.4, 1_000)}


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--model", help="folder of a Llama-like classifier; default a random llama")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="of our scorer")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--lengths", choices=LENGTHS, default="chat")
    parser.add_argument("--layers", type=int, default=8, help="of the random llama")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        if args.model is None:
            write_random_llama(folder, args.seed, args.layers)
        figures = measured(args, args.model or folder)
    print(json.dumps(figures) if args.json else as_text(figures))


def measured(args: argparse.Namespace, folder: str) -> dict[str, Any]:
    model = load_model(folder, device="cpu", dtype=args.dtype)
    stock = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    items = make_items(args.prompts, args.seed, args.lengths, model.tokenizer)
    scorer = ItemScorer(model)
    ways: dict[str, Callable[[list[Item]], tuple[float, list[float]]]] = {
        "torch's products": lambda part: (products(stock.model, model, part), []),
        "packed products": lambda part: (products(model.backbone, model, part), []),
        "ours": lambda part: cpu_time(our_loop, scorer, part),
    }
    for batch in args.batches:
        ways[f"loop, batch {batch}"] = partial(cpu_time, usual_loop, stock, model.tokenizer, batch)
    with vllm_judge(folder) if has_vllm() else nullcontext() as judge:
        if judge is not None:
            ways["vLLM"] = partial(vllm_time, judge)
        seconds, rewards = dict.fromkeys(ways, 0.0), {way: list[float]() for way in ways}
        our_loop(scorer, items[:1])  # warm up
        for start in range(0, len(items), _TURN):
            for way, run in ways.items():
                spent, values = run(items[start : start + _TURN])
                seconds[way] += spent
                rewards[way] += values
    tokens, different, _ = count_tokens(model, items)
    return {
        "model": args.model or "random llama",
        "dtype": args.dtype,
        "parameters": sum(p.numel() for p in stock.parameters()),
        "texts": len(rewards["ours"]),
        "tokens": tokens,
        "different_tokens": different,
        "load": os.getloadavg()[0],
        "share_of_bound": seconds["packed products"] / seconds["ours"],
        "seconds": seconds,
        "largest_differences": {
            way: float(np.abs(np.subtract(values, rewards["ours"])).max())
            for way, values in rewards.items()
            if values and way != "ours"
        },
        "range": float(np.ptp(rewards["ours"])),
    }


def our_loop(scorer: ItemScorer, items: list[Item]) -> list[float]:
    return [reward for chunk in scorer.chunks(items) for item in chunk for reward in item.rewards]


def usual_loop(stock: Any, tokenizer: Any, batch: int, items: list[Item]) -> list[float]:
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


def products(backbone: Any, model: RewardModel, items: list[Item]) -> float:
    """Return the CPU time of the matrix products for some prompts, plain or packed as in `backbone`."""
    _, tokens, seen = count_tokens(model, items)
    layers = [p for p in backbone.layers.modules() if isinstance(p, nn.Linear | PackedLinear)]
    shapes = {layer: tuple(layer.weight.shape) for layer in layers}
    dtype = layers[0].weight.dtype
    inputs = {width: torch.randn(BLOCK, width).to(dtype) for _, width in shapes.values()}
    start, left = time.process_time(), tokens
    with torch.inference_mode():
        while left > 0:
            for layer, (_, width) in shapes.items():
                layer(inputs[width][:left])
            left -= BLOCK
    seconds = time.process_time() - start
    operations = 2.0 * tokens * sum(height * width for height, width in shapes.values())
    config = model.config
    attention = 4.0 * config.num_attention_heads * config.head_dim * seen * config.num_hidden_layers
    return seconds * (1 + attention / operations)


def has_vllm() -> bool:
    return bool(os.environ.get("RMCALIB_VLLM")) or importlib.util.find_spec("vllm") is not None


@contextmanager
def vllm_judge(folder: str) -> Iterator[Any]:
    judge: Any = load_judge(folder, backend="vllm", vllm_options=_VLLM, dtype="float32")
    try:
        judge.identity()  # starts the server
        yield judge
    finally:
        judge.close()


def vllm_time(judge: Any, items: list[Item]) -> tuple[float, list[float]]:
    """Return the CPU time of vLLM's processes, and of ours, for scoring; and the rewards."""
    start = all_seconds()
    rewards = [r for chunk in judge.score(items) for one in chunk for r in one.rewards]
    return all_seconds() - start, rewards


def all_seconds() -> float:
    me = psutil.Process()
    times = [one.cpu_times() for one in (me, *me.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def cpu_time(work: Callable[..., list[float]], *args: Any) -> tuple[float, list[float]]:
    start = time.process_time()
    result = work(*args)
    return time.process_time() - start, result


def make_items(n: int, seed: int, lengths: str, tokenizer: Any) -> list[Item]:
    """Return prompts with four responses of random words, each of which is one token."""
    prompt_median, prompt_sigma, median, between, within, longest = LENGTHS[lengths]
    rng = np.random.default_rng(seed)
    vocabulary = sorted(
        token.lstrip("Ġ▁") for token in tokenizer.get_vocab() if re.fullmatch(r"[Ġ▁][A-Za-z]+|w\d+", token)
    )

    def words(length: float) -> str:
        return " ".join(rng.choice(vocabulary, max(1, int(length))))

    items = []
    for number in range(n):
        prompt = min(rng.lognormal(np.log(prompt_median), prompt_sigma), longest)
        usual = rng.normal(np.log(median), between)
        sizes = np.minimum(rng.lognormal(usual, within, size=4), longest)
        items.append(Item(str(number), "bench", words(prompt), tuple(map(words, sizes)), 1))
    return items


def write_random_llama(folder: str, seed: int, layers: int) -> None:
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
    classifier(config).save_pretrained(folder)
    vocabulary = {"<pad>": 0, "<user>": 1, "<assistant>": 2, "<unk>": 3}
    vocabulary |= {f"w{i}": i for i in range(4, VOCABULARY)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    make: Any = PreTrainedTokenizerFast
    tokenizer = make(tokenizer_object=words, pad_token="<pad>", unk_token="<unk>")
    tokenizer.chat_template = (
        HEADER + "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} {% endfor %}"
    )
    tokenizer.save_pretrained(folder)


def as_text(figures: dict[str, Any]) -> str:
    ours = figures["seconds"]["ours"]
    shared = 1 - figures["different_tokens"] / figures["tokens"]
    lines = [
        f"{figures['model']}, {figures['parameters'] / 1e6:.1f}M parameters, {figures['dtype']};"
        f" {figures['texts']} texts, {figures['tokens']:,} tokens, {shared:.0%} of them shared;"
        f" load {figures['load']:.1f}",
        f"ours reaches {figures['share_of_bound']:.0%} of the bound; rewards have a range of {figures['range']:.3g}",
        "",
        f"{'':<18}{'CPU s':>8}{'tokens/s':>10}{'/ ours':>8}{'largest difference':>20}",
    ]
    for way, seconds in figures["seconds"].items():
        speed, ratio = f"{figures['tokens'] / seconds:,.0f}", f"{seconds / ours:.2f}"
        difference = figures["largest_differences"].get(way)
        shown = "" if difference is None else f"{difference:.0e}"
        lines.append(f"{way:<18}{seconds:>8.1f}{speed:>10}{ratio:>8}{shown:>20}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
