"""Try hostile input at random: damaged files, option lines, model folders, kills, requests, and rollouts.

    python scripts/fuzz.py --files 1000 --options 1000 --models 200 --kills 100 --requests 1000 --rollouts 200

Every case runs in a process of its own. It must end within ten seconds of CPU time with exit code 0, 1 or 2,
without a traceback, and change nothing outside its output folder. A run that was killed must end with the same
scores and metrics when it is started again. Whatever differs is listed, and the exit code is then 1; --start
with the same seed repeats a case. As root, everything outside a temporary folder is read-only (`unshare`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import functools
import importlib
import json
import os
import random
import resource
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # for the small files of the tests

CPU_SECONDS, SECONDS = 10, 60  # a case may take; other processes of the machine slow it down
KINDS = ("files", "options", "models", "kills", "requests", "rollouts")
SECRET = "hunter2"  # of the URLs among the words: it must not be printed

# Values of any kind

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 10**30, 10**400, 1e308, float("nan"), float("inf")),
    *(
        "",
        "x" * 70_000,
        "\0",
        "[",
        "[1]",
        "{}",
        "1e5",
        "nan",
        "-3",
        "\u202e",
        "\x1b[31m",
        "../../x",
        "Math\r=1+1",
    ),
    *([], {}, [[]], [None], [[[["x"]]]], ["\ud800"], {"": None}, {"role": "user"}),
    [{"role": "assistant", "content": "x"}],
    [{"role": "user", "content": [{"text": 1}]}],
)
# What texts may contain that a page must not
PAGES = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x>",
    "@data@ @script@",
    "\\u003c/script>",
)


def changed(value: Any, rng: random.Random) -> Any:
    """Return a value of which one part, at any depth, is another."""
    if not isinstance(value, (list, dict)) or not value or rng.random() < 0.15:
        return rng.choice(VALUES)
    value = copy.copy(value)
    key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    how = rng.random()
    if how < 0.15:
        del value[key]
    elif how < 0.3 and isinstance(value, list):
        value.append(copy.deepcopy(value[key]))
    else:
        value[key] = changed(value[key], rng)
    return value


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few flipped bits, cuts, repetitions and foreign bytes."""
    found = bytearray(content)
    for _ in range(rng.randrange(1, 5)):
        if not found:
            break
        at = rng.randrange(len(found))
        how = rng.random()
        if how < 0.5:
            found[at] ^= 1 << rng.randrange(8)
        elif how < 0.7:
            del found[at:]
        elif how < 0.85:
            found[at:at] = found[at : at + rng.randrange(50)]
        else:
            found[at : at + 3] = rng.randbytes(3)
    return bytes(found)


# The box: a folder with inputs that must not change, and a place to work


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    code: int
    out: str
    err: str
    seconds: float  # of CPU time, of all its processes

    @property
    def problem(self) -> str:
        """What is wrong with it; empty if nothing is."""
        said = self.err.strip().splitlines()[-1:] or [""]
        if SECRET in self.out + self.err:
            return "a secret was printed"
        if self.code in (-signal.SIGXCPU, -signal.SIGKILL) or self.seconds > CPU_SECONDS:
            return f"took more than {CPU_SECONDS} s"
        if self.code not in (0, 1, 2):
            return f"exit code {self.code}: {said[0]}"
        if "Traceback" in self.err or "should not happen" in self.err:
            return said[0]
        if self.code == 2 and not said[0].startswith("rmcalib: error: "):
            return f"exit code 2 without a reason: {said[0]!r}"
        return ""


