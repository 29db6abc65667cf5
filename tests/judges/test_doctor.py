from __future__ import annotations

import math
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rmcalib.judges import _doctor as doctor
from tests.hooks import PATIENCE
from tests.processes import run_python


def forked(command: Sequence[str], env: Mapping[str, str], **_: Any) -> Any:
    """Run Python in a process that has imported torch already."""
    done = run_python(command[command.index("-c") :], env=env)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.encode(), done.stderr.encode())


def test_diagnosis_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr("rmcalib.judges._doctor.subprocess.run", forked)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # no server listens there
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)  # some CPUs report instructions that they lack
    found = doctor.diagnose(prompts=3, timeout=PATIENCE)
    assert found.versions["torch"].startswith("2.")
    assert found.devices["cpu"]["memory"] > found.devices["cpu"]["free"] > 0
    assert "127.0.0.1:9" in found.hub
    assert found.healthy
    cpu = {check.dtype: check for check in found.checks if check.where == "cpu"}
    assert cpu["float32"].reward_difference == 0
    narrow = cpu["bfloat16"]
    assert narrow.status == "rounding"
    assert narrow.reward_difference is not None
    assert 0 < narrow.reward_difference < 0.5


RIGHT = {"rewards": [[1.0, 0.0]], "seconds": 1.0}


def answers(**by_dtype: dict[str, Any]) -> Any:
    return lambda *_: by_dtype


def test_differences_and_failures_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_hub", lambda: "fine")
    wrong = {"rewards": [[1.0, 2.0]], "seconds": 1.0}
    monkeypatch.setattr(doctor, "_run", answers(float32=RIGHT, bfloat16=wrong))
    found = doctor.diagnose()
    differs = found.checks[-1]
    assert (differs.status, differs.reward_difference) == ("differs", 2.0)
    assert differs.probability_difference == pytest.approx(2 / (1 + math.exp(-1)) - 1)
    assert found.healthy  # float32 is right
    monkeypatch.setattr(doctor, "_run", answers(float32=RIGHT, bfloat16={"error": "out of order"}))
    failed = doctor.diagnose().checks[-1]
    assert (failed.status, failed.note) == ("failed", "out of order")
    monkeypatch.setattr(doctor, "_run", answers(float32={"error": "broken"}, bfloat16=RIGHT))
    assert not doctor.diagnose().healthy


def test_a_timeout_is_reported() -> None:
    assert doctor._run("cpu", 1, 0.05)["float32"] == {"error": "no answer within 0 s"}
