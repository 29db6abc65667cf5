"""How fast scoring is, compared with the usual loop and with a lower bound on the arithmetic.

    python scripts/bench_scoring.py [--prompts 32] [--threads 1]

A random llama of about 30 million parameters scores prompts with four responses each; CPU time, one thread.

- Baselines: the usual loop, as in RewardBench's `run_v2.py`: texts in data order, batches of 1, 8, 16 and 64
  padded to the longest, the stock classifier. (64 is that program's default.)
- Bound: the arithmetic for every different token once (matrix products of all layers, and attention over what
  a token may see), at the best speed that a matrix product reaches on this machine in the same run. The last
  layer is counted in full although only its pooled tokens are needed; the stricter bound, which leaves the
  rest of it out, is printed too.

The result depends on the lengths, which are drawn from log-normal distributions. Long prompts gain from being
shared, and the usual loop pads more if lengths differ more. `--lengths chat`, the default, has as much text
as RewardBench 2: its card gives 13.8 MB for 1,865 prompts, which is about 1,700 tokens per prompt with its
responses, at 4.3 bytes per token. The spread is an assumption: a heavy tail for prompts as people type them
into chats (median 45, sigma 1.5), and responses of different models (median 280, sigma 0.7 between prompts
and 0.5 within), each cut at 2,000 tokens. `--lengths even` has shorter and more similar texts (prompts 80 and
1.0; responses 220, 0.7 and 0.4; cut at 1,000). Every prompt begins with a system text of 30 tokens, as many
chat templates have it.

The whole run takes about 15 minutes, and 9 GB for batches of 64; `--batches 1 8 16` needs less than half of
both. Tokenisation is included, and the rewards of all ways are compared.
For a quick try: `--prompts 1 --batches 1 --layers 1 --peak-seconds 0.1`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

from rmcalib.benchmarks import Item
from rmcalib.judges import Recipe, RewardModel
from rmcalib.judges._scoring import score_items
from rmcalib.judges._templates import encode, render
from rmcalib.judges._weights import Head

VOCABULARY = 8_192
HEADER = "w9 " * 30
# prompts: median, sigma; responses: median, sigma between prompts, sigma within; the longest of either
LENGTHS = {"chat": (45, 1.5, 280, 0.7, 0.5, 2_000), "even": (80, 1.0, 220, 0.7, 0.4, 1_000)}


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 16, 64])
    parser.add_argument("--lengths", choices=LENGTHS, default="chat")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--peak-seconds", type=float, default=2.0, help="how long a matrix product is timed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model, stock = make_model(args.seed, args.layers)
    items = make_items(args.prompts, args.seed, args.lengths)

    our_loop(model, items[:2])  # warm up
    peak = matmul_peak(args.peak_seconds)
    seconds, rewards = cpu_time(our_loop, model, items)
    print(f"ours: {seconds:.1f} s", file=sys.stderr)
    loops = {}
    for batch in args.batches:
        loops[batch] = cpu_time(usual_loop, stock, model.tokenizer, items, batch)
        ratio = loops[batch][0] / seconds
        print(f"usual loop, batch {batch}: {loops[batch][0]:.1f} s, {ratio:.2f}x", file=sys.stderr)
    peak = max(peak, matmul_peak(args.peak_seconds))

    work = arithmetic(model, items)
    figures: dict[str, Any] = {
        "lengths": args.lengths,
        "parameters": sum(p.numel() for p in stock.parameters()),
        "texts": sum(len(item.responses) for item in items),
        "tokens": work["tokens"],
        "different_tokens": work["different"],
        "peak_gflops": peak / 1e9,
        "seconds": seconds,
        "share_of_bound": work["flops"] / peak / seconds,
        "share_of_strict_bound": work["strict_flops"] / peak / seconds,
    }
    for batch, (loop_seconds, loop_rewards) in loops.items():
        figures[f"batch_{batch}"] = {
            "seconds": loop_seconds,
            "speedup": loop_seconds / seconds,
            "largest_difference": float(np.abs(np.array(loop_rewards) - rewards).max()),
        }
    print(json.dumps(figures) if args.json else as_text(figures))


def our_loop(model: RewardModel, items: list[Item]) -> list[float]:
    return [reward for chunk in score_items(model, items) for item in chunk for reward in item.rewards]


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


def arithmetic(model: RewardModel, items: list[Item]) -> dict[str, float]:
    """Count tokens, and the floating-point operations that the different ones among them need."""
    config = model.config
    layer: Any = model.backbone.layers[0]
    layer_weights = sum(p.numel() for p in layer.parameters() if p.ndim == 2)
    key_weights = 2 * config.hidden_size * config.num_key_value_heads * config.head_dim
    tokens = different = seen = pooled_seen = texts = 0
    for encoded in encode(items, model.tokenizer, max_length=model.max_length):
        shared = encoded[0].prefix_len
        different += shared
        seen += shared * (shared + 1) // 2
        for text in encoded:
            n = len(text)
            tokens += n
            texts += 1
            different += n - shared
            seen += n * (n + 1) // 2 - shared * (shared + 1) // 2
            pooled_seen += n
    attention = 4 * config.num_attention_heads * config.head_dim
    layers = config.num_hidden_layers
    per_layer = 2 * layer_weights * different + attention * seen
    last = 2 * key_weights * different + 2 * (layer_weights - key_weights) * texts + attention * pooled_seen
    return {
        "tokens": tokens,
        "different": different,
        "flops": float(layers * per_layer),
        "strict_flops": float((layers - 1) * per_layer + last),
    }


def matmul_peak(seconds: float) -> float:
    """Return the best speed of a float32 matrix product, in operations per second of CPU time."""
    best = 0.0
    for shape in ((1024, 512, 1408), (1024, 1024, 1024), (2048, 2048, 2048)):
        n, k, m = shape
        a, b = torch.randn(n, k), torch.randn(k, m)
        end = time.process_time() + seconds / 3
        while time.process_time() < end:
            start = time.process_time()
            torch.mm(a, b)
            torch.mm(a, b)
            best = max(best, 4 * n * k * m / max(time.process_time() - start, 1e-9))
    return best


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
    lines = [
        f"random llama, {figures['parameters'] / 1e6:.1f}M parameters, float32; {figures['texts']} texts,"
        f" {figures['tokens']:,} tokens, {figures['different_tokens']:,} of them different",
        f"matrix-product peak {figures['peak_gflops']:.0f} GFLOP/s; scoring took {figures['seconds']:.1f} s"
        f" of CPU time, {figures['tokens'] / figures['seconds']:,.0f} tokens/s",
        f"share of the arithmetic bound {figures['share_of_bound']:.0%}"
        f" (without the last layer's unneeded part {figures['share_of_strict_bound']:.0%})",
        "",
        f"{'usual loop':<12}{'CPU s':>8}{'we are faster by':>18}{'largest difference':>20}",
    ]
    for name, row in figures.items():
        if name.startswith("batch_"):
            size = name.removeprefix("batch_")
            speedup, difference = f"{row['speedup']:.2f}x", f"{row['largest_difference']:.0e}"
            lines.append(f"batch {size:<6}{row['seconds']:>8.1f}{speedup:>18}{difference:>20}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
