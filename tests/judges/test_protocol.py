"""Any judge goes through `score`: objects, functions, registered names; what they return is checked."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmcalib
from rmcalib.benchmarks import Benchmark, Item
from rmcalib.judges import (
    Classifier,
    Judge,
    LoadOptions,
    Scale,
    ScoredItem,
    load_judge,
    scored_chunks,
)
from rmcalib.judges._load import FunctionJudge
from rmcalib.judges._load import KINDS, Kind, judge_kind, registered_judges
from rmcalib.runs import asked_for, score_inputs

ITEMS = tuple(Item(f"p{i}", "ab"[i % 2], f"question {i}", ("yes", "no way", "maybe"), 1) for i in range(10))
BENCH = Benchmark("small", "1", ITEMS)


class Lengths:
    """The smallest judge: of rmcalib it uses only `ScoredItem`."""

    name = "lab/lengths"
    scale: Scale = "ratings"

    def __init__(self, version: int = 1, chunk: int = 4) -> None:
        self.version, self.chunk, self.seen = version, chunk, list[str]()

    def identity(self) -> dict[str, Any]:
        return {"kind": "lengths", "version": self.version}

    def score(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        for start in range(0, len(items), self.chunk):
            chunk = items[start : start + self.chunk]
            self.seen += [item.id for item in chunk]
            yield [ScoredItem(item.id, tuple(float(len(text)) for text in item.responses)) for item in chunk]


def lengths(prompt: object, responses: list[str]) -> list[int]:
    assert isinstance(prompt, str)
    return [len(text) for text in responses]


def test_a_judge_that_is_an_object() -> None:
    judge: Judge = Lengths()
    scores = rmcalib.score(judge, BENCH)
    assert scores.reward.tolist() == [3.0, 6.0, 5.0] * 10
    assert scores.item_id[::3].tolist() == [item.id for item in ITEMS]
    assert (scores.n_tokens == -1).all()
    assert not scores.truncated.any()
    manifest = scores.manifest
    assert (manifest["model"], manifest["scale"], manifest["kind"]) == ("lab/lengths", "ratings", "lengths")
    assert manifest["counts"]["tokens"] == 0
    assert manifest["inputs"]["version"] == 1
    json.dumps(manifest)


def test_progress_counts_chunks_and_what_is_scored_is_kept(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(done: int, total: int, tokens: int) -> None:
        seen.append((done, total, tokens))
        if done == 24:
            raise StopError

    seen: list[tuple[int, int, int]] = []
    with pytest.raises(StopError):
        rmcalib.score(Lengths(), BENCH, output=tmp_path, on_progress=stop)
    assert seen == [(0, 30, 0), (12, 30, 0), (24, 30, 0)]
    judge = Lengths()
    again = rmcalib.score(judge, BENCH, output=tmp_path)
    assert judge.seen == [item.id for item in ITEMS[8:]]
    judge.seen.clear()
    there = rmcalib.score(judge, BENCH, output=tmp_path)
    assert judge.seen == []
    assert there.reward.tobytes() == again.reward.tobytes() == rmcalib.score(judge, BENCH).reward.tobytes()


def test_another_identity_is_another_run(tmp_path: Path) -> None:
    rmcalib.score(Lengths(), BENCH, output=tmp_path)
    with pytest.raises(ValueError, match=r"holds another run \(version: 1 there, 2 now\)"):
        rmcalib.score(Lengths(version=2), BENCH, output=tmp_path)
    fresh = rmcalib.score(Lengths(version=2), BENCH, output=tmp_path, fresh=True)
    assert fresh.manifest["version"] == 2


def test_a_judge_may_report_progress_and_more_for_the_manifest() -> None:
    class Counting(Lengths):
        def about(self) -> dict[str, Any]:
            return {"server": "v1"}

        def asked(self) -> dict[str, Any] | None:
            return None

        def score(self, items: Sequence[Item], *, progress: Any = None) -> Iterator[list[ScoredItem]]:
            for chunk in super().score(items):
                for item in chunk:
                    progress(len(item.rewards), 7)
                yield chunk

    seen: list[tuple[int, int, int]] = []
    scores = rmcalib.score(Counting(), BENCH, on_progress=lambda *counts: seen.append(counts))
    assert seen == [(3 * i, 30, 7 * i) for i in range(11)]
    assert scores.manifest["server"] == "v1"
    assert "server" not in scores.manifest["inputs"]
    assert "asked" not in scores.manifest


A, B = (ScoredItem(f"p{i}", (1.0, 2.0, 3.0)) for i in range(2))


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([[B, A]], r"lab/lengths: returned prompt 'p1', but the next one is 'p0': return the prompts in"),
        ([[A], [B], [B]], r"returned prompt 'p1', but none is left"),
        ([[A]], r"scored 1 of 2 prompts; the first missing one is 'p1'"),
        ([], r"scored 0 of 2 prompts"),
        ([[A, dataclasses.replace(B, rewards=(1.0, 2.0))]], r"prompt 'p1': 2 rewards for 3 responses"),
        (
            [[dataclasses.replace(A, rewards=(1.0, float("nan"), 2.0)), B]],
            r"prompt 'p0', response 1: the reward is nan",
        ),
        ([[A, dataclasses.replace(B, n_tokens=(1,))]], r"prompt 'p1': 1 n_tokens for 3 responses"),
        ([[A, dataclasses.replace(B, details={"votes": [1]})]], r"prompt 'p1': 1 votes for 3 responses"),
    ],
)
def test_what_a_judge_returns_is_checked(chunks: list[list[ScoredItem]], message: str) -> None:
    class Fixed(Lengths):
        def score(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
            del items
            return iter(chunks)

    with pytest.raises(ValueError, match=message):
        list(scored_chunks(Fixed(), ITEMS[:2]))


def test_a_function_is_a_judge() -> None:
    scores = rmcalib.score(lengths, BENCH)
    assert scores.manifest["model"] == "lengths"
    assert scores.manifest["scale"] == "unknown"
    assert scores.reward.tolist() == [3.0, 6.0, 5.0] * 10
    arrays = rmcalib.score(lambda _, texts: np.array([len(text) for text in texts]), BENCH, name="mine")
    assert arrays.reward.tolist() == scores.reward.tolist()


@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_a_batched_function(batch_size: int) -> None:
    calls: list[int] = []

    def batched(prompts: list[Any], responses: list[list[str]]) -> list[list[int]]:
        calls.append(len(prompts))
        return [lengths(prompt, texts) for prompt, texts in zip(prompts, responses, strict=True)]

    scores = rmcalib.score(batched, BENCH, batched=True, batch_size=batch_size)
    assert scores.reward.tolist() == [3.0, 6.0, 5.0] * 10
    assert sum(calls) == 10
    assert max(calls) == min(batch_size, 10)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([1, 2], r"mine: prompt 'p0': the function returned 2 numbers for 3 responses"),
        ([1, float("inf"), 2], r"mine: prompt 'p0', response 1: the function returned inf"),
        (3.0, r"mine: prompt 'p0': the function must return one number per response: 'float'"),
        (
            ["1", "a", "2"],
            r"prompt 'p0': the function must return one number per response: could not convert",
        ),
        (None, r"prompt 'p0': the function must return one number per response: 'NoneType'"),
    ],
)
def test_bad_answers_of_a_function_name_the_prompt(answer: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rmcalib.score(lambda *_: answer, BENCH, name="mine")


def test_a_batched_function_that_leaves_prompts_out() -> None:
    with pytest.raises(ValueError, match=r"mine: prompts 'p0' to 'p9': the function returned 1 list for 10"):
        rmcalib.score(lambda *_: [[1, 2, 3]], BENCH, name="mine", batched=True)


def test_an_edited_function_does_not_resume_an_old_run(tmp_path: Path) -> None:
    calls = 0

    def mine(_: object, texts: list[str]) -> list[int]:
        nonlocal calls
        calls += 1
        return [len(text) for text in texts]

    rmcalib.score(mine, BENCH, output=tmp_path)
    rmcalib.score(mine, BENCH, output=tmp_path)
    assert calls == 10
    with pytest.raises(ValueError, match=r"holds another run \(source_sha256"):
        rmcalib.score(lambda _, texts: [-len(text) for text in texts], BENCH, name="mine", output=tmp_path)


def test_an_identity_decides_about_resuming(tmp_path: Path) -> None:
    rmcalib.score(lengths, BENCH, name="rm", identity={"step": 1}, output=tmp_path)
    other = functools.partial(lengths)
    there = rmcalib.score(other, BENCH, name="rm", identity={"step": 1}, output=tmp_path)
    assert there.n_items == 10
    with pytest.raises(ValueError, match=r"holds another run \(identity\.step: 1 there, 2 now\)"):
        rmcalib.score(lengths, BENCH, name="rm", identity={"step": 2}, output=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": " "}, "name: is empty"),
        ({"scale": "logits"}, "scale: unknown 'logits' \\(have: log-utilities, "),
        ({"identity": {1, 2}}, "identity: must be JSON"),
        ({"batch_size": 0}, "batch_size: must be at least 1, got 0"),
        ({"bached": True}, "bached: unknown option \\(did you mean 'batched'\\?\\)"),
        ({"kind": "classifier"}, "kind: only judges that are given by name have a kind"),
    ],
)
def test_bad_options_of_a_function(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rmcalib.score(lengths, BENCH, **options)


@pytest.mark.parametrize("function", [lambda *_: [1, 2, 3], functools.partial(lengths)])
def test_a_function_without_a_name_needs_one(function: Any) -> None:
    with pytest.raises(ValueError, match="name: this function has no name; give one"):
        load_judge(function)


def test_the_demo_is_the_same_judge_however_it_is_given(tmp_path: Path) -> None:
    bench = rmcalib.load_benchmark("demo", limit=6)
    by_name = rmcalib.score("demo", bench, device="cpu", output=tmp_path)
    judge = rmcalib.load_judge("demo", device="cpu")
    assert isinstance(judge, Classifier)
    assert judge.scale == "unknown"
    for way in (judge, judge.model):
        scores = rmcalib.score(way, bench)
        assert scores.reward.tobytes() == by_name.reward.tobytes()
        assert scores.manifest["hash"] == by_name.manifest["hash"]
    by_keyword = rmcalib.score(model="demo", benchmark=bench, device="cpu", output=tmp_path)
    assert by_keyword.manifest == by_name.manifest
    assert asked_for(Classifier(judge.model), bench) is None  # its weights may have changed


def test_the_hashes_of_classifiers_do_not_change() -> None:
    """Run folders of earlier versions resume, because their hashes are made of these keys."""
    bench = rmcalib.load_benchmark("demo", limit=2)
    judge = Classifier("demo", LoadOptions(device="cpu"))
    asked = judge.asked()
    assert asked is not None
    keys = ["allowed", "dtype", "max_length", "recipe", "revision", "scoring_version", "tokenizer"]
    assert sorted(asked) == keys
    assert asked["dtype"] == ["auto", "cpu"]
    assert "scale" not in asked["recipe"]
    inputs = score_inputs(judge, bench)
    assert sorted(inputs) == [
        *("attention", "benchmark", "benchmark_revision", "dtype", "items_sha256", "kind", "max_length"),
        *("model", "model_revision", "model_sources", "n_items", "own_code", "recipe", "scoring_version"),
    ]
    assert not {"scale", "loss", "note", "model"} & set(inputs["recipe"])


@pytest.mark.parametrize(
    ("judge", "options", "message"),
    [
        (
            Lengths(),
            {"device": "cpu"},
            r"device: has no effect on a judge that exists already \(lab/lengths\)",
        ),
        (Lengths(), {"name": "mine"}, r"name: the judge has a name already \('lab/lengths'\)"),
        ("demo", {"name": "mine"}, r"name: 'demo' has a name already"),
        ("demo", {"devise": "cpu"}, r"devise: unknown option \(did you mean 'device'\?\)"),
        ("demo", {"kind": "clasifier"}, r"kind: unknown 'clasifier' \(have: classifier"),
        ("not a name", {}, r"'not a name' is neither"),
    ],
)
def test_what_cannot_be_loaded(judge: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_judge(judge, **options)


@pytest.mark.parametrize("judge", [Lengths, 3])
def test_objects_that_are_not_judges(judge: Any) -> None:
    with pytest.raises(TypeError, match=r"judge: "):
        load_judge(judge)


def test_judge_and_model_are_one_argument() -> None:
    with pytest.raises(ValueError, match="judge, model: two names for one argument"):
        rmcalib.score("demo", BENCH, model="demo")


def test_an_option_chooses_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {
        **KINDS,
        "served": Kind(f"{__name__}:served", ("address",)),
        "tuned": Kind("nowhere:load", ("start", "step")),
    }
    monkeypatch.setattr("rmcalib.judges._load.KINDS", kinds)
    assert load_judge("org/rm", address="http://h").identity() == {"at": "http://h", "of": "org/rm"}
    assert load_judge("org/rm", kind="served", address="x").identity()["at"] == "x"
    assert judge_kind(None, {"step": 1, "start": "base"}) == "tuned"
    assert judge_kind(None, {"address": None}) == "classifier"
    with pytest.raises(ValueError, match=r"address \(of served\) and step \(of tuned\) are options of diff"):
        judge_kind(None, {"step": 1, "address": "x"})


def served(name: str, *, address: str) -> Judge:
    judge = Lengths()
    judge.identity = lambda: {"at": address, "of": name}  # type: ignore[method-assign]
    return judge


def entry(target: str) -> importlib.metadata.EntryPoint:
    return importlib.metadata.EntryPoint("ours", f"{__name__}:{target}", "rmcalib.judges")


def broken(**_: Any) -> Judge:
    raise RuntimeError("no licence")


def function(**_: Any) -> Any:
    return lengths


def nothing(**_: Any) -> Any:
    return 3


def test_packages_register_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution with an entry point."""
    info = tmp_path / "ours-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rmcalib.judges]\nlab/lengths = {__name__}:Lengths\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "lab/lengths" in registered_judges()
    assert isinstance(load_judge("lab/lengths"), Lengths)
    assert rmcalib.score("lab/lengths", BENCH, version=3).manifest["version"] == 3


