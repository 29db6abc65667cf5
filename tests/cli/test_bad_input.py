"""What a careless or hostile user types: one line that names it, exit code 2, and nothing written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmcalib.cli import COMMANDS, app
from tests.cli.conftest import Invoke, environment, write_scores

SCORES = ("eval", "--scores", "s.csv", "--resamples", "20")
CASES: list[tuple[tuple[str, ...], str]] = [
    # Misspelt names, before any network is asked.
    (("evl",), '"eval"'),
    (("eval", "--modle", "demo"), "--model"),
    (("eval", "--model", "dmeo"), "'demo'"),
    (
        ("eval", "--model", "Skywork/Skywork-Reward-V2-Lama-3.1-8B"),
        "'Skywork/Skywork-Reward-V2-Llama-3.1-8B'",
    ),
    (("eval", "--benchmark", "reward-bnch-2"), "'reward-bench-2'"),
    (("eval", "s.csv"), "--scores"),
    (("calibrate", "s.csv", "more.csv"), "more.csv"),
    (("eval", "--model", "demo", "--dtype", "float16"), "-J dtype="),
    (("eval", "-J", "devise=cpu"), "'device'"),
    (("eval", "-J", "votes=3"), "'generative'"),
    (("eval", "--fail-if", "eec>0.1"), "'ece'"),
    (("list", "benchmarks", "rmbench"), "'rm-bench'"),
    (("report", "--metric", "kept_informaton"), "kept_information"),
    ((*SCORES, "--columns", "rewrd=score"), "'reward'"),
    # Values.
    (("eval", "-J", "device"), "-J device"),
    (("eval", "-J", "max_length=long"), "'long'"),
    (("eval", "--limit", "0"), "--limit"),
    (("eval", "--part", "3/2"), "3/2"),
    ((*SCORES, "--fail-if", "ece[Maths]>0.1"), "Maths"),
    (("decide", "s.csv", "--wrong-at-most", "2"), "--wrong-at-most"),
    (("best-of-n", "s.csv", "--cost", "2"), "--cost"),
    (("serve", "--max-body", "1e400"), "--max-body"),
    (("serve", "--hold", "nan"), "--hold"),
    (("best-of-n", "s.csv", "--second", "missing.csv"), "missing.csv"),
    (("combine", "s.csv", "s.csv"), "s.csv"),
    (("prolr", "--k", "1000"), "1000"),
    (("prolr", "--k", "2,x"), "--k 2,x"),
    (("prolr", "--bandwidth", "-1"), "--bandwidth"),
    (("prolr", "--stagewise", "often"), "--stagewise often"),
    (("prolr", "--stagewise", "3"), "stagewise"),
    (("prolr", "--stagewise", "test", "--resamples", "0"), "stagewise"),
    (("prolr", "--dataset", "irsi"), "irsi"),
    (("card", "s.csv", "--push-to-hub", "a b"), "a b"),
    # Files.
    (("eval", "--scores", "gone.csv"), "gone.csv"),
    (("eval", "--scores", "folder.csv"), "folder.csv"),
    (("eval", "--config", "odd.yaml"), "resample"),
    ((*SCORES, "--calibrator", "s.csv"), "s.csv"),
    ((*SCORES, "--markdown", "/dev/full"), "/dev/full"),
    ((*SCORES, "--markdown", "--json"), "--json"),
    ((*SCORES, "--markdown", "-", "--json"), "--json"),
    (("compare", "s.csv", "gone.csv"), "gone.csv"),
    (("calibrate", "s.csv", "--to", "s.csv"), "s.csv"),
    (("apply", "s.csv"), "--calibrator"),
    (("apply", "s.csv", "--calibrator", "http://example.org/c.json"), "http://example.org/c.json"),
    (("doctor", "--endpoint", "http://127.0.0.1:9"), "--model"),
    (("serve", "--host", "0.0.0.0"), "RMCALIB_SERVE_TOKEN"),
    (("serve", "--answer", "p"), "raw"),
    (("serve", "--calibrator", "s.csv"), "s.csv"),
    (("serve", "--port", "70000"), "--port"),
    # Options that would do nothing.
    (("serve", "--as-is", "--policy-tokenizer", "org/policy"), "--policy-tokenizer"),
    (("serve", "--json"), "--json"),
    (("eval", "--columns", "reward=score"), "--columns"),
    ((*SCORES, "--group-by", "length"), "length"),
    ((*SCORES, "--limit", "3"), "--limit"),
    (("eval", "--scores", "published"), "--model"),
    (("report", "--table", "t.csv", "--benchmark", "demo"), "--benchmark"),
    (("decide", "s.csv", "--second", "s.csv"), "--second"),
    (("calibrate", "s.csv", "--second", "s.csv"), "--second"),
    (("calibrate", "s.csv", "--limit", "3"), "--limit"),
    (("batch", "--scores", "published", "--limit", "3"), "--limit"),
    (("batch", "--dry-run", "-J", "beta=0.1"), "beta"),
]


@pytest.mark.parametrize(("arguments", "shown"), CASES, ids=lambda value: " ".join(value)[:40])
def test_one_line_code_2_and_nothing_written(
    arguments: tuple[str, ...], shown: str, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was asked"))
    for name in ("s.csv", "t.csv"):
        write_scores(tmp_path / name, n=60)
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "odd.yaml").write_text("resample: 20\n")
    before = set(tmp_path.rglob("*"))
    ended = invoke(*arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    assert ended.err.startswith("rmcalib: error: ")
    assert shown in ended.err
    assert "Traceback" not in ended.err
    assert set(tmp_path.rglob("*")) == before


ORDINARY = {
    "NaN": ("prompt,score,label\n1,nan,1\n1,2,0\n", "--missing"),
    "one response": ("prompt,score,label\n1,1,1\n2,2,0\n", ""),
    "no reward": ("prompt,text,label\n1,a,1\n1,b,0\n", "--columns"),
    "text as a reward": ("prompt,score,label\n1,good,1\n1,2,0\n", "--columns"),
}


@pytest.mark.parametrize("what", ORDINARY)
def test_ordinary_mistakes_in_files_name_the_remedy(what: str, invoke: Invoke, tmp_path: Path) -> None:
    text, remedy = ORDINARY[what]
    (tmp_path / "s.csv").write_text(text)
    ended = invoke("eval", "--scores", "s.csv", "--resamples", "20")
    assert "Traceback" not in ended.err
    if remedy:
        assert ended.code == 2
        assert remedy in ended.err


def test_help_is_instant_and_lists_every_command(tmp_path: Path) -> None:
    def seconds(*arguments: str) -> tuple[float, str]:
        before = _children()
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        return _children() - before, done.stdout

    bare = min(seconds("-c", "pass")[0] for _ in range(2))
    took, text = min(seconds("-m", "rmcalib", "--help") for _ in range(2))
    assert took <= 0.3 + 5 * bare
    assert all(name in text for name in COMMANDS)


def _children() -> float:
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_and_eval_has_few_options(name: str, invoke: Invoke) -> None:
    shown = [one for one in app[name].assemble_argument_collection() if one.parse and one.show]
    assert len(shown) <= 30
    short, whole = invoke(name, "--help"), invoke(name, "--help-all")
    assert (short.code, short.err, whole.code, whole.err) == (0, "", 0, "")
    assert "BOOL" not in whole.out.upper().split()
    assert all(
        any(one in whole.out for one in argument.names) for argument in shown if argument.names[0][0] == "-"
    )
    assert len(short.out.splitlines()) <= len(whole.out.splitlines())
    if name == "eval":
        assert len(short.out.splitlines()) < 60


def test_completion_knows_names(invoke: Invoke) -> None:
    assert "reward-bench-2" in invoke("__complete", "eval", "--benchmark", "rew").out
    assert "complete -F" in app.generate_completion(shell="bash")


def test_unexpected_errors_are_one_line(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmcalib.judges.diagnose", lambda: 1 / 0)
    ended = invoke("doctor")
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "ZeroDivisionError" in ended.err


def test_no_command_has_an_option_twice() -> None:
    for command in COMMANDS:
        names = [
            name for each in app[command].assemble_argument_collection() for name in each.names if name != "*"
        ]
        assert len(names) == len({*names}), command
