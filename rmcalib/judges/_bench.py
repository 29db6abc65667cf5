"""Measure how fast this machine scores: random texts, with lengths as in a benchmark, for about a minute."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib.judges._hardware import keep_rate
from rmcalib.judges._inference import budget, devices, forward
from rmcalib.judges._inference.architectures import running_config
from rmcalib.judges._inference.packing import Text
from rmcalib.judges._inference.scoring import ItemScorer
from rmcalib.judges._inference.templates import Encoded
from rmcalib.judges._options import LoadOptions
from rmcalib.judges._registry import Recipe
from rmcalib.judges._reward_model import RewardModel, load_model

if TYPE_CHECKING:
    import torch

__all__ = ["Benchmarked", "bench"]

# hidden size, inner size, layers, heads, key heads: small on a CPU, about 1.1 billion parameters elsewhere
_SHAPES = {"cpu": (256, 704, 4, 4, 4), "accelerator": (2048, 5632, 22, 32, 4)}
_PLAIN_BATCH = 8


@dataclass(frozen=True)
class Benchmarked:
    """The result of `bench`.

    Attributes
    ----------
    model, parameters
        Name of the model, and its number of parameters.
    device, device_name, dtype : str
        What it ran on, and in which dtype.
    attention : str
        How attention was computed: `flex`, `branches`, `mask` or `plain`.
    seconds, responses, tokens, passes
        Time, responses, tokens of all texts, and forward passes.
    tokens_per_second : float
        Speed of rmcalib.
    plain_tokens_per_second : float
        Speed of a plain loop over batches of eight of the same texts.
    operations_per_second : float
        Two operations for every parameter and token, shared tokens included. The plans of `rmcalib batch` use
        it.
    peak_operations_per_second : float
        Speed of the best matrix product on this device.
    share_of_peak : float
        The arithmetic that cannot be avoided, per second, as a fraction of that speed.
    padding : float
        Fraction of the computed tokens that were padding.
    shared : float
        Fraction of the tokens that were not computed again, because responses share a prompt.
    token_budget : int
        The most tokens in one forward pass.
    memory_peak, memory_estimate
        Bytes beyond the weights. The peak is None if it cannot be measured.
    notices : tuple[str, ...]
        Warnings during the measurement.
    measured : str
        The date.
    """

    model: str
    parameters: int
    device: str
    device_name: str
    dtype: str
    attention: str
    seconds: float
    responses: int
    tokens: int
    tokens_per_second: float
    plain_tokens_per_second: float
    operations_per_second: float
    peak_operations_per_second: float
    share_of_peak: float
    padding: float
    shared: float
    passes: int
    token_budget: int
    memory_peak: int | None
    memory_estimate: int
    notices: tuple[str, ...]
    measured: str

    def remember(self) -> None:
        """Store the result in the user's cache folder, for the plans of `rmcalib batch`."""
        keep_rate(dataclasses.asdict(self))


def bench(
    model: str | RewardModel | None = None, *, seconds: float = 60.0, device: str = "auto", seed: int = 0
) -> Benchmarked:
    """Score random texts for about `seconds`, and measure the speed.

    Parameters
    ----------
    model : str | RewardModel, optional
        A Hub id, a folder, `"demo"` or a loaded model. Default: a llama with random weights, small on a CPU
        and of 1.1 billion parameters on other devices.
    seconds : float
        How long to score. Comparing with a plain loop takes about a third longer.
    device : str
        As in `LoadOptions`.
    seed : int
        Seed of the texts and of the random model.

    Returns
    -------
    Benchmarked
        Speed, memory and padding (see its attributes). `.remember()` stores the speed for the plans of
        `rmcalib batch`.

    Examples
    --------
    >>> found = bench("demo", seconds=0.1, device="cpu")
    >>> found.tokens_per_second > 0, found.attention
    (True, 'branches')
    """
    if not seconds > 0:
        raise ValueError(f"seconds: must be above 0, got {seconds}")
    if isinstance(model, RewardModel):
        loaded = model
    elif model is None:
        loaded = _random_model(devices.choose_device(device), seed)
    else:
        loaded = load_model(model, LoadOptions(device=device))
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = _measure(loaded, seconds, lambda n: _texts(loaded, n, rng))
    notices = tuple(str(one.message) for one in caught if issubclass(one.category, UserWarning))
    return dataclasses.replace(result, notices=notices)