def test_what_an_entry_point_may_return(monkeypatch: pytest.MonkeyPatch) -> None:
    target = "function"
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [entry(target)])
    judge = load_judge("ours")
    assert isinstance(judge, FunctionJudge)
    assert judge.name == "ours"
    target = "broken"
    with pytest.raises(ValueError, match=r"entry point 'ours' \(.*\) failed: RuntimeError: no licence"):
        load_judge("ours")
    target = "Lengths"
    with pytest.raises(ValueError, match=r"returned a judge called 'lab/lengths': its name must be 'ours'"):
        load_judge("ours")
    target = "nothing"
    with pytest.raises(ValueError, match=r"entry point 'ours' \(.*\) returned int, not a judge"):
        load_judge("ours")


@pytest.mark.parametrize(
    ("scale", "calibrated", "note"),
    [
        ("log-utilities", True, ""),
        ("log-probabilities", True, ""),
        ("unknown", True, ""),
        ("ratings", True, "Its rewards are ratings: a softmax of them means little"),
        ("probabilities", False, "its rewards are probabilities of single responses"),
    ],
)
def test_the_scale_reaches_the_report(scale: Scale, calibrated: bool, note: str) -> None:
    scores = rmcalib.score(lambda _, texts: [len(t) / 9 for t in texts], BENCH, name="mine", scale=scale)
    assert scores.manifest["scale"] == scale
    report = rmcalib.evaluate(scores, resamples=20)
    assert bool(report.reliability) == calibrated
    assert any(note in text for text in report.notes) == bool(note) or not note
    # A known model of the same name does not change what the judge says about itself.
    named = dataclasses.replace(
        scores, manifest={**scores.manifest, "model": "Skywork/Skywork-Reward-V2-Llama-3.1-8B"}
    )
    assert bool(rmcalib.evaluate(named, resamples=20).reliability) == calibrated
