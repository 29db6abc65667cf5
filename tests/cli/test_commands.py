"""Every other command from its input to its output."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pandas
import pytest

from rmcalib.repair import Calibrator
from rmcalib.scores import load_scores
from tests.cli.conftest import ROOT, Invoke, folder_of, visible, write_rows, write_scores

QUICK = ("--resamples", "20")


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    """Two judges of the same prompts: a.csv is over-confident, b.csv is calibrated and noisier."""
    write_scores(tmp_path / "a.csv")
    write_scores(tmp_path / "b.csv", scale=1.0, noise=1)
    return "a.csv", "b.csv"


def test_report_of_runs_of_the_built_in_board_and_of_a_table(
    two: tuple[str, str], tmp_path: Path, invoke: Invoke
) -> None:
    for name in two:
        assert invoke("eval", "--scores", name, *QUICK, "--quiet").code == 0
    done = invoke("report", "runs", *QUICK, "--json")
    assert done.code == 0, done.err
    board = json.loads(done.out)
    assert [row["model"] for row in board["models"]] == ["b", "a"]  # by what the probabilities are worth
    assert Path(board["page"]).is_file()
    sorted_by = json.loads(invoke("report", "runs", *QUICK, "--metric", "overconfidence", "--json").out)
    assert sorted_by["metric"] == "overconfidence"
    (tmp_path / "t.csv").write_text("model,leaderboard_score,ece\nx,0.8,0.1\ny,0.7,0.2\n")
    table = invoke("report", "--table", "t.csv", "--output", "page", *QUICK)
    assert table.code == 0, table.err
    assert "page/report.html" in table.out
    assert (tmp_path / "page/leaderboard.csv").is_file()
    paper = ("report", "--table", ROOT / "results/published_reward_models.csv", *QUICK, "--json")
    whole, fewer = (json.loads(invoke(*paper, *more).out) for more in ((), ("--bradley-terry-only",)))
    assert len(fewer["models"]) < len(whole["models"])
    for name in ("figures/top_10.png", "figures/correlations.png"):
        assert (tmp_path / "runs/report" / name).read_bytes()[:4] == b"\x89PNG"
        assert not (tmp_path / "page" / name).exists()  # two models
    real = invoke("report", "--benchmark", "rewardmath", "--output", "real", *QUICK)
    assert real.code == 0, real.err
    assert "rmcalib compare real/" in real.out


# What a user puts in place of the words in capitals.
FILLED = {"OTHER_SCORES": "b.csv", "NEW_SCORES": "new.csv", "LABELLED": "b.csv", "FILE": "new.csv"}
MEASURING = ("eval", "report", "compare", "card")


@pytest.mark.parametrize(
    "command",
    [
        "eval --scores a.csv",
        "eval --scores b.csv",
        "eval --scores correct.csv",
        "report a.csv b.csv",
        "report new.csv a.csv b.csv",
        "report runs",
        "report --table table.csv",
        "report --benchmark rewardmath --metric gap",
        "compare a.csv b.csv",
        "calibrate a.csv --to a.json",
        "decide correct.csv --to rule.json",
        "best-of-n correct.csv",
        "apply new.csv --calibrator fitted.json --to new-with-p.csv",
        "combine a.csv b.csv --to panel.json",
        "combine a.csv b.csv --to panel.parquet",
        "card a.csv",
        "list metrics gap",
        "list benchmarks",
    ],
)
def test_commands_that_are_printed_run(
    command: str, two: tuple[str, str], tmp_path: Path, invoke: Invoke
) -> None:
    write_scores(tmp_path / "new.csv")
    rows = pandas.read_csv(tmp_path / "new.csv")
    rows.drop(columns="is_best").to_csv(tmp_path / "new.csv", index=False)
    correct = np.random.default_rng(1).random(len(rows)) < 1 / (1 + np.exp(-rows["score"] / 2))
    rows.drop(columns="is_best").assign(correct=correct.astype(int)).to_csv(
        tmp_path / "correct.csv", index=False
    )
    (tmp_path / "table.csv").write_text("model,leaderboard_score,ece\nx,0.8,0.1\ny,0.7,0.2\n")
    if "fitted.json" in command:
        assert invoke("calibrate", "a.csv", "--to", "fitted.json", "--quiet").code == 0
    if command == "report runs":
        for name in two:
            assert invoke("eval", "--scores", name, *QUICK, "--quiet").code == 0
    quick = QUICK if command.split()[0] in MEASURING else ()
    done = invoke(*command.split(), *quick)
    assert done.code == 0, done.err
    assert max(map(len, (line for line in done.out.splitlines() if str(tmp_path) not in line))) <= 100
    pages = [Path(line.split(": ")[1]) for line in done.out.splitlines() if line.startswith("Report: ")]
    printed = [line[line.index("rmcalib ") :] for line in done.out.splitlines() if "  rmcalib " in line]
    printed += [line.split(": ", 1)[1] for line in done.out.splitlines() if line.startswith("Next")]
    printed = [line for line in printed if line.startswith("rmcalib ") and "--push-to-hub" not in line]
    for page in pages:
        assert all(text.split()[1] in page.read_text() for text in printed)
    for text in dict.fromkeys(printed):
        text = text.replace("--to FILE", "--to written.json")
        words = [FILLED.get(word, word) for word in shlex.split(text)[1:]]
        again = invoke(*words, *(QUICK if words[0] in MEASURING else ()))
        assert again.code == 0, f"{text}: {again.err}"


def test_compare_with_conditions_and_files(two: tuple[str, str], tmp_path: Path, invoke: Invoke) -> None:
    done = invoke(
        "compare", *two, *QUICK, "--to", "rows.csv", "--json", "--fail-if", "abs(overconfidence).high<0"
    )
    assert done.code == 1, done.err
    found = json.loads(done.out)
    (gap,) = [
        r for r in found["differences"] if (r["category"], r["metric"]) == ("overall", "overconfidence")
    ]
    assert gap["better"] == "b"
    assert gap["size_high"] < 0
    assert found["conditions_met"] == ["abs(overconfidence).high<0"]
    with (tmp_path / "rows.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(found["differences"])
    text = invoke("compare", *two, *QUICK, "--fail-if", "accuracy.low>0", "--markdown", "m.md")
    assert text.code == 0, text.err
    assert "runs/compare/report.html" in text.out
    assert "| right |" in (tmp_path / "m.md").read_text()


def test_best_of_n_with_a_second_judge_and_files(
    two: tuple[str, str], tmp_path: Path, invoke: Invoke
) -> None:
    done = invoke("best-of-n", two[0], "--second", two[1], "--to", "rows.csv", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert [row["n"] for row in found["rows"]] == [1, 2, 3, 4]
    assert found["rows"][0]["right"] == pytest.approx(0.25)
    assert (found["second"], Path(found["page"]).is_file()) == ("b", True)
    with (tmp_path / "rows.csv").open(newline="") as file:
        assert float(list(csv.DictReader(file))[-1]["right"]) == pytest.approx(found["rows"][-1]["right"])
    rows = [
        {"prompt": i, "reward": (i + j) % 5, "correct": int((i + j) % 5 == 4), "step": 0}
        for i in range(30)
        for j in range(3)
    ]
    write_rows(tmp_path / "samples.jsonl", rows)
    cheap = json.loads(invoke("best-of-n", "samples.jsonl", "--cost", 0.9, "--up-to", 2, "--json").out)
    assert (cheap["labels"], cheap["enough_at"], len(cheap["rows"])) == ("correct", 1, 2)
    assert invoke("calibrate", "samples.jsonl", "--to", "c.json").code == 0
    stated = json.loads(invoke("best-of-n", "samples.jsonl", "--calibrator", "c.json", "--json").out)
    assert 0 < stated["rows"][0]["says"] < 1
    assert invoke("best-of-n", "samples.jsonl", "--markdown", "page.md").code == 0
    assert "pass@n" in (tmp_path / "page.md").read_text()
    more = invoke("best-of-n", "samples.jsonl", "--up-to", 4)
    assert more.code == 2
    assert "4" in more.err


def test_commands_to_copy_are_quoted(tmp_path: Path, invoke: Invoke) -> None:
    name, to = "a $(touch x) `id`.csv", "it's; $HOME.json"
    write_scores(tmp_path / name)
    last = invoke("calibrate", name, "--to", to).out.rstrip().splitlines()[-1]
    assert to in shlex.split(last, comments=True), last


def test_calibrate_apply_decide(tmp_path: Path, invoke: Invoke) -> None:
    write_scores(tmp_path / "a.csv")
    done = invoke("calibrate", "a.csv", "--json")
    found = json.loads(done.out)["calibrator"]
    assert found["low"] < 2.5 < found["high"]
    assert (tmp_path / "runs/calibrator.json").is_file()
    shown = invoke("apply", "a.csv", "--calibrator", "runs/calibrator.json", "--to", "-")
    assert shown.out.splitlines()[0].startswith("prompt_id,response_id,score,is_best,kind,probability")
    assert "decision" not in shown.out
    rule = ("--wrong-at-most", 0.6, "--json")
    decided = invoke("decide", "a.csv", "--calibrator", "runs/calibrator.json", *rule, "--to", "rule.json")
    assert decided.code == 0, decided.err
    choice = json.loads(decided.out)
    assert choice["wrong_at_most"] == choice["rule"]["wrong_at_most"] == 0.6
    done = invoke("apply", "a.csv", "--calibrator", "rule.json", "--to", "p.csv", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["accepted"] == choice["choice"]["accepted"]
    given, rows = (
        list(csv.DictReader((tmp_path / name).read_text().splitlines())) for name in ("a.csv", "p.csv")
    )
    assert [{name: row[name] for name in given[0]} for row in rows] == given
    assert sum(float(row["probability"]) for row in rows) == pytest.approx(len(rows) / 4)
    decisions = [row["decision"] for row in rows]
    assert decisions.count("accept") == choice["choice"]["n"]
    assert decisions.count("") == 0.75 * len(rows)  # one of four responses is the first choice
    assert invoke("decide", "a.csv").code == 0
    assert Calibrator.load(tmp_path / "runs/decide.json").temperature == 1
    assert invoke("apply", "a.csv", "--calibrator", "rule.json", "--to", "rule.json").code == 2
    assert invoke("decide", "a.csv", "--calibrator", "rule.json", "--to", "rule.json").code == 2


def test_fit_on_one_half_and_decide_on_the_other(tmp_path: Path, invoke: Invoke) -> None:
    write_scores(tmp_path / "a.csv")
    half = invoke("calibrate", "a.csv", "--part", "1/2", "--to", "c.json", "--json")
    n = json.loads(half.out)["n"]
    used = ("--calibrator", "c.json", "--json")
    whole = json.loads(invoke("decide", "a.csv", *used, "--to", "r.json").out)
    other = json.loads(invoke("decide", "a.csv", "--part", "2/2", *used, "--to", "r.json").out)
    assert (other["n"], whole["n"]) == (whole["n"] - n, whole["n"])
    seen = [
        json.loads(invoke("eval", "--scores", "a.csv", *part, *used, *QUICK).out)["evaluations"][0]["facts"][
            "in_fit"
        ]
        for part in ((), ("--part", "1/2"), ("--part", "2/2"))
    ]
    assert seen == [n, n, 0]


def test_calibrate_a_model_and_write_its_checkpoint(
    plain: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    run = ("--model", plain, "--benchmark", bench_file, "-J", "device=cpu")
    refused = invoke("calibrate", *run, "--checkpoint", "new", "--to", "c.json", "--output", "out")
    assert refused.code == 2  # random rewards: no temperature helps
    assert visible(folder_of(tmp_path / "out")) == ["run.json", "scores.parquet"]
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "c.json").exists()
    served = invoke("calibrate", *run[:4], "--endpoint", "http://127.0.0.1:9", "--checkpoint", "new")
    assert served.code == 2
    assert "--checkpoint" in served.err


def test_combine_and_evaluate_the_panel(two: tuple[str, str], tmp_path: Path, invoke: Invoke) -> None:
    done = invoke("combine", *two, "--json")
    assert done.code == 0, done.err
    assert [row["judge"] for row in json.loads(done.out)["members"]] == ["a", "b"]
    assert len(load_scores(tmp_path / "runs/panel.parquet")) == 480
    assert "eval --scores runs/panel.parquet" in invoke("combine", *two, "--method", "mean").out
    done = invoke("combine", *two, "--to", "panel.json", "--json")
    assert done.code == 0, done.err
    assert [row["name"] for row in json.loads(done.out)["inputs"]] == ["a", "b"]
    assert invoke("apply", *two, "--calibrator", "panel.json", "--to", "p.csv").code == 0
    raw = np.stack([load_scores(tmp_path / name).reward for name in two], axis=-1)
    expected = Calibrator.load(tmp_path / "panel.json").p_best(raw, load_scores(tmp_path / two[0]).item_id)
    with (tmp_path / "p.csv").open() as file:
        probabilities = [float(row["probability"]) for row in csv.DictReader(file)]
    np.testing.assert_allclose(probabilities, expected)
    assert invoke("apply", two[0], "--calibrator", "panel.json").code == 2
    assert invoke("apply", "--calibrator", "panel.json").code == 2
    assert invoke("combine", *two, "--to", "panel.csv").code == 2
    done = invoke("combine", *two, "--method", "all", "--labels-are", "correct", "--to", "all.json", "--json")
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["disagreements"]) == 1
    assert Calibrator.load(tmp_path / "all.json").joins
    assert invoke("combine", *two, "--method", "all", "--to", "all.parquet").code == 2


def test_what_a_command_reads_is_never_replaced(two: tuple[str, str], tmp_path: Path, invoke: Invoke) -> None:
    assert invoke("eval", "--scores", two[0], "--resamples", 20, "--quiet").code == 0
    run = folder_of(tmp_path / "runs")
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    for target in (run / "scores.parquet", run / "run.json", two[1]):
        done = invoke("combine", run, two[1], "--to", target)
        assert (done.code, str(target) in done.err) == (2, True)
    (tmp_path / "labels.csv").write_text("prompt,response,label\n0,0,1\n")
    for line in (
        ("eval", "--scores", two[0], "--markdown", two[0]),
        ("eval", "--scores", two[0], "--labels", "labels.csv", "--markdown", "labels.csv"),
        ("calibrate", two[0], "--labels", "labels.csv", "--to", "labels.csv"),
        ("compare", *two, "--labels", "labels.csv", "--to", "labels.csv"),
        ("compare", *two, "--second", two[1], "--markdown", two[1]),
    ):
        done = invoke(*line)
        assert (done.code, line[-1] in done.err) == (2, True)
    assert {path: path.read_bytes() for path in before} == before


def test_card(tmp_path: Path, invoke: Invoke) -> None:
    write_scores(tmp_path / "a.csv")
    done = invoke("card", "a.csv", "--model", "org/mine", *QUICK)
    assert done.code == 0, done.err
    assert "rmcalib card a.csv --push-to-hub org/mine" in done.out
    assert (tmp_path / "runs/card/card.md").read_text()
    assert (tmp_path / "runs/card/calibration/reliability.png").read_bytes()[:4] == b"\x89PNG"


def test_watch(tmp_path: Path, invoke: Invoke) -> None:
    pytest.importorskip("rmcalib.integrations.watching")
    (tmp_path / "rollouts").mkdir()
    for step in (1, 2):
        rows = [
            {"input": f"{i}?", "output": "x" * (1 + j), "score": 2.0 + j / 10, "acc": j % 2, "step": step}
            for i in range(60)
            for j in range(4)
        ]
        write_rows(tmp_path / f"rollouts/{step}.jsonl", rows)
    done = invoke("watch", "rollouts", "--json", "--scale", "log_odds")
    assert done.code == 1  # says 0.88 and is right half of the time
    found = json.loads(done.out)
    assert [row["step"] for row in found["steps"]] == [1, 2]
    assert found["alarm"]["what"] == "gap"
    text = invoke("watch", "rollouts", "--calibrator", "start", "--start", 40, "--to", "steps.csv")
    assert "--follow" in text.out
    assert invoke("watch", "rollouts", "--fail-if", "mean_reward<1e9").code == 1
    points = invoke("watch", "rollouts", "--fail-if", "gap>5")  # conditions take fractions, not points
    assert points.code == 2
    assert "gap>5" in points.err
    wrong = invoke("watch", "rollouts", "--fail-if", "gpa>0.1")
    assert wrong.code == 2
    assert "gpa" in wrong.err
    assert len((tmp_path / "steps.csv").read_text().splitlines()) == 3


def test_batch_plans_and_runs(plain: Path, bench_file: Path, tmp_path: Path, invoke: Invoke) -> None:
    listed = ("--models", ROOT / "configs/leaderboard.yaml", "-J", "device=cpu", "--ignore-memory")
    plan = json.loads(invoke("batch", *listed, "--max-params", "3B", "--dry-run", "--json").out)
    assert "OpenAssistant/reward-model-deberta-v3-large-v2" in {
        row["model"] for row in plan if not row["skipped"]
    }
    assert invoke("batch", *listed, "--family", "gemma", "--dry-run").code == 0
    assert not (tmp_path / "runs").exists()
    (tmp_path / "models.yaml").write_text(json.dumps([{"model": str(plain)}, {"model": "./nowhere"}]))
    base = ("batch", "--models", "models.yaml", "-b", bench_file, "--limit", 8, "-J", "device=cpu", *QUICK)
    done = invoke(*base)
    assert done.code == 1
    assert "./nowhere" in done.out
    assert "rmcalib report runs" in done.out
    assert (folder_of(tmp_path / "runs") / "report.html").is_file()


def test_prolr(tmp_path: Path, invoke: Invoke) -> None:
    lines = [f"{i},{'ab'[i % 2]},{1 + i % 2},{2 - i % 2},3" for i in range(20)]
    (tmp_path / "own.csv").write_text("x,kind,one,two,three\n" + "\n".join(lines) + "\n")
    fast = ("--learner", "mallows", "--folds", 2, "--resamples", 0)
    done = invoke("prolr", "--data", "own.csv", "--labels", "one,two,three", *fast, "--k", "all", "--json")
    assert done.code == 0, done.err
    assert {row["k"] for row in json.loads(done.out)["summary"] if row["family"] == "sub"} == {2, 3}
    text = invoke(
        "prolr", "--dataset", "iris", "--k", "1,2", "--notion", "rankwise", "--protocol", "both", *fast
    )
    assert text.code == 0, text.err
    assert str(tmp_path / "runs/prolr/iris") in text.out
    assert visible(tmp_path / "runs/prolr/iris")[-2:] == ["results.csv", "summary.csv"]


def test_prolr_can_be_read_at_80_columns(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    notions = ("rankwise", "rankwise-95", "full-rank", "full-rank-95")
    measured = ("--notion", ",".join(notions), "--protocol", "both", "--stagewise", "test", "--resamples", 5)
    done = invoke("prolr", "--learner", "mallows,rpc", "--recalibrate", "--folds", 2, *measured)
    assert done.code == 0, done.err
    assert "…" not in done.out
    lines = done.out.splitlines()[:-3]  # the last ones name the folder
    assert max(map(len, lines)) <= 80
    for heading in (*notions[:3], *(f"{notion}, reference" for notion in notions), "uncalibrated from k"):
        assert any(line.startswith(f"{heading} ") for line in lines)


def test_prolr_takes_the_rule_of_stagewise(invoke: Invoke) -> None:
    fast = ("prolr", "--learner", "mallows", "--folds", 2, "--resamples", 20, "--json")
    for rule in ("test", 0.1):
        done = invoke(*fast, "--stagewise", rule)
        assert done.code == 0, done.err
        stages = json.loads(done.out)["stages"]
        assert {(row["family"], row["fold"]) for row in stages} == {
            (f, i) for f in ("sub", "top") for i in (0, 1)
        }
        assert {row["uncalibrated_from"] for row in stages} <= {2, 3, None}


@pytest.mark.parametrize("name", ["prolr", "prolr_small"])
def test_the_configurations_of_the_papers_experiment_run(name: str, invoke: Invoke) -> None:
    """Mallows on iris: the configuration of the paper's experiment gives the rows of results/."""
    given = ("--config", ROOT / f"configs/{name}.yaml", "--dataset", "iris", "--learner", "mallows")
    done = invoke("prolr", *given, "--processes", 1, "--resamples", 5, "--output", "out", "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["summary"]
    if name == "prolr":
        shipped = pandas.read_csv(ROOT / "results/reference.csv.gz", keep_default_na=False)
        shipped = shipped[(shipped["dataset"] == "iris") & (shipped["learner"] == "mallows")]
        keys = ["family", "notion", "k", "protocol", "discrepancy"]
        means = shipped.groupby(keys)["value"].mean().to_dict()
        ours = {tuple(row[key] for key in keys): row["mean"] for row in rows}
        assert ours == pytest.approx(means, abs=2e-6)
    else:
        assert {row["protocol"] for row in rows} == {"exact", "reference"}


@pytest.mark.parametrize(
    ("what", "name"),
    [("models", "demo"), ("benchmarks", "rm-bench"), ("metrics", "kept_information"), ("judges", "policy")],
)
def test_list(what: str, name: str, invoke: Invoke) -> None:
    every = json.loads(invoke("list", what, "--json").out)
    assert name in {row["name"] for row in every}
    assert name in invoke("list", what).out
    one = invoke("list", what, name)
    assert one.code == 0
    assert one.out.splitlines()[0] == name


def test_doctor(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmcalib import judges
    from rmcalib.judges._doctor import Diagnosis

    found = Diagnosis({"rmcalib": "0"}, {}, "offline", ())
    monkeypatch.setattr(judges, "diagnose", lambda: found)
    assert json.loads(invoke("doctor", "--json").out)["hub"] == "offline"
    assert invoke("doctor").code == 0
