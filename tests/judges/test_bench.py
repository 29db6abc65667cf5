"""`doctor --bench` on the CPU, with the demo or a small random model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmcalib.cli import app
from rmcalib.judges import bench, find_hardware
from rmcalib.judges._hardware import measured_rate


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_bench_measures_and_the_plan_uses_the_rate() -> None:
    assert measured_rate("cpu") is None
    assert find_hardware("cpu").rate is None
    arguments = ["doctor", "--bench", "--model", "demo", "--seconds", "0.2", "--device", "cpu"]
    answer = CliRunner().invoke(app, [*arguments, "--json"])
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert (found["device"], found["attention"], found["dtype"]) == ("cpu", "branches", "float32")
    assert found["tokens"] > found["responses"] >= 8
    assert found["tokens_per_second"] == pytest.approx(found["tokens"] / found["seconds"])
    assert 0 < found["share_of_peak"] < 2
    assert 0 < found["shared"] < 1
    assert found["padding"] == 0  # on a CPU every row is a pass of its own
    assert found["plain_tokens_per_second"] > 0
    assert found["memory_peak"] is None
    assert found["memory_estimate"] > 0

    rate = found["operations_per_second"]
    assert measured_rate("cpu") == (rate, found["measured"])
    machine = find_hardware("cpu")
    assert machine.rate == rate


def test_a_random_model_is_measured_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmcalib.judges._bench._SHAPES", {"cpu": (16, 32, 2, 2, 2)})
    answer = CliRunner().invoke(app, ["doctor", "--bench", "--seconds", "0.1", "--device", "cpu"])
    assert answer.exit_code == 0, answer.output
    for word in ("random llama", "branches", "tokens/s", "TFLOP/s", "padding", "memory"):
        assert word in answer.stdout


def test_options_of_the_bench_need_it() -> None:
    answer = CliRunner().invoke(app, ["doctor", "--seconds", "3"])
    assert answer.exit_code != 0
    assert "--seconds" in str(answer.exception)
    with pytest.raises(ValueError, match="seconds: must be above 0"):
        bench("demo", seconds=0)


def test_a_damaged_cache_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "rmcalib" / "bench.json"
    file.parent.mkdir()
    for content in ("{", "[]", '{"cpu": {}}', '{"cpu": {"operations_per_second": "x", "measured": ""}}'):
        file.write_text(content)
        assert measured_rate("cpu") is None
