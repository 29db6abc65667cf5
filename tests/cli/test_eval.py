"""`rmcalib eval` and `rmcalib score` end to end, with a tiny model made on the spot."""

from __future__ import annotations

import functools
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rmcalib.rewards.store import Scores
from tests.cli.conftest import (
    FILES,
    ROOT,
    Invoke,
    command,
    environment,
    folder_of,
    run_on_terminal,
    run_process,
    visible,
    write_rows,
)
from tests.hooks import PATIENCE, held, wait_for
from tests.hub import tiny
from tests.rewards.worlds import calibrated_scores


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


def test_a_killed_run_goes_on_and_ends_with_the_same_scores(
    tiny_model: Path, tmp_path: Path, invoke: Invoke
) -> None:
    bench = write_rows(tmp_path / "long.jsonl", tiny.benchmark_rows(160))
    base = ("score", "--model", tiny_model, "--benchmark", bench, "--token-budget", "200")
    whole = invoke(*base, "--output", tmp_path / "whole")
    assert whole.code == 0, whole.err
    for more, there in ((1, 1), (2, 3)):  # parts that it writes, and that are there then
        process = subprocess.Popen(
            command(*base, "--output", tmp_path / "killed"),
            cwd=tmp_path,
            env=held(environment(HF_HUB_OFFLINE="1"), f"parts == {more}"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        parts = functools.partial((tmp_path / "killed").glob, "*/*/parts/part-*.parquet")
        wait_for(lambda parts=parts, n=there: len(list(parts())) == n, lambda p=process: p.poll() is None)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert not list((tmp_path / "killed").glob("*/*/scores.parquet"))
    resumed = run_process(*base, "--output", tmp_path / "killed", cwd=tmp_path, HF_HUB_OFFLINE="1")
    assert (resumed.code, resumed.err) == (0, "")
    first, second = (
        Scores.from_parquet(next((tmp_path / name).glob("*/*/scores.parquet")))
        for name in ("whole", "killed")
    )
    for column in ("item_id", "category", "response", "is_correct", "reward", "n_tokens", "truncated"):
        np.testing.assert_array_equal(getattr(first, column), getattr(second, column))


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
        patched.setattr("rmcalib.rewards.models.load_model", load_no_more)
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


def test_scores_made_elsewhere_come_in_and_go_out(
    tiny_model: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    base = ("--model", tiny_model, "--benchmark", bench_file, "--quiet")
    assert invoke("score", *base, "--export-rewardbench", "out.json").code == 0
    ours = Scores.from_parquet(next((tmp_path / "runs").glob("*/*/scores.parquet")))
    content = json.loads((tmp_path / "out.json").read_text())
    assert len(content["id"]) == ours.n_items
    content["scores"] = [[[value] for value in row] for row in content["scores"]]  # nested, as some files are
    (tmp_path / "nested.json").write_text(json.dumps(content))
    ours.to_jsonl(tmp_path / "out.jsonl")
    values = []
    for number, file in enumerate(("out.json", "nested.json", "out.jsonl")):
        told = invoke(
            "eval",
            "--scores",
            file,
            "--model",
            "org/rm",
            "--json",
            "--resamples",
            "20",
            "--output",
            f"o{number}",
        )
        assert told.code == 0, told.err
        (result,) = json.loads(told.out)["evaluations"]
        values.append(
            {
                (r["category"], r["metric"]): r["value"]
                for r in result["metrics"]
                if "length" not in r["metric"]
            }
        )
        assert visible(folder_of(tmp_path / f"o{number}")) == FILES
    assert values[0] == pytest.approx(values[1], nan_ok=True)
    assert values[0]["overall", "ece"] == pytest.approx(values[2]["overall", "ece"])


def test_scores_made_elsewhere_keep_what_a_recipe_says(tmp_path: Path, invoke: Invoke) -> None:
    calibrated_scores(30).to_parquet(tmp_path / "s.parquet")
    (tmp_path / "mine.yaml").write_text("- {model: org/rm, bradley_terry: 'no', loss: quantile regression}\n")
    base = ("eval", "--scores", "s.parquet", "--model", "org/rm", "--recipes", "mine.yaml")
    assert invoke(*base, "--resamples", "20", "--quiet").code == 0
    listed = json.loads(invoke("report", "runs", "--resamples", "20", "--json").out)
    assert [row["rank"] for row in listed["models"]] == [None]


def test_a_run_is_not_replaced_by_scores_from_elsewhere(tmp_path: Path, invoke: Invoke) -> None:
    for seed in (1, 2):
        calibrated_scores(30, seed=seed).to_parquet(tmp_path / f"s{seed}.parquet")
    base = ("--model", "org/rm", "--quiet", "--resamples", "20")
    assert invoke("eval", "--scores", "s1.parquet", *base).code == 0
    assert invoke("eval", "--scores", "s1.parquet", *base).code == 0
    refused = invoke("eval", "--scores", "s2.parquet", *base)
    assert refused.code == 2
    assert "holds another run" in refused.err
    assert invoke("eval", "--scores", "s2.parquet", *base, "--fresh").code == 0


def test_several_models_are_compared_and_one_failure_is_told(
    tiny_model: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    (tmp_path / "empty").mkdir()
    done = invoke(
        *("eval", "--model", tiny_model, "--model", "empty", "--benchmark", bench_file, "--resamples", "20")
    )
    assert done.code == 1
    assert done.err.startswith("rmcalib: error: ")
    assert "empty" in done.err
    assert done.err.count("\n") == 1
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
    assert (alone.code, alone.err.count("\n")) == (2, 1)


def test_a_config_file_gives_defaults_and_the_command_line_wins(
    tiny_model: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    (tmp_path / "c.yaml").write_text(
        f"model: [{tiny_model}]\nbenchmark: {bench_file}\nresamples: 25\nseed: 3\nlimit: 10\n"
    )
    told = invoke("eval", "--config", "c.yaml", "--json", "--seed", "4")
    assert told.code == 0, told.err
    (result,) = json.loads(told.out)["evaluations"]
    assert (result["seed"], result["resamples"]) == (4, 25)
    assert result["manifest"]["n_items"] == 10


def test_the_example_configuration_fits(tmp_path: Path, invoke: Invoke) -> None:
    calibrated_scores(60).to_parquet(tmp_path / "s.parquet")
    told = invoke(
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
    assert told.code == 2
    assert "s.jsonl" in told.err
    (tmp_path / "c.yaml").write_text(
        (ROOT / "configs" / "eval.yaml").read_text().replace("benchmark: reward-bench-2\n", "")
    )
    told = invoke("eval", "--config", "c.yaml", "--scores", "s.parquet", "--resamples", "20")
    assert told.code == 0, told.err
    assert "Skywork/Skywork-Reward-V2-Llama-3.1-8B" in told.out


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
    told = invoke("eval", "--model", tiny_model, "--benchmark", "strange.jsonl", "--resamples", "20")
    assert told.code == 0, told.err
    words = " ".join(told.out.split())
    assert "2 responses are empty" in words
    assert "1 of 33 responses were cut at 512 tokens" in words
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
        told = invoke("score", "--model", name, "--benchmark", bench_file, "--limit", "8", "--output", output)
        assert told.code == 0, told.err
    first, second = (
        Scores.from_parquet(folder_of(tmp_path / output) / "scores.parquet") for output in ("a", "b")
    )
    assert first.reward.tolist() == second.reward.tolist()


def test_a_full_disk_is_one_line_and_leaves_no_halves(
    tiny_model: Path, bench_file: Path, tmp_path: Path
) -> None:
    def small_files_only() -> None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    done = subprocess.run(
        command("eval", "--model", tiny_model, "--benchmark", bench_file, "--resamples", "20"),
        cwd=tmp_path,
        env=environment(HF_HUB_OFFLINE="1"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        preexec_fn=small_files_only,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    left = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert not [path for path in left if path.name.endswith(".tmp") or path.name in FILES[:4]]


def test_a_second_run_on_the_same_folder_stops(
    tiny_model: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    from filelock import FileLock

    assert invoke("score", "--model", tiny_model, "--benchmark", bench_file, "--quiet").code == 0
    with FileLock(folder_of(tmp_path / "runs") / ".lock"):
        done = invoke("score", "--model", tiny_model, "--benchmark", bench_file)
    assert done.code == 2
    assert "is in use" in done.err


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
    assert {entry["status"] for entry in entries} >= {"plain", "adapter", "remote", "unsupported"}
    chosen = json.loads(invoke("models", "--include", "nicolinho/*", "--json").out)
    assert len(chosen) == 2


def test_progress_is_a_bar_on_a_terminal(tiny_model: Path, bench_file: Path, tmp_path: Path) -> None:
    done = run_on_terminal(
        command("score", "--model", tiny_model, "--benchmark", bench_file),
        cwd=tmp_path,
        env=environment(HF_HUB_OFFLINE="1", TERM="xterm", COLUMNS="100"),
    )
    assert done.code == 0
    assert "tokens/s" in done.err
