"""`rmcalib eval --scores FILE`: options about running a model are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from tests.rewards.worlds import calibrated_scores

Invoke = Callable[..., Outcome]


@pytest.mark.parametrize(
    "given",
    [
        ("--dtype", "float16"),
        ("--device", "cpu"),
        ("--max-length", "100"),
        ("--token-budget", "100"),
        ("--revision", "main"),
        ("--limit", "3"),
        ("--trust-remote-code",),
        ("--allow-pickle",),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    given: tuple[str, ...], invoke: Invoke, tmp_path: Path
) -> None:
    calibrated_scores(25).to_parquet(tmp_path / "s.parquet")
    for scores in ("s.parquet", "published"):
        ended = invoke("eval", "--scores", scores, "--model", "a/b", *given)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err == f"rmcalib: error: --scores (no model is run): goes without {given[0]}\n"
    assert not (tmp_path / "runs").exists()


def test_a_configuration_may_hold_options_of_running_a_model(invoke: Invoke, tmp_path: Path) -> None:
    calibrated_scores(25).to_parquet(tmp_path / "s.parquet")
    (tmp_path / "c.yaml").write_text("dtype: float16\nlimit: 3\n")
    ended = invoke("eval", "--config", "c.yaml", "--scores", "s.parquet", "--resamples", "20", "--quiet")
    assert (ended.code, ended.err) == (0, "")


def test_a_revision_of_texts_needs_their_benchmark(invoke: Invoke, tmp_path: Path) -> None:
    calibrated_scores(25).to_parquet(tmp_path / "s.parquet")
    ended = invoke("eval", "--scores", "s.parquet", "--benchmark-revision", "v1")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "--benchmark-revision: needs a --benchmark" in ended.err
