"""`rmcalib batch --dry-run`: what is sure to fail is reported beforehand; memory is in GB of 10^9 bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke


@pytest.fixture
def models(tmp_path: Path, tiny_model: Path) -> str:
    (tmp_path / "empty").mkdir()
    names = ["./gone/rm-1B", "empty", str(tiny_model), "org/rm-2B"]
    (tmp_path / "models.yaml").write_text("".join(f"- model: {name}\n" for name in names))
    return "models.yaml"


def test_a_folder_that_is_not_there_is_reported(models: str, invoke: Invoke) -> None:
    ended = invoke("batch", "--models", models, "--device", "cpu", "--ignore-memory", "--dry-run")
    assert (ended.code, ended.err) == (1, "")
    planned, failing = ended.out.split("2 would fail:")
    assert "2 models to run" in planned
    assert "gone" not in planned
    assert "org/rm-2B" in planned
    assert failing.split("\n")[1:3] == [
        "  ./gone/rm-1B: './gone/rm-1B' is neither a file or folder here nor a Hub id like 'org/name'",
        "  empty: no config.json in the folder, so this is not a transformers model",
    ]


def test_problems_are_in_the_json(models: str, invoke: Invoke, tiny_model: Path) -> None:
    ended = invoke("batch", "--models", models, "--device", "cpu", "--ignore-memory", "--dry-run", "--json")
    assert ended.code == 1
    problems = {row["model"]: bool(row["problem"]) for row in json.loads(ended.out)}
    assert problems == {"./gone/rm-1B": True, "empty": True, str(tiny_model): False, "org/rm-2B": False}


def test_a_cluster_may_have_other_folders(models: str, invoke: Invoke) -> None:
    ended = invoke("batch", "--models", models, "--engine", "ray", "--dry-run")
    assert (ended.code, ended.err) == (0, "")
    assert "4 models to run" in ended.out


def test_nothing_is_left_to_run(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("- model: ./gone\n")
    ended = invoke("batch", "--models", "models.yaml", "--device", "cpu", "--dry-run")
    assert ended.code == 1
    assert ended.out.startswith("No model to run.\n\n1 would fail:\n")


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (("--dtype", "float7"), "dtype: unknown 'float7' (have: auto, float32, bfloat16, float16)"),
        (("--engine", "ray", "--gpu-memory", "much"), "--gpu-memory: 'much' is not a size"),
    ],
)
def test_a_plan_refuses_what_the_run_would(given: tuple[str, ...], reported: str, invoke: Invoke) -> None:
    ended = invoke("batch", "--dry-run", *given)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert reported in ended.err


def test_doctor_counts_memory_as_a_plan_does(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmcalib._util.sizes import parse_bytes
    from rmcalib.judges import Diagnosis
    from rmcalib.judges._doctor import DeviceInfo

    size = int(parse_bytes("80GB"))
    diagnosis = Diagnosis({"rmcalib": "0"}, (DeviceInfo("cuda:0", "GPU", size, size // 2),), "", True, ())
    monkeypatch.setattr("rmcalib.judges.diagnose", lambda: diagnosis)
    assert "cuda:0: GPU, 80.0 GB, 40.0 GB free" in invoke("doctor").out
