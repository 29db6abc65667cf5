"""`rmcalib eval --scores`: scores made elsewhere come in, go out, replace nothing; no model is run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmcalib.scores import Scores
from tests.cli.conftest import (
    FILES,
    Invoke,
    folder_of,
    visible,
)
from tests.metrics.worlds import calibrated_scores


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
        reported = invoke(
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
        assert reported.code == 0, reported.err
        (result,) = json.loads(reported.out)["evaluations"]
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


def test_the_page_of_a_run_keeps_its_texts_if_its_own_scores_are_evaluated_again(
    tiny_model: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    assert invoke("eval", "--model", tiny_model, "--benchmark", bench_file, "--resamples", "20").code == 0
    (file,) = (tmp_path / "runs").rglob("scores.parquet")
    before = {path.name: path.read_bytes() for path in file.parent.iterdir() if path.is_file()}
    again = invoke("eval", "--scores", file, "--resamples", "20", "--json")
    assert again.code == 0, again.err
    (done,) = json.loads(again.out)["evaluations"]
    assert {name: (file.parent / name).read_bytes() for name in before} == before
    assert (Path(done["folder"]) / "report.html").is_file()


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
        assert ended.err == f"rmcalib: error: {given[0]}: no effect with --scores (no model is run)\n"
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


def test_scores_of_other_prompts_than_the_benchmark_s_are_refused(invoke: Invoke, tmp_path: Path) -> None:
    calibrated_scores(25).to_parquet(tmp_path / "s.parquet")
    ended = invoke("eval", "--scores", "s.parquet", "--benchmark", "demo", "--model", "a/b")
    reported = "s.parquet: none of its prompts is in demo: name the benchmark they are from, or leave"
    assert (ended.code, reported in ended.err, ended.err.count("\n")) == (2, True, 1)
    assert not (tmp_path / "runs").exists()


def test_files_that_name_no_benchmark_meet_in_one_report(invoke: Invoke, tmp_path: Path) -> None:
    for number in (1, 2):
        calibrated_scores(40, seed=number).to_jsonl(tmp_path / f"s{number}.jsonl")
        ended = invoke("eval", "--scores", f"s{number}.jsonl", "--resamples", "20", "--quiet")
        assert ended.code == 0, ended.err
    reported = json.loads(invoke("report", "runs", "--resamples", "20", "--json").out)
    assert {row["model"] for row in reported["models"]} == {"s1", "s2"}


def test_an_export_has_the_name_that_the_file_gave(invoke: Invoke, tmp_path: Path) -> None:
    calibrated_scores(25).to_jsonl(tmp_path / "mine.jsonl")
    base = ("eval", "--scores", "mine.jsonl", "--resamples", "20", "--quiet", "--export-rewardbench")
    assert invoke(*base, "out.json").code == 0
    assert json.loads((tmp_path / "out.json").read_text())["model"] == "mine"
    refused = invoke(*base, "other", "--output", "other")
    assert refused.err == (
        "rmcalib: error: --export-rewardbench other: is the folder of --output, or above it: name a file\n"
    )
    assert not (tmp_path / "other").exists()


def test_a_configuration_may_give_one_value_where_several_are_allowed(invoke: Invoke, tmp_path: Path) -> None:
    calibrated_scores(25).to_parquet(tmp_path / "s.parquet")
    (tmp_path / "c.yaml").write_text("model: a/b\nfail-if: accuracy<0\nresamples: 20\n")
    ended = invoke("eval", "--config", "c.yaml", "--scores", "s.parquet", "--json")
    assert ended.code == 0, ended.err
    assert [one["model"] for one in json.loads(ended.out)["evaluations"]] == ["a/b"]


def test_a_column_by_another_name_is_found_or_asked_for(invoke: Invoke, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    scores = calibrated_scores(5)
    calibrated = {name: getattr(scores, name).tolist() for name in ("item_id", "category", "response")}
    table = pyarrow.table({**calibrated, "is_correct": scores.is_correct, "score": scores.reward})
    pyarrow.parquet.write_table(table, tmp_path / "s.parquet")
    ended = invoke("eval", "--scores", "s.parquet", "--resamples", "20")
    assert ended.code == 0, ended.err
    (tmp_path / "rows.json").write_text(json.dumps([{"item_id": "a", "much": 1.0}]))
    ended = invoke("eval", "--scores", "rows.json")
    assert ended.code == 2
    assert "--columns reward=" in ended.err


def test_groups_and_bounds_of_given_scores(tmp_path: Path, invoke: Invoke) -> None:
    calibrated_scores(200, confidence=3.0).to_parquet(tmp_path / "s.parquet")
    base = ("eval", "--scores", "s.parquet", "--resamples", "20")
    done = invoke(*base, "--group-by", "category", "--fail-if", "abs(overconfidence).low>0.05", "--json")
    assert done.code == 1
    (result,) = json.loads(done.out)["evaluations"]
    assert {row["group"] for row in result["groups"]} == {"Math", "Focus"}
    assert all(row["flagged"] for row in result["groups"])
    assert "holds: abs(overconfidence).low is 0.1" in done.err
    assert invoke(*base, "--fail-if", "overconfidence.high<-0.05", "--quiet").code == 0
    isotonic = invoke(*base, "--curve", "isotonic", "--json")
    (result,) = json.loads(isotonic.out)["evaluations"]
    assert {row["panel"] for row in result["isotonic"]} == {"overall", "Math", "Focus"}
    page = (Path(result["folder"]) / "report.html").read_text(encoding="utf-8")
    assert "The dash-dotted curve is isotonic regression" in page
    wrong = invoke(*base, "--group-by", "language")
    assert wrong.code == 2
    assert "group by: unknown 'language' (have: category, length, responses)" in wrong.err
