"""DPO policies on the command line: from two folders to a report, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.judges.test_policy import saved


def test_from_a_policy_to_a_report(tmp_path: Path, invoke: Invoke) -> None:
    saved(tmp_path / "policy", "llama", 0)
    saved(tmp_path / "base", "llama", 1)
    base = ("eval", "--model", tmp_path / "policy", "--reference", tmp_path / "base", "--device", "cpu")
    small = ("--benchmark", "demo", "--limit", "6", "--resamples", "20")
    done = invoke(*base, *small, "--beta", "0.2")
    assert done.code == 0, done.err
    (path,) = (tmp_path / "runs").rglob("run.json")
    manifest = json.loads(path.read_text())
    assert (manifest["beta"], manifest["scale"]) == (0.2, "log-utilities")
    metrics = json.loads(path.with_name("metrics.json").read_text())
    assert any(note.startswith("Beta is 0.2 (option).") for note in metrics["notes"])
    assert "all responses were scored before" in invoke(*base, *small, "--beta", "0.2").err
    assert invoke(*base, *small, "--beta", "0.3").code == 2  # another beta does not continue the run


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--beta", "0.2"), "demo: is not a PEFT adapter, so give the model that its training started from"),
        (
            ("--reference-endpoint", "http://localhost:1"),
            "--reference-endpoint: has no effect without --endpoint",
        ),
        (("--reference-free", "max"), "reference_free: unknown 'max'"),
        (("--reference", "org/base", "--beta", "-1"), "beta: must be a positive number"),
    ],
)
def test_what_is_refused(invoke: Invoke, options: tuple[str, ...], message: str) -> None:
    failed = invoke("score", "--model", "demo", "--benchmark", "demo", *options)
    assert failed.code == 2
    assert message in failed.err
