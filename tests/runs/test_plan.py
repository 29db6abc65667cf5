"""Plans of batches: which models, in which order, why some are skipped, and how long it takes."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmcalib.benchmarks import load_benchmark
from rmcalib.judges import LoadOptions, Recipe, load_judge
from rmcalib.judges._devices import Hardware
from rmcalib.runs import Batch, Cluster, plan_batch
from rmcalib.runs._plan import PlanEntry, parse_size


def plan(models: Any = None, **how: Any) -> list[PlanEntry]:
    """Return the plan of a batch on a machine without limits."""
    known = {"options": LoadOptions(device="cpu"), "ignore_memory": True, **how}
    return plan_batch(Batch(models, "demo", **known))


def test_the_leaderboard_is_ordered_by_size_with_reasons_for_skipped_models() -> None:
    entries = plan()
    assert [bool(entry.skipped) for entry in entries] == sorted(bool(entry.skipped) for entry in entries)
    sizes = [entry.parameters or math.inf for entry in entries if not entry.skipped]
    assert sizes == sorted(sizes)
    why = {entry.model: entry.skipped for entry in entries}
    assert "no public weights" in why["Databricks-Mosaic-Research/PGRM"]
    assert "trust_remote_code" in why["nicolinho/QRM-Gemma-2-27B"]
    trusting = plan(options=LoadOptions(device="cpu", trust_remote_code=True))
    assert {entry.model for entry in trusting if entry.skipped} == {"Databricks-Mosaic-Research/PGRM"}


def test_filters_can_be_combined() -> None:
    names = ("a/Llama-8B", "a/Qwen-4B", "b/Llama-1B", "b/Llama-old-3B", "b/Llama")
    chosen = {"include": ("*llama*",), "exclude": ("*OLD*",), "max_parameters": 8, "families": ("Llama",)}
    found = plan(names, **chosen)
    assert [entry.model for entry in found] == ["b/Llama-1B", "a/Llama-8B", "b/Llama"]
    assert [bool(entry.skipped) for entry in found] == [False, False, True]  # the last has no known size
    with pytest.raises(ValueError, match="llama, qwen"):
        plan(names, include=("nobody/*",))


def test_memory_and_time_grow_with_size_and_width(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(device: str, dtype: str = "auto", name: str = "a/rm-10b", **how: Any) -> PlanEntry:
        return plan([name], options=LoadOptions(device=device, dtype=cast("Any", dtype)), **how)[0]

    gpus: dict[str, Any] = {"cluster": Cluster()}
    found = [entry("cpu"), entry("cuda", **gpus), entry("cuda", "float32", **gpus)]
    assert [one.memory for one in found] == pytest.approx([48e9, 24e9, 48e9])
    assert found[1].seconds == pytest.approx(10 * (entry("cuda", name="a/rm-1b", **gpus).seconds or 0))
    monkeypatch.setattr("rmcalib.runs._plan.find_hardware", lambda _: Hardware("cpu", 40e9))
    assert "48 GB" in entry("cpu", ignore_memory=False).skipped
    with pytest.raises(ValueError, match="float7"):
        entry("cpu", "float7")


def test_a_list_may_mix_kinds_of_judges(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(
        "models:\n- infly/INF-ORM-Llama3.1-70B\n- demo\n"
        "- {model: me/other-1b, kind: classifier, parameters: 2}\n"
        "- {model: me/huge-700b, endpoint: 'http://host:8001', concurrency: 4, column: 1}\n"
        "- {model: me/wide-70b, backend: vllm, tensor_parallel: 4, sign: -1}\n"
        "- {model: me/policy-8b, reference: me/base-8b, beta: 0.2}\n"
        "- {model: me/free-8b, reference_free: mean}\n"
    )
    found = {entry.model: entry for entry in plan(file)}
    assert not any(entry.skipped for entry in found.values())
    assert found["infly/INF-ORM-Llama3.1-70B"].recipe.head == "score"  # of the registry
    assert found["me/other-1b"].parameters == 2
    served = found["me/huge-700b"]
    assert (served.device, served.memory, served.seconds) == ("server", None, None)
    assert served.recipe.column == 1
    assert served.options == {"kind": "endpoint", "endpoint": "http://host:8001", "concurrency": 4}
    assert found["me/policy-8b"].memory == 2 * (found["me/free-8b"].memory or 0) > 0


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{model: me/rm, reference: me/base, beta: 0}", "beta"),
        ("{model: me/rm, endpoint: here}", r"entry 1 \(me/rm\): .*'here'"),
        ("{model: me/rm, endpoint: 'http://h', divice: cpu}", "divice"),
        ("{model: me/rm, kind: oracle}", "oracle"),
        ("{model: me/rm, endpoint_kind: vllm}", "endpoint_kind"),
        ("{endpoint: 'http://h'}", "model: org/name"),
        ("me/rm\n- {model: me/rm}", "'me/rm' is listed twice"),
    ],
)
def test_bad_entries_name_their_place(tmp_path: Path, entry: str, message: str) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(f"- {entry}\n")
    with pytest.raises(ValueError, match=message):
        plan(file)


def test_keys_are_not_sent_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "sk-secret")
    judge = load_judge("me/rm", endpoint="http://host:8000", api_key_env="MINE")
    assert b"sk-secret" not in pickle.dumps(judge)


def test_longer_texts_take_longer() -> None:
    def seconds(limit: int) -> float:
        benchmark = load_benchmark("demo", limit=limit)
        batch = Batch([Recipe("a/rm-1b")], benchmark, options=LoadOptions(device="cpu"), ignore_memory=True)
        return plan_batch(batch)[0].seconds or 0

    assert seconds(80) > 5 * seconds(10) > 0


@given(st.floats(0.001, 1e4, allow_nan=False))
def test_sizes_are_parsed(billions: float) -> None:
    assert parse_size(f"{billions:f}B", "--max-params") == pytest.approx(1e9 * billions, abs=1e3)
    assert parse_size(f"{billions * 1000:f} m", "--max-params") == pytest.approx(1e9 * billions, abs=1e3)


@pytest.mark.parametrize("text", ["", "B", "ten", "-1B", "10X", "1e3"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--max-params"):
        parse_size(text, "--max-params")
