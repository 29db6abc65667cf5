"""Pages: self-contained, escaped, under a strict policy, and small."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from rmcalib.benchmarks import Benchmark, Item
from rmcalib.integrations import watch
from rmcalib.leaderboards import leaderboard
from rmcalib.metrics import Settings, compare
from rmcalib.repair import apply, calibrate, combine, decide
from rmcalib.report import evaluate, prompts
from rmcalib.report.document import print_document, to_html, to_markdown
from rmcalib.scores import Scores
from tests.report.boards import board_of, evaluation, synthetic, write_runs

EVIL = "org/<script>alert(1)</script>$x$&`|\x1b[31m"
MB = 1_000_000
KINDS = ("evaluation", "comparison", "board", "runs", "calibration", "applied", "decisions", "panel", "watch")


class Reader(HTMLParser):
    """Collects elements with their attributes, and the contents of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, dict[str, str | None], str]] = []
        self.open: tuple[str, dict[str, str | None]] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open = (tag, dict(attrs)) if tag in ("script", "style") else None

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 (as the base class has it)
        self.open = None

    def handle_data(self, data: str) -> None:
        if self.open is not None:
            self.inside.append((*self.open, data))


def result(kind: str, tmp_path: Path) -> Any:
    if kind == "evaluation":
        item = Item("p0", "Math", EVIL, (EVIL, "b", "c", "</script><b>x"), 1)
        return evaluation(model=EVIL, benchmark=Benchmark(EVIL, "1", (item,)))
    if kind == "comparison":
        return compare(synthetic(0), synthetic(1), names=(EVIL, "b"), resamples=20)
    if kind == "calibration":
        return calibrate(synthetic(n=200, scale=4.0, manifest={"model": EVIL}))
    if kind == "applied":
        rows = pd.DataFrame({"prompt": ["a", "a"], EVIL: [EVIL, "b"], "reward": [1.0, 0.0]})
        return apply(rows, calibrate(synthetic(n=40)))
    if kind == "watch":
        samples = {"prompt": np.arange(40) // 2, "reward": np.arange(40.0) % 3, "label": np.arange(40) % 2}
        return watch(pd.DataFrame({**samples, "step": np.arange(40) // 20}))
    if kind == "decisions":
        return decide(synthetic(n=120))
    if kind == "panel":
        return combine([synthetic(0), synthetic(1)], names=[EVIL, "b"])
    if kind == "board":
        return leaderboard([synthetic(0), synthetic(1)], names=[EVIL, "b"], resamples=20)
    return board_of([write_runs(tmp_path, 3)], settings=Settings(resamples=20))


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_self_contained_and_escaped(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = result(kind, tmp_path)
    page = to_html(found.document())
    read = Reader(page)
    tags = {tag for tag, _ in read.elements}
    assert not tags & {"link", "iframe", "object", "img", "base"}
    assert all("src" not in attributes for _, attributes in read.elements)
    assert all("style" not in attributes for _, attributes in read.elements)
    assert all(not name.startswith("on") for _, attributes in read.elements for name in attributes)
    links = [str(attributes["href"]) for tag, attributes in read.elements if tag == "a"]
    assert all(link.startswith("#") for link in links)
    assert "http" not in re.sub(r'http-equiv|http://www\.w3\.org/2000/svg|"source":"[^"]*"', "", page)
    assert [tag for tag, *_ in read.elements].count("script") == 2  # data and ours
    assert "\x1b" not in page
    policy = next(a["content"] for t, a in read.elements if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert "unsafe" not in policy
    for tag, attributes, text in read.inside:
        if attributes.get("type") != "application/json":
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "<script>alert" not in found._repr_html_()
    assert len(found._repr_html_()) < 150_000
    assert len(repr(found).splitlines()) < 20
    assert isinstance(found.plot(), Figure)
    # Terminal and Markdown are drawn from the same document.
    document = found.document()
    print_document(document)
    shown = capsys.readouterr().out
    assert "\x1b[31m" not in shown
    assert " ".join(document.sentences[0].split())[:30] in " ".join(shown.split())
    markdown = to_markdown(document)
    assert "<script>" not in markdown.replace("\\<", "")
    for block in document.first:
        if rows := getattr(block, "rows", None):
            assert markdown.count("\n|") >= len(rows)


def data_of(page: str) -> dict[str, Any]:
    found = next(text for tag, a, text in Reader(page).inside if a.get("type") == "application/json")
    content: dict[str, Any] = json.loads(found)
    return content


def texts(n: int, length: int) -> Benchmark:
    words = ("wörd " * (length // 5)).strip()
    return Benchmark("b", "1", tuple(Item(f"p{i}", "c", words, (words,) * 4, 1) for i in range(n)))


def test_the_page_of_a_benchmark_is_small_and_has_all_prompts() -> None:
    found = evaluate(synthetic(n=1865), benchmark=texts(1865, 1500), metrics=["accuracy"], resamples=20)
    page = to_html(found.document())
    assert len(page.encode()) <= 3 * MB
    data = data_of(page)
    assert len(data["prompts"]) == data["total"] == data["texts"] == 1865
    scores = found.scores
    rewards = {entry[0]: entry[2] for entry in data["prompts"]}
    for i in (0, 5, 1864):
        own = scores.reward[scores.offsets[i] : scores.offsets[i + 1]]
        np.testing.assert_allclose(rewards[f"p{i}"], own, rtol=1e-5)


def test_beyond_the_limits_wrong_prompts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "ENTRY_BYTES", 12_000)
    monkeypatch.setattr(prompts, "PAGE_BYTES", 30_000)
    found = evaluate(
        synthetic(n=300, skill=1.5), benchmark=texts(300, 100), metrics=["accuracy"], resamples=20
    )
    data = data_of(to_html(found.document()))
    assert data["total"] == 300
    assert 150 < len(data["prompts"]) < 250
    assert 0 < data["texts"] < len(data["prompts"])
    weights = np.concatenate([np.full(entries, weight) for entries, weight in data["strata"]])
    assert weights.sum() == pytest.approx(300)
    right = [float(np.argmax(entry[2]) == 0) for entry in data["prompts"]]
    assert np.average(right, weights=weights) == pytest.approx(found.value("accuracy"))
    wrong = {entry[0] for entry in data["prompts"] if np.argmax(entry[2]) != 0}
    reward = found.scores.reward.reshape(-1, 4)
    assert wrong == {f"p{i}" for i in np.flatnonzero(reward.argmax(axis=1) != 0)}
    with_texts = [len(entry) == 6 for entry in data["prompts"]]
    assert with_texts == sorted(with_texts, reverse=True)  # the least expected outcomes keep their texts


def test_hundreds_of_categories_and_extreme_rewards_have_a_page(tmp_path: Path) -> None:
    rewards = 1e90 * np.random.default_rng(0).normal(size=(400, 2))
    scores = Scores.from_arrays(rewards, category=[f"category {i % 200}" for i in range(400)])
    found = evaluate(scores, metrics=["accuracy", "overconfidence"], resamples=20)
    page = found.write(tmp_path)
    assert page.stat().st_size < MB
    assert "NaN" not in json.dumps(data_of(page.read_text(encoding="utf-8")))
    assert (tmp_path / "reliability.png").stat().st_size < MB
    assert len({row["category"] for row in found.rows}) == 101  # overall, and the 100 largest


def test_hundred_models_and_long_names_have_a_page(tmp_path: Path) -> None:
    names = [f"org/{'very-' * 30}long-{i}" for i in range(12)]
    board = leaderboard([synthetic(i, n=40) for i in range(12)], names=names, resamples=20)
    page = board.to_html(str(tmp_path / "page.html"))
    assert page.stat().st_size < MB
    text = page.read_text(encoding="utf-8")
    assert all(name in text for name in names)
    assert any(section.name == "correlations" for section in board.document().sections)
