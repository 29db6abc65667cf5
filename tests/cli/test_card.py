"""``rmcalib card``: files, the pull request, bad input."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Invoke
from tests.hub.server import LoopbackHub
from tests.publish.test_publish import HUB
from tests.publish.test_push import hub as hub
from tests.report.boards import synthetic, write_run


def test_the_command_writes_and_pushes(hub: LoopbackHub, tmp_path: Path, invoke: Invoke) -> None:
    about = {key: value for key, value in HUB.items() if key != "model"}
    write_run(tmp_path / "runs", "org/rm", synthetic(1, n=60), **about)
    done = invoke("card", "runs", "--output", "out", "--push-to-hub", "org/rm", "--resamples", "20")
    assert (done.code, done.err) == (0, "")
    assert f"Pull request: {hub.url}/org/rm/discussions/1" in done.out
    assert (tmp_path / "out/card.md").is_file()
    assert (tmp_path / "out/.eval_results/rmcalib_org__bench.yaml").is_file()


def test_a_bad_name_for_the_hub_is_refused_before_anything_is_written(tmp_path: Path, invoke: Invoke) -> None:
    write_run(tmp_path / "runs", "org/rm", synthetic(1, n=30))
    done = invoke("card", "runs", "--output", "out", "--push-to-hub", "../../x", "--resamples", "20")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert not (tmp_path / "out").exists()


def test_bad_input_is_one_line(tmp_path: Path, invoke: Invoke) -> None:
    missing = invoke("card", "nothing")
    assert (missing.code, missing.out) == (2, "")
    assert "nothing" in missing.err
    write_run(tmp_path / "runs", "org/rm", synthetic(1, n=30))
    wrong = invoke("card", "runs", "--relationship", "friend", "--resamples", "20")
    assert wrong.code == 2
    assert "relationship: unknown 'friend'" in wrong.err
    assert not (tmp_path / "card").exists()
