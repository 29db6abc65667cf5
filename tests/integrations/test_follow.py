"""Following a run: what is waited for, what is raised, bad files, steps that go, labels, conditions, trackers."""

from __future__ import annotations

import http.server
import json
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import rmcalib
from rmcalib.integrations.label_function import label_function
from rmcalib.integrations.trackers import tracker
from rmcalib.integrations.watcher import Watch
from tests.integrations.test_watch import samples, write


class Looks:
    """Does something at each look of a watch, and ends it after the last."""

    def __init__(self, *actions: Callable[[], Any]) -> None:
        self.actions = list(actions)
        self.seen: list[Watch] = []

    def __call__(self, now: Watch) -> bool:
        self.seen.append(now)
        if not self.actions:
            return True
        self.actions.pop(0)()
        return False


def test_a_missing_folder_and_columns_that_are_not_clear_are_raised(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        rmcalib.watch(tmp_path / "nowhere", follow=True, every=0.01)
    row = {"input": "p", "output": "o", "score": 1.0, "acc": 1, "correct": 0, "step": 1}
    (tmp_path / "1.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ValueError, match="acc or correct"):
        rmcalib.watch(tmp_path, follow=True, every=0.01)
    with pytest.raises(ValueError, match="'scroe'"):
        rmcalib.watch(tmp_path, columns="reward=scroe,label=acc", follow=True, every=0.01)


def test_only_the_first_sample_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "rmcalib")
    timer = threading.Timer(0.2, lambda: write(tmp_path, 1, 30, 0.0, np.random.default_rng(0)))
    timer.start()
    found = rmcalib.watch(tmp_path, follow=True, every=0.02, on_look=Looks())
    timer.join()
    assert [row["step"] for row in found.steps] == [1]
    assert sum(str(tmp_path) in record.getMessage() for record in caplog.records) == 1  # said once


BAD = {
    "a damaged line": '{"input": \n{"input": "p"}\n',
    "a label of 5": '{"input": "p", "output": "o", "score": 1.0, "acc": 5, "step": 2}\n',
    "a huge reward": '{"input": "p", "output": "o", "score": 1e308, "acc": 1, "step": 2}\n',
    "a text as reward": '{"input": "p", "output": "o", "score": "many", "acc": 1, "step": 2}\n',
    "a text as step": '{"input": "p", "output": "o", "score": 1.0, "acc": 1, "step": "four"}\n',
    "a step of infinity": '{"input": "p", "output": "o", "score": 1.0, "acc": 1, "step": Infinity}\n',
    "a list as step": '{"input": "p", "output": "o", "score": 1.0, "acc": 1, "step": [4]}\n',
    "no object": "[1, 2]\n",
    "UTF-16": "{}\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_reported_once_and_skipped(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    write(tmp_path, 1, 30, 0.0, rng)
    text = BAD[name]
    content = text.encode("utf-16") if name == "UTF-16" else text.encode()
    looks = Looks(
        lambda: (tmp_path / "2.jsonl").write_bytes(content),
        lambda: write(tmp_path, 3, 30, 0.0, rng),
        lambda: write(tmp_path, 2, 30, 0.0, rng),  # repaired
    )
    found = rmcalib.watch(tmp_path, follow=True, every=0.01, on_look=looks)
    assert [row["step"] for row in looks.seen[2].steps] == [1, 3]
    assert [row["step"] for row in found.steps] == [1, 2, 3]
    (problem,) = found.problems
    assert "2.jsonl" in problem
    if name == "UTF-16":
        return
    (tmp_path / "4.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=r"4\.jsonl"):  # without --follow, it is an error
        rmcalib.watch(tmp_path)


def test_files_that_cannot_be_opened_and_a_new_column_do_not_end_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    write(tmp_path, 1, 30, 0.0, rng)

    def other() -> None:
        (tmp_path / "2.jsonl").symlink_to(tmp_path / "gone")
        row = {"input": "p", "output": "o", "score": 1.0, "acc": 1, "correct": 0, "step": 3}
        (tmp_path / "3.jsonl").write_text(json.dumps(row) + "\n")
        (tmp_path / "4.jsonl").mkdir()  # it cannot be opened

    found = rmcalib.watch(tmp_path, follow=True, every=0.01, on_look=Looks(other))
    assert [row["step"] for row in found.steps] == [1, 3]
    assert [text.split(":")[0] for text in found.problems] == [str(tmp_path / f"{n}.jsonl") for n in (2, 4)]


def test_a_folder_or_a_table_that_goes_for_a_while_does_not_end_it(tmp_path: Path) -> None:
    rng, run, away = np.random.default_rng(0), tmp_path / "run", tmp_path / "away"
    run.mkdir()
    write(run, 1, 30, 0.0, rng)

    def back() -> None:
        away.rename(run)
        write(run, 2, 30, 0.0, rng)

    looks = Looks(lambda: run.rename(away), back)
    found = rmcalib.watch(run, follow=True, every=0.01, on_look=looks)
    assert [row["step"] for row in looks.seen[1].steps] == [1]
    assert [row["step"] for row in found.steps] == [1, 2]
    (problem,) = found.problems
    assert str(run) in problem
    table = tmp_path / "table.csv"
    lines = [f"{1 + i // 60},p{i // 3},{i % 7},{i % 2}\n" for i in range(120)]

    def save(n: int, more: str = "") -> None:
        table.write_text("step,prompt,reward,label\n" + "".join(lines[:n]) + more)

    save(60)
    looks = Looks(lambda: save(60, "2,p20,many,0\n"), lambda: save(120))
    found = rmcalib.watch(table, follow=True, every=0.01, on_look=looks, margin=0.9)
    assert [row["step"] for row in found.steps] == [1, 2]
    (problem,) = found.problems
    assert "table.csv" in problem


def test_deleted_steps_leave_the_result_and_the_evidence(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for step in range(1, 7):
        write(tmp_path, step, 30, 0.0 if step < 6 else 0.2, rng)
    looks = Looks(lambda: (tmp_path / "6.jsonl").unlink())
    found = rmcalib.watch(tmp_path, follow=True, every=0.01, on_look=looks, margin=0.5)
    assert [row["step"] for row in found.steps] == [1, 2, 3, 4, 5]
    assert found.labels["samples"] == 5 * 120
    fresh = rmcalib.watch(tmp_path, margin=0.5)
    assert found.labels["prompts"] == fresh.labels["prompts"]


def test_a_backlog_is_one_look(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for step in range(1, 13):
        write(tmp_path, step, 20, 0.0, rng)
    looks = Looks()
    rmcalib.watch(tmp_path, follow=True, every=0.01, on_look=looks)
    assert [len(now.steps) for now in looks.seen] == [12]


def test_labels_come_later_from_a_file(tmp_path: Path) -> None:
    rng, run = np.random.default_rng(0), tmp_path / "run"
    run.mkdir()
    rows, sheet = [], []
    for i in range(400):
        reward = float(rng.normal())
        rows.append({"input": f"p{i // 4}", "output": f"answer {i}", "score": reward, "step": 1 + i // 100})
        sheet.append((f"p{i // 4}", f"answer {i}", int(rng.random() < expit(reward) - 0.3)))
    for step in (1, 2, 3, 4):
        lines = [json.dumps(row) + "\n" for row in rows if row["step"] == step]
        (run / f"{step}.jsonl").write_text("".join(lines))
    labels = tmp_path / "labels.csv"

    def save(n: int) -> None:
        text = "".join(f"{p},{r},{y},0.5\n" for p, r, y in sheet[:n])
        labels.write_text("prompt,response,label,inclusion\n" + text)

    save(10)
    assert rmcalib.watch(run, labels=labels).alarm is None
    found = rmcalib.watch(run, labels=labels, follow=True, every=0.01, on_look=Looks(lambda: save(400)))
    assert found.labels["samples"] == 400
    assert found.alarm is not None
    right = np.mean([y for _, _, y in sheet])
    assert np.mean([row["right"] for row in found.steps]) == pytest.approx(right)
    labels.write_text("prompt,response,label\np0,answer 0,7\n")
    with pytest.raises(ValueError, match=r"labels\.csv.*7"):
        rmcalib.watch(run, labels=labels)
    labels.write_text("question_text,label\np0,1\n")
    with pytest.raises(ValueError, match="question_text"):
        rmcalib.watch(run, labels=labels)


@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize("steps", [1, 2])
def test_a_sheet_of_drawn_prompts_labels_a_plain_file(steps: int, is_text: bool, tmp_path: Path) -> None:
    column = "response_text" if is_text else "response"
    rows = [f"{1 + i // 40 % steps},p{i // 4},{i % 4},{i / 80},answer {i}\n" for i in range(80)]
    scores = tmp_path / "scores.csv"
    scores.write_text(f"step,prompt,number,reward,{column}\n" + "".join(rows))
    sheet = rmcalib.label(scores, 10, ask="correct").to_csv(tmp_path / "sheet.csv")
    table = pd.read_csv(sheet)
    table["label"] = 1
    table.to_csv(sheet, index=False)
    found = rmcalib.watch(scores, labels=sheet)
    assert found.labels["samples"] == len(table) == 40


def test_labels_of_no_sample_are_reported(tmp_path: Path) -> None:
    run, labels = tmp_path / "run", tmp_path / "labels.csv"
    run.mkdir()
    rng = np.random.default_rng(0)
    write(run, 1, 30, 0.0, rng)
    labels.write_text("prompt,response,label\nanother,text,1\n")
    with pytest.raises(ValueError, match=r"labels\.csv.*another"):
        rmcalib.watch(run, labels=labels)
    looks = Looks(
        lambda: write(run, 2, 30, 0.0, rng),
        lambda: labels.write_text("prompt,response\n"),  # damaged
        lambda: write(run, 3, 30, 0.0, rng),
    )
    found = rmcalib.watch(run, labels=labels, follow=True, every=0.01, on_look=looks)
    assert [row["step"] for row in found.steps] == [1, 2, 3]
    assert ["labels.csv" in problem for problem in found.problems] == [True, True]


@pytest.mark.parametrize("empty", [False, True])
def test_a_file_of_labels_is_waited_for_while_following(
    empty: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rmcalib")
    rng, run, labels = np.random.default_rng(0), tmp_path / "run", tmp_path / "labels.csv"
    run.mkdir()
    rows = [{"input": f"p{i}", "output": "a", "score": rng.normal(), "step": 1} for i in range(30)]
    (run / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=r"labels\.csv"):
        rmcalib.watch(run, labels=labels)
    if empty:
        labels.touch()
    looks = Looks(lambda: labels.write_text("prompt,response,label\np0,a,1\n"))
    found = rmcalib.watch(run, labels=labels, follow=True, every=0.01, on_look=looks)
    assert [now.labels["samples"] for now in looks.seen] == [0, 1]
    assert found.problems == []
    assert sum(str(labels) in record.getMessage() for record in caplog.records) == 1  # said once


def test_labels_are_made_by_a_function_of_the_user(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    rows = [
        {
            "input": f"{i}+1",
            "output": str(i + i % 2),
            "gts": str(i + 1),
            "score": 1.0 + i,
            "step": 1,
            "uid": f"u{i}",
        }
        for i in range(30)
    ]
    (run / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    check = tmp_path / "check.py"
    check.write_text(
        "def exact(row):\n    return row['output'] == row['gts']\n\ndef bad(row):\n    return row['x']\n"
        "def ends(row):\n    raise SystemExit\n"
    )
    (row,) = rmcalib.watch(run, label_from=label_function(f"{check}:exact", run)).steps
    assert row["right"] == pytest.approx(0.5)
    with pytest.raises(ValueError, match=r"1\.jsonl.*line 1.*KeyError"):
        rmcalib.watch(run, label_from=label_function(f"{check}:bad", run))
    with pytest.raises(ValueError, match=r"1\.jsonl.*line 1.*SystemExit"):
        rmcalib.watch(run, label_from=label_function(f"{check}:ends", run))
    (run / "check.py").write_text(check.read_text())
    (ending := tmp_path / "ending.py").write_text("raise SystemExit\n")
    (run / "link.py").symlink_to(check)
    for place, named in (
        (f"{run}/check.py:exact", "never run"),
        (f"{run}/link.py:exact", "never run"),
        (f"{check}:none", "none"),
        (f"{ending}:exact", r"ending\.py.*SystemExit"),
        (f"{check}", "FILE.py"),
    ):
        with pytest.raises(ValueError, match=named):
            label_function(place, run)


def test_a_webhook_gets_numbers_and_alarms() -> None:
    got: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200 if len(got) < 2 else 500)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with tracker(f"http://127.0.0.1:{server.server_port}/secret-token") as send:
            send({"step": 3.0, "gap": 0.25, "right": float("nan"), "alarm": True}, ["too much"])
            assert got == [{"step": 3.0, "watch": {"gap": 0.25, "alarm": 1.0}, "alarms": ["too much"]}]
            with pytest.raises(ValueError, match="500") as raised:
                send({"step": 4.0}, [])
        assert "secret" not in str(raised.value)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@localhost/x",
        "http://127.0.0.1:1/secret x",
        "http://[secret",
        "http://a..secret/\ud800",
    ],
)
def test_a_webhook_that_cannot_be_keeps_its_secrets(url: str) -> None:
    with pytest.raises(ValueError, match="log_to") as raised, tracker(url) as send:
        send({"step": 1.0}, [])
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value).replace("a..secret", "")


def test_trackers_get_numbers_and_alarms(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[Any, ...]] = []

    def record(name: str) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> None:
            print(name)  # as trackio and wandb do
            if any("fails" in str(value) for value in args):
                raise RuntimeError("no such\nserver")
            calls.append((name, args, kwargs))

        return called

    def library(**functions: str) -> Any:
        return types.SimpleNamespace(**{name: record(what) for name, what in functions.items()})

    run = library(log="log", alert="alert", define_metric="define", finish="finish")
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=lambda **_: run))
    monkeypatch.setitem(sys.modules, "trackio", library(init="init", log="log", finish="finish"))
    mlflow = library(
        active_run="active", start_run="start", log_metrics="log", set_tag="tag", end_run="finish"
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    writer = library(add_scalar="log", add_text="text", flush="flush", close="finish")
    board = types.SimpleNamespace(SummaryWriter=lambda _: writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    for name in ("wandb", "trackio", "mlflow", "tensorboard"):
        calls.clear()
        with tracker(name) as send:
            send({"step": 3.0, "gap": 0.25}, ["too much"])
            with pytest.raises(ValueError, match=f"{name}.*no such server"):
                send({"step": 4.0, "fails": 1.0}, [])
        assert any(
            "watch/gap" in str(args) and "0.25" in str(args) for what, args, _ in calls if what == "log"
        )
        assert any("too much" in str(call) for call in calls), name
        assert calls[-1][0] == "finish"
    assert capsys.readouterr().out == ""
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match="pip install wandb"), tracker("wandb"):
        pass


def test_conditions_are_tested_at_every_step_that_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmcalib.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for step, shift in ((1, 0.0), (2, 3.0), (3, 0.0)):  # the condition holds at step 2 only
        reward, label = samples(np.random.default_rng(step), 30)
        rows = [
            {"input": f"{step}-{i // 4}", "output": "a", "score": r + shift, "acc": y, "step": step}
            for i, (r, y) in enumerate(zip(reward.tolist(), label.tolist(), strict=True))
        ]
        (tmp_path / "run" / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = [
        "watch",
        "run",
        "--margin",
        "0.9",
        "--follow",
        "--every",
        "0.1",
        "--fail-if",
        "mean_reward>2",
    ]
    monkeypatch.setattr(sys, "argv", ["rmcalib", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    monkeypatch.setattr(sys, "argv", ["rmcalib", *(one for one in arguments if one != "--follow")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code  # the last step is fine
    for text, code in (("gap.high<0.5", 1), ("right<0.1", 0), ("abs(gap)>0.5", 0), ("says>0", 1)):
        monkeypatch.setattr(sys, "argv", ["rmcalib", "watch", "run", "--margin", "0.9", "--fail-if", text])
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) == code, text


def test_a_page_that_cannot_be_written_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rmcalib.cli import main

    (tmp_path / "run").mkdir()
    (tmp_path / "blocked").write_text("no folder")
    rng = np.random.default_rng(0)
    write(tmp_path / "run", 1, 30, 0.0, rng)
    monkeypatch.setattr("time.sleep", lambda _: write(tmp_path / "run", 2, 120, 0.4, rng))
    words = ["watch", "run", "--follow", "--scale", "log_odds", "--output", "blocked/out"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["rmcalib", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "ALARM" in said
    assert "blocked" in said


def test_a_webhook_that_fails_stops_neither_the_others_nor_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rmcalib.cli import main
    from rmcalib.integrations import trackers

    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for step in (1, 2, 3):
        write(tmp_path / "run", step, 30, 0.0, np.random.default_rng(step))
    sent: dict[str, list[float]] = {"good": [], "bad": []}

    def webhook(url: str) -> Callable[..., None]:
        def send(row: Any, _: list[str]) -> None:
            name = "bad" if "bad" in url else "good"
            sent[name].append(row["step"])
            if name == "bad":
                raise ValueError("log_to: bad did not take a step (500)")

        return send

    monkeypatch.setattr(trackers, "_webhook", webhook)
    words = ["watch", "run", "--log-to", "http://bad/", "--log-to", "http://good/", "--margin", "0.9"]
    monkeypatch.setattr(sys, "argv", ["rmcalib", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert sent == {"bad": [1.0], "good": [1.0, 2.0, 3.0]}
    assert "bad" in capsys.readouterr().err
    assert (tmp_path / "runs" / "watch" / "report.html").is_file()


def test_a_run_that_is_deleted_leaves_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    write(tmp_path, 1, 30, 0.0, rng)
    found = rmcalib.watch(
        tmp_path, follow=True, every=0.01, on_look=Looks(lambda: (tmp_path / "1.jsonl").unlink())
    )
    assert found.steps == []
