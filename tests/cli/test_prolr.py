"""``rmcalib prolr`` as a user runs it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.processes import run_python

NO_DATA = {"HTTPS_PROXY": "http://127.0.0.1:9"}  # nobody listens there
FAST = ["--learner", "mallows", "--folds", "2", "--resamples", "0"]


def prolr(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "RMCALIB_DATA"}
    environment |= {**NO_DATA, "RMCALIB_CACHE": str(cwd / "cache")}
    return run_python(["-m", "rmcalib", "prolr", *arguments], cwd=cwd, env=environment)


def test_iris_offline_ends_with_a_table_and_a_figure(tmp_path: Path) -> None:
    result = prolr(
        "--dataset",
        "iris,wine",
        "--learner",
        "pl,mallows,rpc",
        "--folds",
        "2",
        "--resamples",
        "20",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert "iris: 150 rows, 3 labels" in result.stdout
    assert "sub-2" in result.stdout
    assert max(map(len, result.stdout.splitlines()[:-3])) <= 80
    last = result.stdout.splitlines()[-1]
    assert last.startswith("PNG: ")
    assert Path(last.removeprefix("PNG: ")).read_bytes()[:4] == b"\x89PNG"
    out = tmp_path / "runs" / "prolr" / "iris+wine"
    header = (out / "results.csv").read_text().splitlines()[0]
    assert header.startswith("dataset,learner,fold,family,notion,k,protocol,discrepancy,value,low,high")
    assert result.stderr == ""


def test_json_config_and_own_file(tmp_path: Path) -> None:
    lines = [f"{i},{'ab'[i % 2]},{1 + i % 2},{2 - i % 2},3" for i in range(20)]
    (tmp_path / "own.csv").write_text("x,kind,one,two,three\n" + "\n".join(lines) + "\n")
    (tmp_path / "c.yaml").write_text("data: own.csv\nlabels: one,two,three\nfolds: 2\nlearner: mallows,rpc\n")
    result = prolr(
        "--config", "c.yaml", "--json", "--stagewise", "--k", "all", "--protocol", "both", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    content = json.loads(result.stdout)
    assert {row["learner"] for row in content["summary"]} == {"mallows", "rpc"}
    assert {row["protocol"] for row in content["summary"]} == {"exact", "reference"}
    assert content["stagewise"]
    assert Path(tmp_path / content["figures"][0]).name == "own.png"


def test_quiet_is_quiet_and_a_second_run_resumes(tmp_path: Path) -> None:
    first = prolr(*FAST, "--quiet", cwd=tmp_path)
    assert (first.returncode, first.stdout, first.stderr) == (0, "", "")
    results = tmp_path / "runs" / "prolr" / "iris" / "results.csv"
    before = results.read_bytes()
    part = next((tmp_path / "runs" / "prolr" / "iris" / "parts").glob("*fold-1__*.csv"))
    part.unlink()
    assert prolr(*FAST, "--quiet", cwd=tmp_path).returncode == 0
    assert results.read_bytes() == before
    assert prolr(*FAST, "--seed", "4", "--quiet", cwd=tmp_path).returncode == 0
    assert results.read_bytes() != before
    assert prolr(*FAST, "--quiet", cwd=tmp_path).returncode == 0
    assert results.read_bytes() == before


def test_the_strong_notion_is_shown_and_drawn(tmp_path: Path, invoke: Invoke) -> None:
    result = invoke("prolr", *FAST, "--notion", "full-rank", "--k", "1", "--protocol", "both")
    assert result.code == 0, result.err
    assert "top-1 full-rank" in result.out
    assert "reference" in result.out
    assert (tmp_path / "runs" / "prolr" / "iris" / "iris.png").is_file()


def test_repeats_count_once(tmp_path: Path) -> None:
    twice = (
        "--dataset",
        "iris,iris",
        "--learner",
        "mallows,mallows",
        "--notion",
        "rankwise,rankwise",
        *FAST[2:],
    )
    result = prolr(*twice, "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert {row["folds"] for row in json.loads(result.stdout)["summary"]} == {2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "iriss"], "dataset: unknown 'iriss'"),
        (["--dataset", "glass"], "glass: https://raw.githubusercontent.com"),
        (["--data", "nowhere.csv"], "nowhere.csv: there is no such file"),
        (["--data", "ties.csv"], "line 2 has ranks 1, 1"),
        (["--data", "ragged.csv"], "ragged.csv, line 4: 5 cells, but the header has 4"),
        (["--data", "short.csv"], "short: 2 rows are too few for 5 folds"),
        (["--learner", "svm"], "learner: unknown 'svm'"),
        (["--k", "two"], "k: 'two' is neither"),
        (["--protocol", "paper"], "protocol: unknown 'paper'"),
        (["--training", "reference", "--folds", "3"], "the reference setting has 5 folds"),
        (["--folds", "1"], "--folds"),
        (["--stagewise", "--protocol", "reference"], "stagewise: needs the notion rankwise"),
        (["--stagewise", "--notion", "full-rank"], "needs the notion rankwise, the protocol exact"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    arguments: list[str], message: str, tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RMCALIB_DATA", raising=False)
    for name, value in NO_DATA.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RMCALIB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "ties.csv").write_text("A1,L1,L2\n1,1,1\n2,1,2\n")
    (tmp_path / "ragged.csv").write_text('A1,A2,L1,L2\n"a\nb",1,1,2\n9,c,1,2,1\n9,d,2,1,2\n')
    (tmp_path / "short.csv").write_text("A1,L1,L2\n1,2,1\n2,1,2\n")
    result = invoke("prolr", *arguments)
    assert result.code == 2
    assert message in " ".join(result.err.replace("│", " ").split())
    assert "Traceback" not in result.err
    assert not (tmp_path / "runs").exists()
    assert not [path for path in tmp_path.rglob("cache/**/*") if path.is_file()]
