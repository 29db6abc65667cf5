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


RIGHT = {"rewards": [[1.0, 0.0]], "seconds": 1.0}


def answers(**by_dtype: dict[str, Any]) -> Any:
    return lambda _device, dtypes, *_: {dtype: by_dtype[dtype] for dtype in dtypes}


@pytest.mark.usefixtures("_two_dtypes")
def test_what_differs_and_what_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_hub", lambda: (True, "fine"))
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


def crashing(calls: list[tuple[list[str], bool]], *, cured: bool) -> Any:
    """A machine where narrow dtypes crash; a process that crashes says nothing of the dtypes that follow."""

    def run(_device: str, dtypes: list[str], _prompts: int, _timeout: float, extra: Any) -> dict[str, Any]:
        calls.append((list(dtypes), bool(extra)))
        outcomes: dict[str, Any] = {}
        for dtype in dtypes:
            crashes = dtype != "float32" and not (extra and cured)
            outcomes[dtype] = {"error": "signal 4", "crashed": True} if crashes else RIGHT
            if crashes:
                break
        return outcomes

    return run


def test_a_crash_costs_one_dtype_and_names_the_setting_that_avoids_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    calls: list[tuple[list[str], bool]] = []
    monkeypatch.setattr(doctor, "_run", crashing(calls, cured=True))
    outcomes = doctor._examine("cpu", ["float32", "bfloat16", "float16"], 1, 10.0)
    assert calls == [
        (["float32", "bfloat16", "float16"], False),
        (["float16"], False),
        (["bfloat16", "float16"], True),
    ]
    assert list(outcomes) == ["float32", "bfloat16", "float16"]
    assert "note" not in outcomes["float32"]
    for dtype in ("bfloat16", "float16"):
        assert outcomes[dtype]["note"] == (
            "crashes (signal 4) unless ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 is set"
        )
    monkeypatch.setattr(doctor, "_run", crashing([], cured=False))
    assert doctor._examine("cpu", ["bfloat16"], 1, 10.0)["bfloat16"]["error"] == "signal 4"
    monkeypatch.setattr(doctor, "_run", crashing(calls := [], cured=True))
    doctor._examine("mps", ["float32", "float16"], 1, 10.0)
    assert not any(extra for _, extra in calls)  # the setting is the CPU's


def test_an_unknown_device_is_reported_by_its_message() -> None:
    outcomes = doctor._run("nonsense", ["float32", "float16"], 1, 120.0, {})
    assert "nonsense" in outcomes["float32"]["error"]
    assert "nonsense" in outcomes["float16"]["error"]


def test_no_answer_in_time_is_said() -> None:
    outcomes = doctor._run("cpu", ["float32", "float16"], 1, 0.05, {})
    assert outcomes == {"float32": {"error": "no answer within 0 s"}}


def test_offline_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert doctor._hub() == (
        False,
        f"{constants.ENDPOINT}: not asked, HF_HUB_OFFLINE is set; only cached models can be scored",
    )
