"""`rmcalib batch` from the command line: plans, and bad input in one line."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Invoke, environment, run_on_terminal


def test_dry_run_prints_the_plan_and_does_nothing(tmp_path: Path, invoke: Invoke) -> None:
    options = ("--models", ROOT / "configs/leaderboard.yaml", "--device", "cpu", "--ignore-memory")
    done = invoke("batch", *options, "--max-params", "3B", "--dry-run", "--output", tmp_path / "runs")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split() == ["model", "size", "memory", "device", "time"]
    first = lines[1].split()
    assert first[:6] == [
        "OpenAssistant/reward-model-deberta-v3-large-v2",
        "0.435B",
        "2.09",
        "GB",
        "cpu",
        first[5],
    ]
    assert float(first[5]) > 0
    assert "models to run, about" in done.out
    assert not (tmp_path / "runs").exists()


def test_dry_run_as_json(invoke: Invoke) -> None:
    options = ("--device", "cpu", "--family", "gemma", "--exclude", "nicolinho/*")
    plan = json.loads(invoke("batch", "--dry-run", "--json", *options).out)
    assert {entry["family"] for entry in plan} == {"gemma"}
    assert not [entry for entry in plan if entry["model"].startswith("nicolinho")]
    skipped = {entry["model"]: entry["skipped"] for entry in plan}
    assert len(skipped) >= 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-params", "big"], "--max-params: 'big' is not a size (write it like 10B or 600M)"),
        (["--models", "nowhere.yaml"], "nowhere.yaml: No such file or directory"),
        (["--include", "nobody/*"], "no model matches --include"),
        (["--scores", "mine.json"], "--scores mine.json: a batch scores by itself"),
        (
            [
                "--scores",
                "published",
                "--limit",
                "10",
                "--dtype",
                "float32",
                "--engine",
                "ray",
                "--free-disk",
            ],
            "--limit, --dtype, --engine, --free-disk: no effect with --scores published",
        ),
        (["--jobs", "2"], "--jobs: no effect with a batch that scores by itself"),
        (["--shards", "2", "--gpus", "1"], "--shards, --gpus: no effect with --engine local"),
        (["--engine", "slurm"], "'slurm' is not one of"),
        (["--device", "abacus", "--dry-run"], "device: unknown 'abacus'"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str, invoke: Invoke) -> None:
    done = invoke("batch", *options)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert done.out == ""


def test_live_table_and_summary_show_states_and_causes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    from rmcalib.cli._shared.batch_table import print_summary, status_table
    from rmcalib.runs import ModelStatus, Status

    names = [f"org/rm-{number}" for number in range(25)]
    status = Status(tmp_path, [ModelStatus(name, parameters=0.6) for name in names])
    status.change(names[7], "scoring")
    status.progress(names[7], 30, 120, 5000)
    status.change(names[9], "failed", why="[bold]gated[/bold]")
    status.change(names[3], "done", fresh=True)
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(status_table(status))
    lines = console.export_text().splitlines()
    assert lines[0].startswith("22 waiting, 1 scoring, 1 done, 1 failed")
    assert lines[2].split()[:4] == [names[7], "0.6B", "scoring", "25%"]
    assert lines[3].split()[:3] == [names[9], "0.6B", "failed"]
    assert lines[-1].strip() == "and 5 more"
    print_summary(status, "s3://bucket/runs")
    reported = capsys.readouterr().out
    assert reported.startswith("1 done (1 now, 0 before): s3://bucket/runs\n")
    assert "org/rm-9: [bold]gated[/bold]" in reported  # names and causes are text, not markup
    assert reported.endswith("One page for all: rmcalib report s3://bucket/runs\n")


def test_on_a_terminal_the_table_is_live(tmp_path: Path) -> None:
    bench, models = tmp_path / "bench.jsonl", tmp_path / "m.yaml"
    row = {"id": "1", "prompt": "Hi", "chosen": ["a"], "rejected": ["b"], "subset": "Chat"}
    bench.write_text(json.dumps(row) + "\n")
    models.write_text("- model: org/never-8B\n")
    command = [sys.executable, "-m", "rmcalib", "batch", "--models", models, "--benchmark", bench]
    done = run_on_terminal(
        [*map(str, command), "--output", str(tmp_path / "runs"), "--ignore-memory", "--device", "cpu"],
        cwd=ROOT,
        env=environment(HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "home"), TERM="xterm"),
    )
    assert done.code == 1
    assert "org/never-8B" in done.err
    assert "waiting" in done.err or "failed" in done.err
    assert "org/never-8B: not in the local cache, and HF_HUB_OFFLINE is set" in done.out
