from __future__ import annotations

import math
from typing import Any

import pytest

from rmcalib.rewards import devices, doctor


@pytest.fixture
def _two_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "DTYPES", ("float32", "bfloat16"))


@pytest.mark.usefixtures("_two_dtypes")
def test_diagnosis_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    found = doctor.diagnose(prompts=6)
    assert found.versions["torch"].startswith("2.")
    assert found.devices[-1].device == "cpu"
    assert found.devices[-1].memory > found.devices[-1].free > 0
    assert not found.hub_reachable
    assert "not reachable" in found.hub
    assert found.healthy
    cpu = {check.dtype: check for check in found.checks if check.device == "cpu"}
    assert cpu["float32"].reward_difference == 0
    narrow = cpu["bfloat16"]  # some processors crash here: then that is what the report says
    assert narrow.status in ("right", "failed")
    if narrow.status == "right":
        assert narrow.reward_difference is not None
        assert 0 < narrow.reward_difference < 0.5
        assert narrow.probability_difference is not None


def answers(**by_dtype: dict[str, Any]) -> Any:
    return lambda _device, dtype, *_: by_dtype[dtype]


@pytest.mark.usefixtures("_two_dtypes")
def test_what_differs_and_what_crashes_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    right = {"rewards": [[1.0, 0.0]], "seconds": 1.0}
    monkeypatch.setattr(doctor, "_hub", lambda: (True, "fine"))
    monkeypatch.setattr(
        doctor, "_run", answers(float32=right, bfloat16={"rewards": [[1.0, 2.0]], "seconds": 1.0})
    )
    found = doctor.diagnose()
    differs = found.checks[-1]
    assert (differs.status, differs.reward_difference) == ("differs", 2.0)
    assert differs.probability_difference == pytest.approx(2 / (1 + math.exp(-1)) - 1)
    assert found.healthy  # float32 is right
    monkeypatch.setattr(
        doctor, "_run", answers(float32=right, bfloat16={"error": "signal 4", "crashed": True})
    )
    crashed = doctor.diagnose().checks[-1]
    assert (crashed.status, crashed.note) == ("failed", "signal 4")
    monkeypatch.setattr(doctor, "_run", answers(float32={"error": "broken"}, bfloat16=right))
    assert not doctor.diagnose().healthy


def test_a_crash_that_a_setting_avoids_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(
        _device: str, _dtype: str, _prompts: int, _timeout: float, extra: dict[str, str]
    ) -> dict[str, Any]:
        return {"rewards": [[0.0]], "seconds": 1.0} if extra else {"error": "signal 4", "crashed": True}

    monkeypatch.setattr(doctor, "_run", run)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    outcome = doctor._examine("cpu", "bfloat16", 1, 10.0)
    assert outcome["note"] == "crashes (signal 4) unless ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 is set"


def test_an_unknown_device_is_reported_by_its_message() -> None:
    outcome = doctor._run("nonsense", "float32", 1, 120.0, {})
    assert "nonsense" in outcome["error"]


def test_offline_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert doctor._hub() == (
        False,
        f"{constants.ENDPOINT}: not asked, HF_HUB_OFFLINE is set; only cached models can be scored",
    )
