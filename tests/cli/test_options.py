"""Options mean the same in every command, and former names still work."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import typer.main

from rmcalib.cli import COMMANDS as EXAMPLES
from rmcalib.cli import app
from rmcalib.cli._shared.options import FORMER_NAMES
from tests.cli.conftest import Invoke, command, environment, run_on_terminal
from tests.metrics.worlds import calibrated_scores

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def options_of(name: str) -> dict[str, list[str]]:
    """The options of a command, by the name of the parameter."""
    return {param.name: list(param.opts) for param in COMMANDS[name].params if param.opts[0][0] == "-"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_common_options(name: str) -> None:
    assert {"json", "quiet", "verbose", "config"} <= set(options_of(name))


def test_one_spelling_for_where_results_go() -> None:
    """A folder of results is --output, one file is --to, and the Hub is --push-to-hub."""
    spelled = {option for name in COMMANDS for opts in options_of(name).values() for option in opts}
    assert "--push" not in spelled
    assert [name for name in COMMANDS if "to" in options_of(name)] == ["calibrate", "combine"]
    for name, former in FORMER_NAMES.items():
        shown = {option for opts in options_of(name).values() for option in opts}
        assert set(former.values()) <= shown


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_the_help_are_valid(name: str) -> None:
    for example in EXAMPLES[name][1]:
        program, command_name, *arguments = shlex.split(example)
        assert (program, command_name) == ("rmcalib", name)
        COMMANDS[name].make_context(name, arguments)  # raises a usage error


@pytest.mark.parametrize("width", ["80", "120"])
@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_cuts_nothing(
    name: str, width: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    shown = invoke(name, "--help").out
    assert "…" not in shown
    assert all(example in " ".join(shown.split()) for example in EXAMPLES[name][1])


@pytest.fixture
def scores(tmp_path: Path) -> list[str]:
    """Files with the scores of two judges that are too sure."""
    for i, name in enumerate(("a", "b")):
        made = calibrated_scores(100, seed=i).at_temperature(0.25)
        replace(made, manifest={"model": name, "benchmark": "x"}).to_parquet(tmp_path / f"{name}.parquet")
    return ["a.parquet", "b.parquet"]


def test_former_names_still_work(tmp_path: Path, invoke: Invoke, scores: list[str]) -> None:
    for given in (("--push", "../../x"), ("--push=../../x",), ("--config", "defaults.yaml")):
        (tmp_path / "defaults.yaml").write_text("push: ../../x\n")
        refused = invoke("card", scores[0], *given)
        assert (refused.code, "../../x" in refused.err) == (2, True)
    unknown = invoke("eval", "--push", "x")
    assert (unknown.code, "No such option" in unknown.err) == (2, True)


def test_a_terminal_shows_what_is_computed(tmp_path: Path, scores: list[str]) -> None:
    quick = ("eval", "--scores", scores[0], "--resamples", "20")
    env = environment(TERM="xterm", COLUMNS="80")
    shown = run_on_terminal(command(*quick), cwd=tmp_path, env=env)
    assert (shown.code, "evaluating a ..." in shown.err) == (0, True)
    assert "evaluating" not in shown.out
    quiet = run_on_terminal(command(*quick, "--quiet"), cwd=tmp_path, env=env)
    assert re.sub(r"\s", "", quiet.out + quiet.err) == ""


def test_a_pipe_gets_no_status(invoke: Invoke, scores: list[str]) -> None:
    done = invoke("eval", "--scores", scores[0], "--resamples", "20")
    assert (done.code, done.err) == (0, "")
    assert "evaluating" not in done.out
