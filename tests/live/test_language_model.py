"""A language model that a real vLLM serves, as a judge: its probabilities are those of transformers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmcalib
from rmcalib.benchmarks import Item
from rmcalib.judges import load_judge
from rmcalib.judges._generative import GenerativeJudge
from rmcalib.judges._judge import scored_chunks
from tests.hub.tiny import save_model, tiny_config
from tests.live.backend import running

LETTERS = ("A", "B", "C", "D")


@dataclass(frozen=True)
class Served:
    """A judge whose server runs, and the folder with its model."""

    judge: Any
    folder: Path

    @property
    def url(self) -> str:
        return str(self.judge._servers[0].url)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    import torch
    from transformers import AutoModelForCausalLM

    home = tmp_path_factory.mktemp("vllm")
    torch.manual_seed(0)
    make: Any = AutoModelForCausalLM
    sizes: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 4096}
    model = make.from_config(tiny_config(num_attention_heads=4, num_key_value_heads=2, **sizes)).eval()
    for parameter in model.parameters():  # letters must differ clearly
        torch.nn.init.normal_(parameter, std=0.08) if parameter.ndim > 1 else None
    folder = save_model(home / "lm", model)
    with running(folder, judging="letter") as judge:
        yield Served(judge, folder)


def judges(served: Served, judging: str, **options: Any) -> tuple[GenerativeJudge, GenerativeJudge]:
    """The same judge, loaded here and served."""
    here = load_judge(str(served.folder), judging=judging, device="cpu", **options)
    there = load_judge(str(served.folder), judging=judging, endpoint=served.url, **options)
    assert isinstance(here, GenerativeJudge)
    assert isinstance(there, GenerativeJudge)
    return here, there


def items(n: int = 12) -> tuple[Item, ...]:
    return rmcalib.load_benchmark("demo", limit=n).items


def rewards(judge: GenerativeJudge, n: int = 12) -> Any:
    return np.array([r for chunk in scored_chunks(judge, items(n)) for one in chunk for r in one.rewards])


def test_letters_are_those_of_transformers(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = judges(served, "letter")
    p, served_items = np.exp(rewards(here)), [one for c in scored_chunks(there, items()) for one in c]
    q = np.exp([reward for one in served_items for reward in one.rewards])
    with capsys.disabled():
        print(
            f"\n{len(p)} letter probabilities, {p.min():.3f} to {p.max():.3f}, differ by up to "
            f"{np.abs(p - q).max():.2g}"
        )
    assert np.ptp(p) > 0.05
    assert np.abs(p - q).max() < 1e-3
    assert not any(one.details["floored"][0] for one in served_items)


def test_the_backend_gives_the_rewards_of_transformers(served: Served) -> None:
    here, _ = judges(served, "letter")
    assert rewards(served.judge) == pytest.approx(rewards(here), abs=1e-4)
    assert served.judge.about()["difference_from_transformers"] < 1e-4


def test_log_probabilities_are_those_of_transformers(served: Served) -> None:
    here, there = judges(served, "letter")
    messages = here.prompt.questions[0].messages("Name a colour.", ["blue", "Tuesday", "4", ""])
    # From the odds of structured outputs, where a letter is not in the top 20.
    ours, theirs = (judge.model.label_logprobs(messages, LETTERS) for judge in (here, there))
    assert not any(theirs.floored)
    assert np.diff(theirs.logprobs) == pytest.approx(np.diff(ours.logprobs), abs=1e-3)


def test_ratings_are_those_of_transformers(served: Served) -> None:
    here, there = judges(served, "rating")
    assert rewards(there, 4) == pytest.approx(rewards(here, 4), abs=1e-3)


def test_samples_are_seeded(served: Served) -> None:
    _, there = judges(served, "votes")
    messages = there.prompt.questions[0].messages("Name a colour.", ["blue", "red"])
    there.identity()
    texts = [
        there.model.sample(messages, seed=seed, temperature=1.0, max_tokens=16).text for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_speed(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    for who, judge in zip(("our own model", "vLLM"), judges(served, "letter", judge_seed=1), strict=True):
        judge.identity()  # loads the model, or connects
        start = time.perf_counter()
        scored = [one for chunk in scored_chunks(judge, items(24)) for one in chunk]
        seconds = time.perf_counter() - start
        letters, tokens = (int(sum(one.details[name][0] for one in scored)) for name in ("answers", "tokens"))
        assert letters >= 48
        with capsys.disabled():
            print(f"\n{who}: {letters} letters, {tokens:,} tokens in {seconds:.1f} s", end="")
    with capsys.disabled():
        print()
