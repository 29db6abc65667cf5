"""`rmcalib eval` and `rmcalib score` end to end, with a tiny model made on the spot."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmcalib.scores import Scores
from tests.cli.conftest import (
    FILES,
    ROOT,
    Invoke,
    environment,
    folder_of,
    run_process,
    visible,
    write_rows,
)
from tests.hub import tiny
from tests.metrics.worlds import calibrated_scores


def test_from_a_folder_to_a_report_as_a_process(tiny_model: Path, bench_file: Path, tmp_path: Path) -> None:
    base = ("eval", "--model", tiny_model, "--benchmark", bench_file, "--resamples", "20")
    done = run_process(*base, cwd=tmp_path, HF_HUB_OFFLINE="1")
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines()[:-1])) <= 80
    folder = folder_of(tmp_path / "runs")
    assert visible(folder) == FILES
    assert str(folder / "report.html") in done.out.splitlines()[-1]
    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["counts"]["items"] == 42
    again = run_process(*base, "--json", cwd=tmp_path, HF_HUB_OFFLINE="1")
    (result,) = json.loads(again.out)["evaluations"]
    assert result == {
        **json.loads((folder / "metrics.json").read_text()),
        "folder": str(Path("runs") / folder.relative_to(tmp_path / "runs")),
    }


def test_conditions_end_with_code_1_after_writing(
    tiny_model: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    base = ("eval", "--model", tiny_model, "--benchmark", bench_file, "--resamples", "20", "--quiet")
    met = invoke(*base, "--fail-if", "accuracy>=0", "--fail-if", "ece[Math]<0")
    assert met.code == 1
    assert met.err.count("\n") == 1
    assert "accuracy>=0 holds: accuracy is" in met.err
    assert visible(folder_of(tmp_path / "runs")) == FILES
    assert invoke(*base, "--fail-if", "accuracy>1").code == 0
    assert invoke(*base, "--fail-if", "accuracy>1").out == ""


def test_a_finished_run_is_evaluated_without_its_weights(
    tiny_model: Path, bench_file: Path, tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_no_more(*_: object, **__: object) -> None:
        raise ValueError("the weights were asked for")

    shutil.copytree(tiny_model, tmp_path / "rm")
    base = ("eval", "--model", "rm", "--benchmark", bench_file, "--resamples", "20", "--quiet")
    assert invoke(*base).code == 0
    folder = folder_of(tmp_path / "runs")
    first, manifest = (folder / "metrics.csv").read_text(), (folder / "run.json").read_text()
    (folder / "report.html").unlink()
    with monkeypatch.context() as patched:
        patched.setattr("rmcalib.judges._classifier.load_model", load_no_more)
        again = invoke(*base)
        assert (again.code, again.err) == (0, "")
        assert (folder / "metrics.csv").read_text() == first
        assert (folder / "run.json").read_text() == manifest
        assert (folder / "report.html").is_file()
        for other in (
            ("--limit", "9"),
            ("--max-length", "100"),
            ("--dtype", "float32"),  # what auto stands for here, but not what was asked for
            ("--trust-remote-code",),
            ("--fresh",),
        ):
            assert "the weights were asked for" in invoke(*base, *other).err, other
        (folder / "scores.parquet").rename(tmp_path / "kept.parquet")
        assert "the weights were asked for" in invoke(*base).err
        (tmp_path / "kept.parquet").rename(folder / "scores.parquet")
        tiny.save_model(tmp_path / "rm", tiny.tiny_classifier(seed=7))
        assert "the weights were asked for" in invoke(*base).err
    assert "holds another run (model_revision" in invoke(*base).err


def test_several_models_are_compared_and_one_failure_is_reported(
    tiny_model: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    (tmp_path / "empty").mkdir()
    done = invoke(
        *("eval", "--model", tiny_model, "--model", "empty", "--benchmark", bench_file, "--resamples", "20")
    )
    assert done.code == 1
    error, last = done.err.splitlines()
    assert error.startswith("rmcalib: error: empty: no config.json")
    assert last == "rmcalib: 1 of 2 models failed: empty (see above)"
    assert done.out.count("Report: ") == 1


def test_a_model_without_the_value_of_a_condition_is_one_failure(
    tiny_model: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_model, other)
    (tmp_path / "mine.yaml").write_text(
        f"- {{model: {other}, bradley_terry: 'no', loss: quantile regression}}\n"
    )
    base = ("eval", "--benchmark", bench_file, "--limit", "20", "--resamples", "20", "--recipes", "mine.yaml")
    done = invoke(*base, "--model", other, "--model", tiny_model, "--fail-if", "ece>2", "--json")
    assert done.code == 1
    content = json.loads(done.out)
    assert [result["model"] for result in content["evaluations"]] == [str(tiny_model)]
    (failed,) = content["failed"]
    assert failed["model"] == str(other)
    assert "no value of ece (overall): its outputs are not Plackett-Luce utilities" in failed["error"]
    assert "error: --fail-if 'ece>2': no value of ece" in done.err
    alone = invoke(*base, "--model", other, "--fail-if", "ece>2")
    assert alone.code == 2
    shown, error = alone.err.splitlines()
    assert shown.endswith("all responses were scored before (--fresh scores them again)")
    assert error.startswith("rmcalib: error: --fail-if 'ece>2': no value of ece")


def test_a_config_file_gives_defaults_and_the_command_line_wins(
    tiny_model: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    (tmp_path / "c.yaml").write_text(
        f"model: [{tiny_model}]\nbenchmark: {bench_file}\nresamples: 25\nseed: 3\nlimit: 10\n"
    )
    shown = invoke("eval", "--config", "c.yaml", "--json", "--seed", "4")
    assert shown.code == 0, shown.err
    (result,) = json.loads(shown.out)["evaluations"]
    assert (result["seed"], result["resamples"]) == (4, 25)
    assert result["manifest"]["n_items"] == 10


def test_the_example_configuration_fits(tmp_path: Path, invoke: Invoke) -> None:
    calibrated_scores(60).to_parquet(tmp_path / "s.parquet")
    shown = invoke(
        "eval",
        "--config",
        ROOT / "configs" / "eval.yaml",
        "--scores",
        "s.parquet",
        "--resamples",
        "20",
        "--benchmark",
        "s.jsonl",
    )
    assert shown.code == 2
    assert "s.jsonl" in shown.err
    (tmp_path / "c.yaml").write_text(
        (ROOT / "configs" / "eval.yaml").read_text().replace("benchmark: reward-bench-2\n", "")
    )
    shown = invoke("eval", "--config", "c.yaml", "--scores", "s.parquet", "--resamples", "20")
    assert shown.code == 0, shown.err
    assert "Skywork/Skywork-Reward-V2-Llama-3.1-8B" in shown.out


def test_strange_texts_are_scored(tiny_model: Path, tmp_path: Path, invoke: Invoke) -> None:
    row = tiny.benchmark_rows(1)[0]
    rows = [
        {**row, "id": "empty", "rejected": ["", " "]},
        {**row, "id": "long", "rejected": ["word " * 40_000]},
        {**row, "id": "emoji", "prompt": "🙂 \u202e \x00 what?\ufffe", "chosen": ["🙂" * 50]},
        {**row, "id": "chat", "prompt": [{"role": "user", "content": "<script>alert(1)</script>"}]},
        {**row, "id": "twenty", "rejected": [f"no {i}" for i in range(19)], "subset": "Über <b>"},
    ]
    write_rows(tmp_path / "strange.jsonl", rows)
    shown = invoke("eval", "--model", tiny_model, "--benchmark", "strange.jsonl", "--resamples", "20")
    assert shown.code == 0, shown.err
    words = " ".join(shown.out.split())
    assert "2 responses are empty" in words
    assert "1 of 33 responses (3.0%) were cut at 512 tokens" in words
    page = (folder_of(tmp_path / "runs") / "report.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "\x00" not in page


def test_a_config_that_names_no_labels_is_read_by_its_weights(
    tiny_model: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    shutil.copytree(tiny_model, tmp_path / "unlabelled")
    config = tmp_path / "unlabelled" / "config.json"
    content = json.loads(config.read_text())
    for name in ("num_labels", "id2label", "label2id"):
        content.pop(name, None)
    config.write_text(json.dumps(content))
    for name, output in ((str(tiny_model), "a"), ("unlabelled", "b")):
        shown = invoke(
            "score", "--model", name, "--benchmark", bench_file, "--limit", "8", "--output", output
        )
        assert shown.code == 0, shown.err
    first, second = (
        Scores.from_parquet(folder_of(tmp_path / output) / "scores.parquet") for output in ("a", "b")
    )
    assert first.reward.tolist() == second.reward.tolist()


def test_help_and_the_package_import_nothing_heavy() -> None:
    code = (
        "import sys, rmcalib, rmcalib.cli\n"
        "sys.argv = ['rmcalib', 'eval', '--help']\n"
        "try:\n    rmcalib.cli.main()\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'torch', 'transformers', 'datasets', 'pandas', 'sklearn', 'matplotlib', 'pyarrow'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--fail-if" in done.stdout


def test_models_lists_the_registry(invoke: Invoke) -> None:
    listed = invoke("models")
    assert listed.code == 0
    assert "Skywork/Skywork-Reward-V2-Llama-3.1-8B" in listed.out
    assert max(map(len, listed.out.splitlines())) <= 80
    entries = json.loads(invoke("models", "--json").out)
    assert len(entries) == 55
    assert {entry["status"] for entry in entries} >= {"plain", "rebuilt", "own-code", "unsupported"}
    chosen = json.loads(invoke("models", "--include", "nicolinho/*", "--json").out)
    assert len(chosen) == 2


def test_several_benchmarks_are_evaluated_and_compared(
    tiny_model: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    other = write_rows(tmp_path / "other.jsonl", tiny.benchmark_rows(24))
    base = ("eval", "--model", tiny_model, "--resamples", "20", "--benchmark", bench_file)
    done = invoke(*base, "--benchmark", other)
    assert done.code == 0, done.err
    assert len(list((tmp_path / "runs").glob("*/*/report.html"))) == 2
    assert "best T" in done.out
    assert "rmcalib report runs" in done.err
    content = json.loads(invoke(*base, "--benchmark", other, "--json").out)
    assert [one["benchmark"] for one in content["evaluations"]] == ["small", "other"]
    assert content["benchmarks"]["benchmarks"] == ["small", "other"]
    assert "benchmarks" not in json.loads(invoke(*base, "--json").out)


@pytest.mark.parametrize("option", ["--scores", "--export-rewardbench", "--benchmark-revision"])
def test_options_of_one_benchmark_are_refused_with_several(option: str, invoke: Invoke) -> None:
    result = invoke("eval", "--benchmark", "a.jsonl", "--benchmark", "b.jsonl", option, "x.json")
    assert result.code == 2
    assert f"{option}: belongs to one benchmark, so give one --benchmark" in result.err


def test_one_of_several_benchmarks_may_fail(tiny_model: Path, bench_file: Path, invoke: Invoke) -> None:
    base = ("eval", "--model", tiny_model, "--resamples", "20", "--benchmark", bench_file)
    missing = invoke(*base, "--benchmark", "nowhere.jsonl")
    assert missing.code == 2  # before anything is scored
    assert "nowhere.jsonl" in missing.err


def test_benchmarks_of_one_name_are_refused(tiny_model: Path, tmp_path: Path, invoke: Invoke) -> None:
    """Their runs would share a folder, and with --fresh the second would replace the first."""
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        write_rows(tmp_path / folder / "same.jsonl", tiny.benchmark_rows(8))
    ended = invoke("eval", "--model", tiny_model, "-b", "x/same.jsonl", "-b", "y/same.jsonl")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "2 benchmarks are called 'same': rename a file" in ended.err
    assert not (tmp_path / "runs").exists()