@dataclass(frozen=True)
class Box:
    """Inputs, a folder to work in, and what may not change."""

    folder: Path

    @property
    def inputs(self) -> Path:
        return self.folder / "inputs"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @contextlib.contextmanager
    def case(self, outputs: Iterable[str] = ("out", "runs", "given")) -> Iterator[list[str]]:
        """Empty the place to work, and afterwards name what has changed there beside the outputs, or elsewhere."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        before, changes = self._state(), list[str]()
        yield changes
        after, own = self._state(), set[str]()
        for name in outputs:
            path = os.path.normpath(self.work / name)
            own |= {str(self.work / name.partition("/")[0]), path, str(Path(path).parent)}
        differ = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
        changes += [f"changed {path}" for path in differ if path not in own]

    def _state(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for path in (*self.inputs.rglob("*"), *(self.folder / "tmp").glob("*"), *self.work.glob("*")):
            about = path.lstat()
            found[str(path)] = (about.st_mode, about.st_size, about.st_mtime_ns, about.st_ino)
        return found

    def call(self, work: Callable[[], object]) -> Outcome:
        """Call a function in a fork of this process, which has imported everything."""
        files = self.folder / "stdout", self.folder / "stderr"
        start = time.monotonic()
        child = os.fork()
        if child == 0:
            self._child(work, *files)
        done = 0
        while not done and time.monotonic() - start < SECONDS:
            done, status, used = os.wait4(child, os.WNOHANG)
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not done:
            _, status, used = os.wait4(child, 0)
        out, err = (file.read_text("utf-8", "replace") for file in files)
        return Outcome(os.waitstatus_to_exitcode(status), out, err, used.ru_utime + used.ru_stime)

    def _child(self, work: Callable[[], object], out: Path, err: Path) -> None:
        code = 70
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for number, path in ((0, Path(os.devnull)), (1, out), (2, err)):
                opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC * bool(number))
                os.dup2(opened, number)
            sys.stdout, sys.stderr = (open(i, "w", encoding="utf-8", closefd=False) for i in (1, 2))  # noqa: SIM115
            os.chdir(self.work)
            work()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException as error:
            sys.stderr.write(f"Traceback: {type(error).__name__}: {error}\n")
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def command(self, words: list[str]) -> Outcome:
        """Run a command line."""

        def work() -> None:
            from rmcalib.cli import main

            sys.argv = ["rmcalib", *words]
            main()

        return self.call(work)


def fill(box: Box) -> None:
    """Write the inputs of all cases."""
    from rmcalib.repair import Calibrator
    from tests.cli.conftest import write_rows, write_scores
    from tests.hub import tiny
    from tests.judges.folders import adapter_of

    inputs = box.inputs
    for folder in (inputs, inputs / "rollouts", inputs / "folder", box.work):
        folder.mkdir(parents=True)
    write_scores(inputs / "s.csv", n=30)
    write_scores(inputs / "t.csv", n=30, noise=1)
    write_rows(inputs / "b.jsonl", tiny.benchmark_rows(4))
    for step in range(3):
        rows = [
            {"input": f"q{i // 4}", "output": "x" * i, "score": 0.1 * i, "acc": i % 2, "step": step}
            for i in range(24)
        ]
        write_rows(inputs / "rollouts" / f"{step}.jsonl", rows)
    Calibrator(2.0, 1.8, 2.3).save(inputs / "c.json")
    tiny.save_model(inputs / "tiny")
    adapter_of(inputs / "tiny", inputs / "adapter")
    (inputs / "list.yaml").write_text("models:\n- model: demo\n- {model: ../inputs/tiny, column: 0}\n")
    ranks = [f"{i % 7},{i % 3},{i % 3 + 1},{(i + 1) % 3 + 1},{(i + 2) % 3 + 1}" for i in range(24)]
    (inputs / "ranks.csv").write_text("x,y,rank_a,rank_b,rank_c\n" + "\n".join(ranks) + "\n")
    (inputs / "notes.txt").write_text("mine")
    sheet = [f"{i},r{j},{int(j == i % 3)},0.5" for i in range(20) for j in range(3)]
    (inputs / "labels.csv").write_text("prompt,response,label,inclusion\n" + "\n".join(sheet) + "\n")
    (inputs / "check.py").write_text(
        "def right(row): return row['acc']\n\ndef wrong(row): raise SystemExit\n"
    )
    (inputs / "rollouts" / "check.py").write_text(CODE)
    (inputs / "empty.csv").touch()
    (inputs / "loop").symlink_to("loop")
    os.mkfifo(inputs / "fifo.csv")
    first = ["eval", "--model", "demo", "--limit", "6", "--resamples", "20", "-o", str(inputs / "runs")]
    found = box.command(first)
    assert found.code == 0, found.err


# Files


def files_case(box: Box, rng: random.Random) -> tuple[str, list[str]]:
    """Read one file whose values or bytes are changed."""
    with box.case() as problems:
        given = box.work / "given"
        given.mkdir()
        path, read = one_file(given, rng)
        if rng.random() < 0.5:
            path.write_bytes(damaged(path.read_bytes(), rng))

        def work() -> None:
            try:
                read(path)
            except ValueError as error:
                in_one_line([str(error)])

        problems.append(box.call(work).problem)
    return f"a file {path.name}", problems


def one_file(folder: Path, rng: random.Random) -> tuple[Path, Callable[[Path], object]]:
    """Write a file of some kind, with changed values, and return it with the function that reads it."""
    import yaml

    from rmcalib._util.files import read_csv_table
    from rmcalib.benchmarks import load_benchmark
    from rmcalib.benchmarks._entries import known_entry
    from rmcalib.judges import registry
    from rmcalib.repair import Calibrator
    from rmcalib.runs._plan import read_models
    from rmcalib.scores import Scores, load_scores
    from tests.benchmarks.shapes import SHAPES
    from tests.scores.layouts import LAYOUTS, RECORDS

    kinds = (
        *("benchmark", "benchmark", "scores", "layout", "calibrator", "entry", "table", "recipes", "list"),
        *("labels", "labels", "page"),
    )
    kind = rng.choice(kinds)
    if kind in ("labels", "page"):
        return (labels_file if kind == "labels" else texts_file)(folder, rng)
    if kind == "layout":
        content, columns = LAYOUTS[rng.choice([*LAYOUTS])](RECORDS, folder)
        if isinstance(content, list):
            path = folder / "layout.json"
            path.write_text(json.dumps(changed(content, rng)))
            return path, lambda path: load_scores(path, columns)
        if isinstance(content, Path) and content.is_file():
            return content, load_scores
    if kind == "calibrator":
        path = Calibrator(2.0, 1.8, 2.3).save(folder / "c.json")
        path.write_text(json.dumps(changed(json.loads(path.read_text()), rng)))
        return path, Calibrator.load
    if kind in ("recipes", "list"):
        path = folder / "models.yaml"
        path.write_text(yaml.safe_dump(changed({"models": [recipe_values(rng)]}, rng)), "utf-8", "replace")
        return path, (lambda path: registry([path])) if kind == "recipes" else read_models
    if kind == "entry":
        path = folder / "e.yaml"
        library = sorted((ROOT / "rmcalib/benchmarks/library").glob("*.yaml"))
        values = yaml.safe_load(rng.choice(library).read_bytes())
        path.write_text(yaml.safe_dump(changed(values, rng)), "utf-8", "replace")
        return path, lambda path: known_entry(str(path))
    if kind == "scores" and rng.random() < 0.5:
        path = folder / "s.parquet"
        Scores.from_arrays([[1.0, 2.0], [3.0, 1.0]], category=["a", "b"]).to_parquet(path)
        return path, load_scores
    name = rng.choice(list(SHAPES))
    rows: Any = copy.deepcopy(SHAPES[name])
    if kind == "scores":
        rows = Scores.from_arrays([[1.0, 2.0], [3.0, 1.0]]).to_pandas().to_dict("records")
    for _ in range(rng.randrange(3)):
        rows = changed(rows, rng)
    ending = rng.choice((".csv",) if kind == "table" else (".jsonl", ".json", ".parquet", ".csv"))
    path = folder / f"x{ending}"
    path = write_table(path, rows)
    if kind == "table" and path.suffix == ".csv":
        return path, read_csv_table
    format = rng.choice([name, None, rng.choice(list(SHAPES))])
    return path, load_scores if kind == "scores" else lambda path: load_benchmark(str(path), format=format)


def write_table(path: Path, rows: Any) -> Path:
    """Write rows into a table, or into a JSON file beside it if a table cannot hold their values."""
    from tests.benchmarks.shapes import write

    try:
        write(path, rows)
    except Exception:  # whatever the libraries of the formats raise
        path = path.with_suffix(".json")
        path.write_text(json.dumps(rows))
    return path


def responses_to_label() -> list[dict[str, Any]]:
    """Return responses of a few prompts, with their texts and scores."""
    return [
        {
            "id": f"p{i}",
            "prompt": f"Question {i} ?",
            "answer": f"Answer {j} to {i}",
            "score": float(i * j % 5),
        }
        for i in range(4)
        for j in range(3)
    ]


def labels_file(folder: Path, rng: random.Random) -> tuple[Path, Callable[[Path], object]]:
    """Write labels in another order, half of them with changed values, and return what joins them with scores."""
    import pandas as pd

    from rmcalib.scores import label, load_scores

    scores = responses_to_label()
    rows: Any = label(pd.DataFrame(scores), n=4, ask="correct").rows
    for row in rows:
        row["label"] = int(row["response_text"].startswith("Answer 1"))
    rng.shuffle(rows)
    rng.shuffle(scores)
    hostile = rng.random() < 0.5
    for _ in range(rng.randrange(1, 3) if hostile else 0):
        rows = changed(rows, rng)
    path = folder / f"labels{rng.choice(('.csv', '.jsonl', '.json', '.parquet'))}"
    path = write_table(path, rows)
    written = path.read_bytes()

    def join(path: Path) -> None:
        found = load_scores(pd.DataFrame(scores), labels=path)
        texts = [
            row["answer"] for row in sorted(scores, key=lambda row: found.item_id.tolist().index(row["id"]))
        ]
        right = [float(text.startswith("Answer 1")) for text in texts]
        if not hostile and path.read_bytes() == written and found.label.tolist() != right:
            raise RuntimeError("labels of other responses")

    return path, join


def texts_file(folder: Path, rng: random.Random) -> tuple[Path, Callable[[Path], object]]:
    """Write responses with changed texts, and return what makes a page to label them."""
    from rmcalib.scores import label

    rows: Any = responses_to_label()
    for _ in range(rng.randrange(1, 4)):
        row = rng.choice(rows)
        row[rng.choice([*row])] = rng.choice((*VALUES, *PAGES))
    path = folder / "texts.json"
    path.write_text(json.dumps(rows))

    def draw(path: Path) -> None:
        page = label(path, n=4).to_html(path.with_suffix(".html")).read_text("utf-8")
        if page.count("<script") != 2 or page.count("</script") != 2 or "<img" in page:
            raise RuntimeError("a text became a part of the page")

    return path, draw


def recipe_values(rng: random.Random) -> dict[str, Any]:
    """Return an entry of a list of models, with a few fields that any recipe may have, and a few others."""
    values = {
        "status": "recipe",
        "column": 1,
        "sign": -1.0,
        "head": "v_head",
        "scale": "rating",
        "parameters": 8,
        "dtype": "float16",
        "template": "x",
        "max_length": 9,
        "kind": "endpoint",
        "endpoint": "http://localhost:1",
        "judge": "letters",
        "reference": "org/base",
        "votes": 3,
    }
    kept = rng.sample(list(values), rng.randrange(1, 6))
    return {"model": "org/rm"} | {key: values[key] for key in kept}


# Option lines

LINES = (
    "eval --scores ../inputs/s.csv --resamples 20 -o out",
    "eval --model demo --limit 4 --resamples 20 -o out",
    "eval --model ../inputs/tiny --benchmark ../inputs/b.jsonl --resamples 20 -o out",
    "report ../inputs/runs --resamples 20 -o out",
    "compare ../inputs/s.csv ../inputs/t.csv --resamples 20 -o out",
    "batch --models ../inputs/list.yaml --benchmark demo --limit 4 --resamples 20 -o out",
    "batch --dry-run",
    "watch ../inputs/rollouts -o out",
    "prolr --data ../inputs/ranks.csv --labels rank_ --learner pl --folds 2 --resamples 20 -o out",
    "calibrate ../inputs/s.csv --to out/c.json",
    "calibrate --model demo --benchmark demo --limit 4 --to out/c.json -o out",
    "apply ../inputs/s.csv --calibrator ../inputs/c.json --to out/p.csv",
    "decide ../inputs/s.csv",
    "best-of-n ../inputs/s.csv --second ../inputs/t.csv -o out",
    "combine ../inputs/s.csv ../inputs/t.csv --to out/panel.parquet",
    "card ../inputs/runs -o out",
    "list models",
    "doctor",
    "label ../inputs/s.csv --n 5 -o out",
    "eval --scores ../inputs/s.csv --labels ../inputs/labels.csv --resamples 20 -o out",
    "watch ../inputs/rollouts --label-from ../inputs/check.py:right -o out",
    "serve --model demo --host 0.0.0.0 --port 0",  # refused without a token
)
# What an option may sensibly be given, by its name; others get any word.
SENSIBLE = {
    "--columns": ("prompt=prompt_id,reward=score,label=is_best", "reward=scor", "label=score", "reward=kind"),
    "--cluster": ("kind", "prompt_id"),
    "--scores": ("../inputs/s.csv", "../inputs/t.csv", "published", "real/openbmb/Eurus-RM-7b"),
    "--calibrator": ("../inputs/c.json", "start", "../inputs/s.csv"),
    "--part": ("1/2", "2/1", "0/0", "1/99999999999999999999", "a/b"),
    "--group-by": ("length", "responses", "kind", "subset"),
    "--benchmark": ("demo", "../inputs/b.jsonl", "reward-bench-2", "../inputs/s.csv", "demo@x"),
    "--format": ("rmcalib", "trl", "reward-bench-2"),
    "--judge": (
        "device=cpu",
        "dtype=float16",
        "max_length=-1",
        "token_budget=1e9",
        "x=y",
        "=",
        "timeout=nan",
    ),
    "--endpoint": ("http://127.0.0.1:9", "http://[::1", "ftp://x", "http://u:p@localhost"),
    "--max-params": ("10B", "0", "1e9B", "-1B"),
    "--metric": ("ece", "overconfidence", "brie"),
    "--table": ("../inputs/s.csv", "../inputs/ranks.csv"),
    "--leaderboard": ("../inputs/s.csv", "hub"),
    "--push-to-hub": ("org/name", "../x"),
    "--dataset": ("iris", "none"),
    "--learner": ("pl", "rpc", "mallows", "x"),
    "--notion": ("sub-k", "top-k", "full-rank", "x"),
    "--k": ("2", "all", "0", "99"),
    "--labels": ("rank_", "x", "rank_a,rank_b", "../inputs/labels.csv", "../inputs/s.csv"),
    "--label-from": (
        "../inputs/check.py:right",
        "../inputs/check.py:wrong",
        "../inputs/rollouts/check.py:right",
    ),
    "--log-to": (f"http://user:{SECRET}@localhost/x", f"http://127.0.0.1:9/{SECRET} x", f"http://[{SECRET}"),
    "--second": ("../inputs/t.csv", "../inputs/labels.csv"),
    "--ask": ("best", "correct", "chosen", "x"),
    "--models": ("../inputs/list.yaml", "../inputs/s.csv"),
    "--recipes": ("../inputs/list.yaml", "../inputs/s.csv"),
    "--to": ("out/x.csv", "out/x.json", "-", "../inputs/s.csv", "../inputs/notes.txt", "../inputs/runs"),
    "--markdown": ("out/x.md", "-", "../inputs/s.csv"),
    "--output": ("out", "out/a/b", "../inputs/notes.txt", "../inputs/s.csv/x"),
    "--checkpoint": ("out/m", "../inputs/tiny"),
}
WORDS = (
    *("", " ", "-", "--", "-1", "0", "1", "3", "40", "1e400", "nan", "inf", "-0.0", "99999999999999999999"),
    *("½", "\u202e", "\x1b[31m", "a" * 5000, "a\nb", "\udcff", "é", "0x10", "1_0", "../../x", "/", "//"),
    *("..", ".", "/dev/null", "/dev/full", "/dev/stdout", "/dev/stdin", "/proc/self/mem", "/etc/passwd"),
    *("~", "$HOME", "*", "http://127.0.0.1:9/x", "memory://x/y", "nowhere://x", "file:///", "s3://", "["),
    *(f"s3://key:a/{SECRET}@bucket/x", f"az://c/x?sig={SECRET}", f"http://user:{SECRET}@127.0.0.1:9"),
    *("{", "{}", "null", "true", "a=b", "=,=", "reward=", "reward=score,reward=score", "1,2,,3", ","),
    *("../inputs/fifo.csv", "../inputs/loop", "../inputs/folder", "../inputs/empty.csv", "../inputs/tiny"),
    *("../inputs/tiny/model.safetensors", "a__b", "a/b", "--help", "--version", "--no-such", "--json"),
    *("--quiet", "demo", "x" * 300 + ".csv", "CON", "-J"),
)
CONDITIONS = (
    *("abs(", ")", ".low", ".high", ".x", "[", "]", "[Math]", ">", ">=", "<", "==", "0.1", "1e999", "nan"),
)
METRICS = (
    *("ece", "overconfidence", "accuracy", "temperature", "brier_at_temperature", "gap", "e c e"),
    *("ünknown",),
)
# They wait for ever, as they should, or start processes that import everything again.
NEVER = ("--follow", "--engine", "--address", "--processes")


def options_case(box: Box, rng: random.Random) -> tuple[str, list[str]]:
    """Run one option line."""
    words = option_line(box, rng)
    # A file that the line names as its output may change, unless the line also reads it.
    targets = [word for option, word in pairwise(words) if option in ("--to", "--markdown")]
    named = [
        word for word in words if not word.startswith("..") or (word in targets and words.count(word) == 1)
    ]
    with box.case([*named, "out", "runs"]) as problems:
        problems.append(box.command(words).problem)
    return shlex.join(words)[:400], problems


def option_line(box: Box, rng: random.Random) -> list[str]:
    """Return a command with a few options of its own, with wrong, missing and repeated values."""
    from rmcalib.cli import app

    words = rng.choice(LINES).split()
    known = [one for one in app[words[0]].assemble_argument_collection() if one.names != ("*",)]
    flags = {one.names[0] for one in known if one.hint is bool}
    names = [one.names[0] for one in known if one.names[0].startswith("-") and one.names[0] not in NEVER]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(names)
        if name == "--config":
            path = box.folder / "config.yaml"
            path.write_text(config_values(names, rng), "utf-8", "replace")
            words += [name, str(path)]
        elif name in flags:
            words += [name]
        else:
            words += [name, option_value(name, rng)]
    if rng.random() < 0.25:
        at = rng.randrange(len(words))
        how = rng.random()
        if how < 0.3:
            del words[at]
        elif how < 0.6:
            words.insert(at, words[at])
        else:
            words[at] = rng.choice(WORDS)
    return words


def option_value(name: str, rng: random.Random) -> str:
    """Return a value for an option: of its kind, or any word."""
    if name == "--fail-if" and rng.random() < 0.8:
        whole = f"{rng.choice(METRICS)}{rng.choice(('', '.low', '.high', '[Math]'))}>{rng.choice(WORDS)}"
        return rng.choice(
            [whole, "".join(rng.choice((*CONDITIONS, *METRICS)) for _ in range(rng.randrange(7)))]
        )
    sensible = SENSIBLE.get(name, ())
    return rng.choice(sensible) if sensible and rng.random() < 0.6 else rng.choice(WORDS)


def config_values(names: list[str], rng: random.Random) -> str:
    """Return the text of a config file, which may be no YAML."""
    import yaml

    values = {}
    for name in rng.sample(names, rng.randrange(4)):
        value = rng.choice((*VALUES, option_value(name, rng)))
        values[name.strip("-")] = value
    text: str = yaml.safe_dump(values)
    return text if rng.random() < 0.9 else rng.choice(("[", "- a", "a: *b", "x: 1\nx: 2", "3", ""))


# Model folders

TEMPLATES = (
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}" * 9,
    "{{ 'x' * 10**10 }}",
    "{{ 1 / 0 }}",
    "{{ messages[99].content }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ raise_exception('no') }}",
    "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}",
    "{% include '/etc/passwd' %}",
    "{% for %}",
    "{{ messages | map('upper') | list | tojson }}",
    "{{ 9**9**9 }}",
    "{{ '%1000000000d' % 1 }}",
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "",
    "\ufffe",
    "{{ messages[-1].content }}",
)
CODE = "import pathlib; pathlib.Path('../inputs/hacked').touch()\n"
FIELDS = (
    *("num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "num_labels", "head_dim"),
    *("model_type", "architectures", "torch_dtype", "dtype", "rope_scaling", "rope_parameters"),
    *("hidden_act", "_attn_implementation", "attn_implementation", "auto_map", "quantization_config"),
    *("pad_token_id", "id2label", "max_position_embeddings", "text_config", "tokenizer_class"),
    *("model_max_length", "chat_template", "added_tokens", "base_model_name_or_path", "r"),
    *("target_modules", "peft_type", "task_type", "modules_to_save", "lora_alpha"),
)
FIELD_VALUES = (
    *("bert", "llama", "Qwen2ForCausalLM", ["A", "B"], "org/kernel", {"AutoModel": "evil.Model"}),
    *("evil--x", 2**31, {"quant_method": "gptq"}, {"rope_type": "x"}),
    *({"quant_method": "bitsandbytes", "load_in_4bit": True}, 7, 0.5, "/etc", "../inputs/tiny", ".*"),
    *("(a+)+$", "CAUSAL_LM", "PROMPT_TUNING", [["x"]], TEMPLATES[0], TEMPLATES[2]),
)


def models_case(box: Box, rng: random.Random) -> tuple[str, list[str]]:
    """Score two prompts with a model whose files are hostile."""
    with box.case() as problems:
        given = box.work / "given"
        adapter = rng.random() < 0.2
        shutil.copytree(box.inputs / ("adapter" if adapter else "tiny"), given)
        done = [spoil(given, rng) for _ in range(rng.choice((1, 1, 2)))]
        words = shlex.split(
            "eval --benchmark ../inputs/b.jsonl --limit 2 --resamples 20 -o out -J device=cpu"
        )
        words += [
            "--model",
            "given",
            *(["-J", "base=../inputs/tiny"] if adapter and rng.random() < 0.7 else []),
        ]
        if rng.random() < 0.15:
            import yaml

            entry = recipe_values(rng) | {"model": "given"}
            (given / "r.yaml").write_text(
                yaml.safe_dump({"models": [changed(entry, rng)]}), "utf-8", "replace"
            )
            words += ["-J", "recipes=given/r.yaml"]
        problems.append(box.command(words).problem)
    return f"{'adapter' if adapter else 'model'}: {'; '.join(done)}", problems


def spoil(folder: Path, rng: random.Random) -> str:
    """Change one file of a model, and return what was done."""
    if any(file.is_symlink() or not file.is_file() for file in folder.iterdir()):
        return "nothing"  # a node must not be written to
    how = rng.choice(
        ("field", "field", "field", "values", "bytes", "header", "template", "index", "code", "node")
    )
    configs = sorted(folder.glob("*.json"))
    weights = next(folder.glob("*.safetensors"), folder / "model.safetensors")
    path = rng.choice(configs)
    if how in ("field", "values"):
        try:
            values = json.loads(path.read_bytes())
        except (ValueError, OSError):  # spoiled before
            return "nothing"
        key = rng.choice(FIELDS)
        value = rng.choice((*VALUES, *FIELD_VALUES))
        values = (
            {**values, key: value} if how == "field" and isinstance(values, dict) else changed(values, rng)
        )
        path.write_text(json.dumps(values))
        return f"{path.name}: {key} = {str(value)[:40]!r}" if how == "field" else f"{path.name}: {how}"
    if how == "bytes":
        path = rng.choice([file for file in sorted(folder.iterdir()) if file.is_file()])
        path.write_bytes(damaged(path.read_bytes(), rng))
    elif how == "header" and weights.is_file():
        path, content = weights, weights.read_bytes()
        size = int.from_bytes(content[:8], "little")
        try:
            header = json.dumps(changed(json.loads(content[8 : 8 + size]), rng)).encode()
        except ValueError:  # spoiled before
            header = b"{}"
        length = rng.choice((len(header), len(header), len(header), 0, 2**63, 2**64 - 1, len(header) + 7))
        path.write_bytes(struct.pack("<Q", length) + header + content[8 + size :])
    elif how == "template":
        path = folder / "chat_template.jinja"
        path.write_text(rng.choice(TEMPLATES), "utf-8")
    elif how == "index":
        path = folder / "model.safetensors.index.json"
        names = ("model.safetensors", "../../inputs/tiny/model.safetensors", "gone", "/etc/passwd", 3, None)
        path.write_text(json.dumps(changed({"metadata": {}, "weight_map": {"a": rng.choice(names)}}, rng)))
        if rng.random() < 0.5:
            weights.unlink(missing_ok=True)
    elif how == "code":
        path = folder / rng.choice(
            ("evil.py", "modeling.py", "tokenizer.py", "torch.py", "pytorch_model.bin")
        )
        path.write_text(CODE)
        if rng.random() < 0.5:
            weights.unlink(missing_ok=True)
    elif how == "node":
        path = rng.choice([*configs, weights])
        path.unlink(missing_ok=True)
        rng.choice((os.mkfifo, Path.mkdir, Path.touch, lambda at: at.symlink_to("/etc/passwd")))(path)
    return f"{path.name}: {how}"


# Kills


def kills_case(box: Box, rng: random.Random) -> tuple[str, list[str]]:
    """Kill a run at a random moment, and run it again: the results must be the same."""
    words = shlex.split("eval --model demo --limit 40 --resamples 20 -J token_budget=512 -o out")
    reference = box.folder / "reference"
    if not reference.is_dir():
        with box.case():
            start = time.monotonic()
            subprocess.run(started(words), cwd=box.work, check=True, capture_output=True)
            seconds = time.monotonic() - start
            (box.work / "out").rename(reference)
            (reference / "seconds").write_text(str(seconds))
    with box.case() as problems:
        killed, seconds = False, float((reference / "seconds").read_text())
        while not killed:  # a run that ended before its moment was not killed
            shutil.rmtree(box.work / "out", ignore_errors=True)
            moment, start = rng.random() * seconds, time.monotonic()
            process = subprocess.Popen(
                started(words), cwd=box.work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(moment)
            process.kill()
            killed = process.wait() == -signal.SIGKILL
            seconds = seconds if killed else time.monotonic() - start
        shutil.rmtree(box.folder / "tmp")  # of the killed process
        (box.folder / "tmp").mkdir()
        done = box.command(words)
        problems.append(done.problem or ("" if done.code == 0 else f"exit code {done.code}: {done.err}"))
        problems += differences(reference, box.work / "out")
    return f"killed after {moment:.2f} s", problems


def started(words: list[str]) -> list[str]:
    return [sys.executable, "-c", "from rmcalib.cli import main; main()", *words]


def differences(reference: Path, found: Path) -> list[str]:
    """Return which results of a run differ from those of a run that was not killed, and what was left over."""
    from rmcalib.scores import Scores

    problems = []
    (whole,), (again,) = (list(folder.glob("*/*/run.json")) for folder in (reference, found))
    one, other = (
        Scores.from_parquet(path.with_name("scores.parquet")).to_pandas() for path in (whole, again)
    )
    if not one.equals(other):
        problems.append("other scores")
    if whole.with_name("metrics.csv").read_bytes() != again.with_name("metrics.csv").read_bytes():
        problems.append("other metrics")
    names = [{path.name for path in run.parent.iterdir()} for run in (whole, again)]
    return [*problems, *(f"left {name}" for name in names[1] - names[0])]


# Requests


BODIES: dict[str, Any] = {
    "/": {"query": ["Hi! Hello."], "prompts": ["Hi!"], "labels": [1]},
    "/get_reward": {"prompt": "Hi!", "response": "Hello.", "label": 1, "step": 3},
    "/score": {"prompts": ["Hi!", [{"role": "user", "content": "Hi!"}]], "responses": ["a", "b"], "step": 3},
    "/classify": {"messages": [{"role": "user", "content": "Hi!"}, {"role": "assistant", "content": "a"}]},
    "/pooling": {"input": ["Hi! Hello.", [1, 2, 3]]},
}
HEADERS = (
    *("Transfer-Encoding: chunked", "Content-Length: 3", "Content-Length: -1", "Expect: 100-continue"),
    *(
        f"Authorization: Bearer {SECRET}",
        "Content-Encoding: gzip",
        "Upgrade: h2c",
        "X:" + " y" * 40_000,
        "no colon",
    ),
)
OPEN = contextlib.ExitStack()  # until this process ends
STATUSES = {b"200", b"400", b"401", b"404", b"405", b"408", b"413", b"422", b"503"}


@functools.cache
def served() -> tuple[str, int]:
    """Serve the lengths of responses until this process ends; return the address."""
    from rmcalib import Reward
    from rmcalib.live.server import Limits
    from tests.live_rewards.serving import serving_rewards

    reward = Reward(lambda _, responses: [float(len(one)) for one in responses], name="length", output="raw")
    server = OPEN.enter_context(serving_rewards(reward, limits=Limits(reading=0.5, idle=0.5)))
    return "127.0.0.1", int(server.url.rpartition(":")[2])


# How frameworks call: a prompt, a response and a label in the places of each.
CALLS: dict[str, dict[str, Any]] = {
    "trl": {"prompts": ["Hi!"], "completions": ["Hello."], "answer": ["1"]},
    "openrlhf": {"queries": ["Hi! Hello."], "prompts": ["Hi! "], "labels": [None]},
    "slime": {"args": None, "sample": [{"prompt": "Hi!", "response": "Hello.", "label": 1}]},
    "verl": {
        "data_source": "x",
        "solution_str": "Hello.",
        "extra_info": {"prompt": [{"role": "user", "content": "a"}]},
    },
    "swift": {"completions": ["Hello."], "messages": [[{"role": "user", "content": "Hi!"}]]},
}


@functools.cache
def called() -> Any:
    """Return a reward that ends its thread, or fails, for some texts."""
    from rmcalib import Reward

    def length(_: Any, responses: list[str]) -> list[float]:
        time.sleep(0.001)  # some calls are cancelled meanwhile
        for text in responses:
            if text in ("", "\0"):
                raise SystemExit
            if "[" in text:
                raise RuntimeError(text)
        return [float(len(text)) for text in responses]

    return Reward(length, output="raw")


def calls_case(rng: random.Random) -> tuple[str, list[str]]:
    """Call what frameworks call with changed arguments, and cancel some calls: the next call is answered."""
    name, reward = rng.choice([*CALLS]), called()
    function = getattr(reward, name)()
    arguments = changed(CALLS[name], rng)
    if not isinstance(arguments, dict):
        arguments = {}
    if name == "slime" and isinstance(arguments.get("sample"), list):
        group = arguments["sample"]
        arguments["sample"] = [
            types.SimpleNamespace(**one) if isinstance(one, dict) else one for one in group
        ]
    patience = rng.choice((0.0, 0.0005, SECONDS, SECONDS))

    async def ask() -> None:
        answer = (function() if name == "swift" else function)(**arguments)
        if asyncio.iscoroutine(answer):
            await asyncio.wait_for(answer, patience)

    with contextlib.suppress(Exception, SystemExit):
        asyncio.run(ask())
    try:
        score = asyncio.run(asyncio.wait_for(reward.verl()("x", "xxx", None, {"prompt": "a"}), SECONDS))[
            "score"
        ]
    except Exception as error:
        return f"calls of {name}: {arguments}"[:200], [f"the next call failed: {error!r}"]
    return f"calls of {name}", [] if score == 3.0 else [f"the next call was answered by {score}"]


def requests_case(_: Box, rng: random.Random) -> tuple[str, list[str]]:
    """Send a spoiled request: it is answered or its connection is closed, and the server stays well."""
    if rng.random() < 0.2:
        return calls_case(rng)
    path = rng.choice([*BODIES, "/../x", "/metrics", "/health"])
    body = json.dumps(changed(BODIES.get(path, {}), rng)).encode()
    body = damaged(body, rng) if rng.random() < 0.3 else body
    headers = [f"Content-Length: {len(body)}", *rng.sample(HEADERS, rng.choice((0, 0, 1, 2)))]
    sent = "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode() + body
    sent = damaged(sent, rng) if rng.random() < 0.2 else sent
    problems = []
    for content in (sent, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"):
        answer = b""
        with (
            socket.create_connection(served(), timeout=SECONDS) as client,
            contextlib.suppress(ConnectionError),
        ):
            client.sendall(content)
            while piece := client.recv(65536):
                answer += piece
        answer = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        if answer and answer[9:12] not in STATUSES:
            problems.append(f"answer {answer[:80]!r}")
        if SECRET.encode() in answer:
            problems.append("a secret was sent back")
    if b'"ok"' not in answer:
        problems.append(f"health {answer[-80:]!r}")
    return f"{path} {headers[1:]}"[:80], problems


ROLLOUTS = ROOT / "tests" / "scores" / "frameworks"


def rollouts_case(box: Box, rng: random.Random) -> tuple[str, list[str]]:
    """Follow a folder of rollouts whose files are spoiled and then mended: it goes on, and ends with what is right."""
    import rmcalib
    from rmcalib.integrations import watching

    name = rng.choice(sorted(path.name for path in ROLLOUTS.iterdir() if path.is_dir()))
    label_from = rng.choice((None, lambda row: len(row) % 2))
    with box.case() as problems:
        run = box.work / "given" / name
        shutil.copytree(ROLLOUTS / name, run)
        whole = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        seen: list[Any] = []

        def spoil() -> None:
            for path in rng.sample(sorted(whole), min(len(whole), rng.choice((1, 1, 2)))):
                spoil_file(path, rng)
            try:
                rmcalib.watch(run, label_from=label_from)
            except ValueError as error:
                in_one_line([str(error)])

        def mend() -> None:
            for path, content in whole.items():
                path.unlink(missing_ok=True)
                path.write_bytes(content)

        def end() -> None:
            raise KeyboardInterrupt

        def work() -> None:
            expected = numbers_of(rmcalib.watch(run, label_from=label_from))
            actions = [spoil, lambda: None, mend, lambda: None, end]

            def sleep(_: float) -> None:
                time.sleep(0.01)  # files that are written later have another time
                actions.pop(0)()

            vars(watching)["time"] = types.SimpleNamespace(sleep=sleep)
            with contextlib.suppress(KeyboardInterrupt):
                rmcalib.watch(run, follow=True, label_from=label_from, on_look=seen.append)
            in_one_line(seen[-1].problems)
            if numbers_of(seen[-1]) != expected:
                raise RuntimeError(f"other steps at the end: {numbers_of(seen[-1])}")

        problems.append(box.call(work).problem)
    return name, problems


def spoil_file(path: Path, rng: random.Random) -> None:
    """Change the values or the bytes of a file, or what it is."""
    how, content = rng.random(), path.read_bytes()
    if how < 0.5:
        lines = content.decode().splitlines()
        at = rng.randrange(len(lines))
        lines[at] = json.dumps(changed(json.loads(lines[at]), rng))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif how < 0.8:
        path.write_bytes(damaged(content, rng))
    elif how < 0.9:
        path.unlink()
        if rng.random() < 0.5:
            path.symlink_to("/nowhere" if rng.random() < 0.5 else path)
    else:
        path.chmod(0)


def numbers_of(found: Any) -> list[tuple[float, ...]]:
    """Return the steps of a watch, the number of samples and the mean reward of each."""
    return [(row["step"], row["n_samples"], row["mean_reward"]) for row in found.steps]


def in_one_line(messages: Iterable[str]) -> None:
    """Raise an error for a message that is long or has several lines, but is no list of problems."""
    for message in messages:
        said = message.replace("\n- ", "; ")
        if "\n" in said or len(said) > 3000:
            raise RuntimeError(f"a message that is not one line: {message[:200]!r}")


CASES = {
    "rollouts": rollouts_case,
    "files": files_case,
    "options": options_case,
    "models": models_case,
    "kills": kills_case,
    "requests": requests_case,
}


def inside(folder: Path, args: argparse.Namespace) -> int:
    """Run the cases, in a process of their own."""
    os.environ |= {
        "HOME": str(folder / "home"),
        "HF_HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
    }
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    os.environ |= {name: str(folder / "home") for name in ("MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR")}
    os.environ |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "1"}
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    tempfile.tempdir = None
    box = Box(folder)
    from rmcalib.cli import COMMANDS

    for name in COMMANDS:
        importlib.import_module(f"rmcalib.cli.{name.replace('-', '_')}")
    for name in (
        "torch",
        "datasets",
        "peft",
        "matplotlib.pyplot",
        "seaborn",
        "scipy.stats",
        "sklearn.pipeline",
    ):
        importlib.import_module(name)
    fill(box)
    surprises = 0
    for kind in KINDS:
        longest, start, count = 0.0, time.monotonic(), getattr(args, kind)
        for number in range(args.start, args.start + count):
            began = time.monotonic()
            what, problems = CASES[kind](box, random.Random(f"{args.seed} {kind} {number}"))
            longest = max(longest, time.monotonic() - began)
            if found := [problem for problem in problems if problem]:
                surprises += 1
                print(f"{kind} {number}: {what}: {'; '.join(found)}", flush=True)
        if count:
            print(
                f"{count} {kind} in {time.monotonic() - start:.0f} s; the longest took {longest:.1f} s",
                flush=True,
            )
    OPEN.close()
    print(f"{surprises} surprises")
    return int(surprises > 0)


# Everything but one folder becomes read-only for the process and its children.
READ_ONLY = """
mount --make-rprivate / && mount --bind "$1" "$1" && mount -t tmpfs shm /dev/shm || exit 70
for place in $(awk '{print $2}' /proc/mounts); do
    [ "$place" = "$1" ] || [ "$place" = /dev/shm ] || mount -o remount,bind,ro "$place" || exit 70
done
shift && exec "$@"
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    for kind, count in zip(KINDS, (1000, 1000, 200, 100, 1000, 200), strict=True):
        parser.add_argument(f"--{kind}", type=int, default=count, help=f"number of cases (default {count})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside is not None:
        return inside(args.inside, args)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], "--inside", folder]
        if os.geteuid() == 0:
            command = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", folder, *command]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
