"""Any judge goes through `score`: objects, functions, registered names; what they return is checked."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmcalib
from rmcalib.benchmarks import Benchmark, Item
from rmcalib.judges import Judge, ScoredItem, load_judge
from rmcalib.judges._judge import scored_chunks
from rmcalib.judges._load import KINDS, judge_kind, judge_settings
from rmcalib.judges._scoring import Classifier
from rmcalib.judges._settings import parsed_settings, setting_help
from rmcalib.runs import RunError
from rmcalib.runs._run import asked_for
from rmcalib.scores import Scale

ITEMS = tuple(Item(f"p{i}", "ab"[i % 2], f"question {i}", ("yes", "no way", "maybe"), 1) for i in range(10))
BENCH = Benchmark("small", "1", ITEMS)


class Lengths:
    """The smallest judge: of rmcalib it uses only `ScoredItem`."""

    name = "lab/lengths"
    scale: str = "rating"

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
    assert (manifest["model"], scores.scale.kind, manifest["kind"]) == ("lab/lengths", "rating", "lengths")
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
    with pytest.raises(ValueError, match="version"):
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


def test_a_function_is_a_judge() -> None:
    scores = rmcalib.score(lengths, BENCH)
    assert scores.manifest["model"] == "lengths"
    assert scores.scale.assumed
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


def test_an_edited_function_does_not_resume_an_old_run(tmp_path: Path) -> None:
    calls = 0

    def mine(_: object, texts: list[str]) -> list[int]:
        nonlocal calls
        calls += 1
        return [len(text) for text in texts]

    rmcalib.score(mine, BENCH, output=tmp_path)
    rmcalib.score(mine, BENCH, output=tmp_path)
    assert calls == 10
    with pytest.raises(ValueError, match="source_sha256"):
        rmcalib.score(lambda _, texts: [-len(text) for text in texts], BENCH, name="mine", output=tmp_path)


def test_an_identity_decides_about_resuming(tmp_path: Path) -> None:
    rmcalib.score(lengths, BENCH, name="rm", identity={"step": 1}, output=tmp_path)
    other = functools.partial(lengths)
    there = rmcalib.score(other, BENCH, name="rm", identity={"step": 1}, output=tmp_path)
    assert there.n_items == 10
    with pytest.raises(ValueError, match=r"identity\.step"):
        rmcalib.score(lengths, BENCH, name="rm", identity={"step": 2}, output=tmp_path)


def test_the_demo_is_the_same_judge_however_it_is_given(tmp_path: Path) -> None:
    bench = rmcalib.load_benchmark("demo", limit=6)
    by_name = rmcalib.score("demo", bench, device="cpu", output=tmp_path)
    judge = rmcalib.load_judge("demo", device="cpu")
    assert isinstance(judge, Classifier)
    assert isinstance(judge.scale, Scale)
    assert judge.scale.assumed
    for way in (judge, judge.model):
        scores = rmcalib.score(way, bench)
        assert scores.reward.tobytes() == by_name.reward.tobytes()
        assert scores.manifest["hash"] == by_name.manifest["hash"]
    by_keyword = rmcalib.score(model="demo", benchmark=bench, device="cpu", output=tmp_path)
    assert by_keyword.manifest == by_name.manifest
    assert asked_for(Classifier(judge.model), bench) is None  # its weights may have changed


def broken(**_: Any) -> Judge:
    raise RuntimeError("no licence")


def function(per: float = 1.0) -> Any:
    return lambda _, responses: [len(text) / per for text in responses]


def nothing(**_: Any) -> Any:
    return 3


A, B = (ScoredItem(f"p{i}", (1.0, 2.0, 3.0)) for i in range(2))


@pytest.mark.parametrize(
    ("chunks", "named"),
    [
        ([[B, A]], "p1"),
        ([[A], [B], [B]], "p1"),
        ([[A]], "p1"),
        ([], "p0"),
        ([[A, dataclasses.replace(B, rewards=(1.0, 2.0))]], "p1"),
        ([[dataclasses.replace(A, rewards=(1.0, float("nan"), 2.0)), B]], "'p0', response 1"),
        ([[A, dataclasses.replace(B, n_tokens=(1,))]], "'p1': 1 n_tokens"),
        ([[A, dataclasses.replace(B, details={"votes": [1]})]], "'p1': 1 votes"),
    ],
)
def test_what_a_judge_returns_is_checked(chunks: list[list[ScoredItem]], named: str) -> None:
    class Fixed(Lengths):
        def score(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
            del items
            return iter(chunks)

    with pytest.raises(ValueError, match=named):
        list(scored_chunks(Fixed(), ITEMS[:2]))


@pytest.mark.parametrize("answer", [[1, 2], [1, float("inf"), 2], 3.0, ["1", "a", "2"], None])
def test_bad_answers_of_a_function_name_the_prompt(answer: Any) -> None:
    with pytest.raises(ValueError, match="mine: prompt 'p0'"):
        rmcalib.score(lambda *_: answer, BENCH, name="mine")
    with pytest.raises(ValueError, match="mine: prompts 'p0' to 'p9'"):
        rmcalib.score(lambda *_: [answer], BENCH, name="mine", batched=True)


@pytest.mark.parametrize(
    ("judge", "options", "named"),
    [
        (lengths, {"name": " "}, "name"),
        (lambda *_: [1, 2, 3], {}, "name"),
        (functools.partial(lengths), {}, "name"),
        (lengths, {"scale": "logits"}, "scale.*utility"),
        (lengths, {"identity": {1, 2}}, "identity"),
        (lengths, {"batch_size": 0}, "batch_size"),
        (lengths, {"bached": True}, "did you mean 'batched'"),
        (lengths, {"kind": "classifier"}, "kind"),
        (Lengths(), {"device": "cpu"}, "device.*lab/lengths"),
        (Lengths(), {"name": "mine"}, "name"),
        ("demo", {"name": "mine"}, "name"),
        ("demo", {"devise": "cpu"}, "did you mean 'device'"),
        ("demo", {"kind": "clasifier"}, "did you mean 'classifier'"),
        ("demo", {"backend": "cuda"}, "backend.*transformers"),
        ("demo", {"max_length": 1.5}, "max_length"),
        ("demo", {"concurrency": 4}, "concurrency"),
        ("demo", {"beta": 0.1, "judging": "letter"}, "beta.*judging|judging.*beta"),
        ("not a name", {}, "not a name"),
        (Lengths, {}, "Lengths"),
        (3, {}, "int"),
    ],
)
def test_what_cannot_be_loaded(judge: Any, options: dict[str, Any], named: str) -> None:
    with pytest.raises((ValueError, TypeError), match=named):
        load_judge(judge, **options)


def test_settings_choose_the_kind_and_can_be_written_as_text() -> None:
    url = "http://h"
    for given, kind in (
        ({}, "classifier"),
        ({"endpoint": url}, "endpoint"),
        ({"endpoint": None}, "classifier"),
        ({"endpoint": url, "judging": "letter"}, "generative"),
        ({"endpoint": url, "beta": 0.1, "reference": "org/base"}, "policy"),
    ):
        assert judge_kind(None, given) == kind
        assert judge_settings(None, given) is KINDS[kind].settings
    for each in KINDS.values():
        shown = setting_help(each.settings)
        assert all(shown.values()), shown  # every setting has its help
    policy = KINDS["policy"].settings
    given = {"beta": "0.25", "trust_remote_code": "yes", "max_length": "64", "recipes": "a.yaml, b.yaml"}
    assert parsed_settings(policy, given) == {
        "beta": 0.25,
        "trust_remote_code": True,
        "max_length": 64,
        "recipes": ("a.yaml", "b.yaml"),
    }
    for wrong in ({"beta": "x"}, {"trust_remote_code": "perhaps"}, {"max_length": "1.5"}, {"dtype": "x"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            parsed_settings(policy, wrong)
    with pytest.raises(ValueError, match="did you mean 'reference'"):
        parsed_settings(policy, {"referense": "x"})


def test_packages_register_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution with entry points."""
    info = tmp_path / "ours-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")
    names = {"lab/lengths": "Lengths", "function": "function", "broken": "broken", "nothing": "nothing"}
    names["ours"] = "Lengths"
    points = "\n".join(f"{name} = {__name__}:{target}" for name, target in names.items())
    (info / "entry_points.txt").write_text(f"[rmcalib.judges]\n{points}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert rmcalib.score("lab/lengths", BENCH, version=3).manifest["version"] == 3
    assert rmcalib.score("lab/lengths", BENCH, version="3").manifest["version"] == 3  # as -J gives it
    rmcalib.score("function", BENCH, per=1.0, output=tmp_path / "run")
    with pytest.raises(RunError, match="per"):  # other settings, other rewards
        rmcalib.score("function", BENCH, per=2.0, output=tmp_path / "run")
    for name in ("broken", "nothing", "ours"):  # the last one returns a judge of another name
        with pytest.raises(ValueError, match=name):
            load_judge(name)
    with pytest.raises(ValueError, match="did you mean 'version'"):
        load_judge("lab/lengths", vershion=3)


@pytest.mark.parametrize("scale", ["utility", "reward", "rating", "none"])
def test_the_scale_reaches_the_report(scale: str) -> None:
    scores = rmcalib.score(lambda _, texts: [len(t) / 9 for t in texts], BENCH, name="mine", scale=scale)
    assert scores.scale.kind == {"reward": "utility"}.get(scale, scale)
    report = rmcalib.evaluate(scores, resamples=20)
    assert (not report.reliability.empty) == (scale != "none")