def _measure(
    model: RewardModel, seconds: float, draw: Callable[[int], list[tuple[Encoded, ...]]]
) -> Benchmarked:
    scorer = ItemScorer(model)
    step = 2 if model.device.type == "cpu" else scorer.window
    scorer.rewards(draw(step))  # a first pass, which also compiles, loads kernels and checks sharing
    peak = _matmul_peak(model.device, model.dtype)
    _reset_peak(model.device)
    held = _peak_memory(model.device)
    scorer.work = type(scorer.work)()
    needed, responses = 0.0, 0
    plain_texts: list[Text] = []
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds or not responses:
        drawn = draw(step)
        scorer.rewards(drawn)  # waits for the device at its end
        needed += sum(_operations(model, group) for group in drawn)
        responses += sum(map(len, drawn))
        plain_texts += [Text(0, 0, text, len(text) - 1) for group in drawn for text in group]
    spent = time.perf_counter() - start
    used = _peak_memory(model.device)
    work, config = scorer.work, running_config(model)
    parameters = sum(parameter.numel() for parameter in model.backbone.parameters())
    sharing = scorer.sharing
    computed = work.tokens - work.shared + work.padding
    estimate = budget.pass_bytes(
        config,
        min(scorer.budget.tokens, scorer.usual),
        itemsize=model.dtype.itemsize,
        longest=scorer.limit,
        masks=budget.masks_at_once(sharing),
    )
    return Benchmarked(
        model=model.name,
        parameters=parameters,
        device=str(model.device),
        device_name=devices.describe_device(model.device),
        dtype=str(model.dtype).removeprefix("torch."),
        attention="plain" if sharing is None else sharing.attention,
        seconds=spent,
        responses=responses,
        tokens=work.tokens,
        tokens_per_second=work.tokens / spent,
        plain_tokens_per_second=_plain_speed(model, plain_texts, seconds / 3),
        operations_per_second=2 * parameters * work.tokens / spent,
        peak_operations_per_second=peak,
        share_of_peak=needed / spent / peak,
        padding=work.padding / max(1, computed),
        shared=work.shared / max(1, work.tokens),
        passes=work.passes,
        token_budget=scorer.budget.tokens,
        memory_peak=None if used is None or held is None else used - held,
        memory_estimate=int(estimate),
        notices=(),
        measured=time.strftime("%Y-%m-%d"),
    )


def _texts(model: RewardModel, n_prompts: int, rng: np.random.Generator) -> list[tuple[Encoded, ...]]:
    """Draw prompts with four responses each, with log-normal lengths as in RewardBench 2."""
    vocabulary = int(model.backbone.get_input_embeddings().weight.shape[0])  # type: ignore[operator]
    limit = model.max_length

    def ids(length: float) -> tuple[int, ...]:
        drawn = rng.integers(vocabulary // 10, vocabulary, max(1, int(length)))
        return tuple(drawn.tolist())

    prompts = []
    for _ in range(n_prompts):
        prompt = ids(min(35 + rng.lognormal(np.log(45), 1.5), limit // 2))
        usual = rng.normal(np.log(280), 0.7)
        own = np.minimum(rng.lognormal(usual, 0.5, size=4), limit - len(prompt))
        prompts.append(tuple(Encoded((*prompt, *ids(n)), len(prompt), False, False) for n in own))
    return prompts


def _operations(model: RewardModel, group: tuple[Encoded, ...]) -> float:
    """Count the arithmetic that cannot be avoided: each different token of a prompt once."""
    config = running_config(model)
    shared = group[0].prefix_len
    different = shared + sum(len(text) - shared for text in group)
    pairs = sum(len(text) * (len(text) + 1) for text in group) / 2 - (len(group) - 1) * shared**2 / 2
    layers: Any = getattr(model.backbone, "layers", model.backbone)
    weights = sum(parameter.numel() for parameter in layers.parameters() if parameter.ndim > 1)
    n_layers = int(getattr(config, "num_hidden_layers", 1))
    return float(2 * weights * different + 4 * n_layers * int(getattr(config, "hidden_size", 0)) * pairs)


def _plain_speed(model: RewardModel, texts: list[Text], seconds: float) -> float:
    """Return the tokens per second of a plain loop: batches of eight texts, in the given order."""
    tokens, start = 0, time.perf_counter()
    for first in range(0, len(texts), _PLAIN_BATCH):
        batch = texts[first : first + _PLAIN_BATCH]
        forward.plain_rewards(model, batch)[1].cpu()
        tokens += sum(map(len, batch))
        if time.perf_counter() - start > seconds:
            break
    return tokens / (time.perf_counter() - start)


def _matmul_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.5) -> float:
    """Return the best speed of a square matrix product on a device, in operations per second."""
    import torch

    n = 1_024 if device.type == "cpu" else 8_192
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end or not best:
        _wait(device)
        start = time.perf_counter()
        a @ b
        _wait(device)
        best = max(best, 2 * n**3 / max(time.perf_counter() - start, 1e-9))
    return best


def _wait(device: torch.device) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _reset_peak(device: torch.device) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _peak_memory(device: torch.device) -> int | None:
    import torch

    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else None


def _random_model(device: torch.device, seed: int) -> RewardModel:
    """Build a llama with random weights, in float32 on a CPU and in bfloat16 elsewhere."""
    import torch
    from transformers import AutoModel, LlamaConfig

    from rmcalib.judges._inference.heads import Head

    hidden, inner, layers, heads, key_heads = _SHAPES["cpu" if device.type == "cpu" else "accelerator"]
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    configure: Any = LlamaConfig
    config = configure(
        vocab_size=32_000,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        max_position_embeddings=4_096,
    )
    torch.manual_seed(seed)
    with device:
        backbone: Any = AutoModel.from_config(config, dtype=dtype)
        head = Head([torch.nn.Linear(hidden, 1)])
    return RewardModel(
        name="random llama",
        revision="",
        recipe=Recipe(model="random llama"),
        tokenizer=None,
        backbone=backbone.to(device).eval().requires_grad_(False),
        head=head.to(device).eval().requires_grad_(False),
        kind="causal",
        config=config,
        device=device,
        dtype=dtype,
        max_length=4_096,
    )
