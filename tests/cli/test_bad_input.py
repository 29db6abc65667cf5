"""Bad input of every kind: one line on standard error, exit code 2, no traceback, nothing half-written.

What only looks bad (an empty response, an emoji, a text of 200,000 characters) is scored and reported.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmcalib.cli import main
from tests.cli.conftest import Outcome, write_rows
from tests.hub import tiny
from tests.metrics.worlds import calibrated_scores


@dataclass(frozen=True)
class Case:
    """A bad situation: `prepare` makes it in the current folder and returns the command's arguments.

    `code` 0: it only looks bad. `broken`: a function of the system that fails, and how.
    """

    reported: str
    prepare: Callable[[Path], list[str]]
    code: int = 2
    broken: tuple[str, OSError] | None = None


def benchmark_with(change: dict[str, Any], *, at: int = 6) -> Callable[[Path], list[str]]:
    def prepare(model: Path) -> list[str]:
        rows = tiny.benchmark_rows(8)
        rows[at] = {key: value for key, value in {**rows[at], **change}.items() if value is not ...}
        write_rows(Path("bad.jsonl"), rows)
        return ["eval", "--model", str(model), "--benchmark", "bad.jsonl"]

    return prepare


def benchmark_file(name: str, content: bytes) -> Callable[[Path], list[str]]:
    def prepare(model: Path) -> list[str]:
        Path(name).write_bytes(content)
        return ["eval", "--model", str(model), "--benchmark", name]

    return prepare


def options(*extra: str) -> Callable[[Path], list[str]]:
    def prepare(model: Path) -> list[str]:
        write_rows(Path("good.jsonl"), tiny.benchmark_rows(4))
        return ["eval", "--model", str(model), "--benchmark", "good.jsonl", *extra]

    return prepare


def model_folder(change: Callable[[Path], None], *extra: str) -> Callable[[Path], list[str]]:
    def prepare(model: Path) -> list[str]:
        shutil.copytree(model, "broken")
        change(Path("broken"))
        write_rows(Path("good.jsonl"), tiny.benchmark_rows(4))
        return ["eval", "--model", "broken", "--benchmark", "good.jsonl", *extra]

    return prepare


def model_named(name: str) -> Callable[[Path], list[str]]:
    def prepare(_: Path) -> list[str]:
        write_rows(Path("good.jsonl"), tiny.benchmark_rows(4))
        return ["eval", "--model", name, "--benchmark", "good.jsonl"]

    return prepare


def scores_file(name: str, content: str | None, *extra: str) -> Callable[[Path], list[str]]:
    def prepare(_: Path) -> list[str]:
        if content is not None:
            Path(name).write_text(content)
        return ["eval", "--scores", name, *extra]

    return prepare


def config_file(content: str) -> Callable[[Path], list[str]]:
    def prepare(_: Path) -> list[str]:
        Path("c.yaml").write_text(content)
        return ["eval", "--config", "c.yaml"]

    return prepare


def good_scores(*extra: str) -> Callable[[Path], list[str]]:
    def prepare(_: Path) -> list[str]:
        calibrated_scores(25).to_parquet("s.parquet")
        Path("file").write_text("in the way")
        return ["eval", "--scores", "s.parquet", "--resamples", "20", *extra]

    return prepare


def recipe_file(content: str) -> Callable[[Path], list[str]]:
    def prepare(model: Path) -> list[str]:
        Path("mine.yaml").write_text(content)
        return options("--recipes", "mine.yaml")(model)

    return prepare


def no_labels(folder: Path) -> None:
    edit_config(num_labels=..., id2label=..., label2id=...)(folder)


def two_outputs_and_no_labels(folder: Path) -> None:
    two_outputs(folder)
    no_labels(folder)


def edit_config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text())
        content = {key: value for key, value in {**content, **changes}.items() if value is not ...}
        (folder / "config.json").write_text(json.dumps(content))

    return change


def two_outputs(folder: Path) -> None:
    tiny.save_model(folder, tiny.tiny_classifier(num_labels=2))


def without_template(folder: Path) -> None:
    for path in folder.glob("*.jinja"):
        path.unlink()
    content = json.loads((folder / "tokenizer_config.json").read_text())
    content.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(content))


def with_nan(folder: Path) -> None:
    import torch

    model = tiny.tiny_classifier()
    with torch.no_grad():
        model.score.weight.fill_(float("nan"))
    tiny.save_model(folder, model)


def only_pickle(folder: Path) -> None:
    import torch

    torch.save(tiny.tiny_classifier().state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def cut_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])


def no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def emptied(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


row = json.dumps(tiny.benchmark_rows(1)[0])
score_row = '{"item_id": "a", "category": "x", "response": %d, "is_correct": %s, "reward": %s}\n'
seven = "".join(score_row % (i, "true" if i == 0 else "false", "1.5") for i in range(6)) + "{oops\n"

CASES = {
    "condition that is none": Case("expected something like 'ece>0.1'", options("--fail-if", "ece>>0.1")),
    "condition without a number": Case("expected something like", options("--fail-if", "ece>high")),
    "condition on an unknown metric": Case("did you mean 'ece'", options("--fail-if", "eec>0.1")),
    "condition on no metric at all": Case("docs/metrics.md lists all", options("--fail-if", "qqq>0.1")),
    "condition on an unknown category": Case(
        "unknown category 'Maths'", options("--fail-if", "ece[Maths]>1")
    ),
    "limit of zero": Case("--limit", options("--limit", "0")),
    "limit that is a word": Case("--limit", options("--limit", "many")),
    "unknown option": Case("--modle", options("--modle", "x")),
    "unknown device": Case("device: unknown 'gpu9'", options("--device", "gpu9")),
    "device that is not here": Case("device: no 'cuda'", options("--device", "cuda")),
    "unknown dtype": Case("dtype", options("--dtype", "float7")),
    "too short texts": Case("at least 8 tokens, got 3", options("--max-length", "3")),
    "longer than the model reads": Case("more than the 512 tokens", options("--max-length", "5000")),
    "revision of a folder": Case("revision:", options("--revision", "v1")),
    "revision of a file": Case("revision:", options("--benchmark-revision", "v1")),
    "output under a file": Case("Not a directory", options("--output", "good.jsonl/runs")),
    "output that may not be written": Case(
        "Permission denied",
        options(),
        broken=("pathlib.Path.mkdir", PermissionError(13, "Permission denied")),
    ),
    "full disk": Case(
        "No space left on device", options(), broken=("os.fsync", OSError(28, "No space left on device"))
    ),
    "full disk at the export": Case(
        "No space left on device",
        good_scores("--export-rewardbench", "x.json"),
        broken=("os.fsync", OSError(28, "No space left on device")),
    ),
    "export under a file": Case("file", good_scores("--export-rewardbench", "file/x.json")),
    "scores' output under a file": Case("file", good_scores("--output", "file/runs")),
    "missing benchmark file": Case("nothing.jsonl", options("--benchmark", "nothing.jsonl")),
    "benchmark of a wrong kind": Case("ends in", benchmark_file("b.txt", b"hello")),
    "benchmark that is a folder": Case("ends in", options("--benchmark", ".")),
    "empty benchmark": Case("no prompts", benchmark_file("b.jsonl", b"\n")),
    "malformed JSONL": Case("line 7: not JSON", benchmark_with({}, at=0)),
    "JSONL of numbers": Case("line 1", benchmark_file("b.jsonl", b"17\n")),
    "JSON that is no list": Case("expected a list", benchmark_file("b.json", row.encode())),
    "corrupt Parquet": Case("not a readable Parquet", benchmark_file("b.parquet", b"PAR1 nonsense PAR1")),
    "not UTF-8": Case("line 1: not UTF-8 text", benchmark_file("b.jsonl", b'{"id": "\xff\xfe"}\n')),
    "duplicate ids": Case("id '5' appears twice", benchmark_with({"id": "5", "subset": "Math"}, at=7)),
    "missing column": Case("no value for chosen", benchmark_with({"chosen": ...})),
    "no correct response": Case("line 7: chosen", benchmark_with({"chosen": []})),
    "no wrong response": Case("line 7: rejected", benchmark_with({"rejected": []})),
    "empty response": Case("1 response is empty", benchmark_with({"rejected": ["", "no"]}), code=0),
    "response of 200,000 characters": Case(
        "were cut at 512 tokens", benchmark_with({"rejected": ["word " * 40_000]}), code=0
    ),
    "emoji and NUL in a prompt": Case(
        "Report: ", benchmark_with({"prompt": "🙂 \u202e \x00 what?\ufffe", "chosen": ["🙂" * 50]}), code=0
    ),
    "NUL in an id": Case("line 7: id is", benchmark_with({"id": "a\x00b"})),
    "prompt that is a number": Case("line 7: prompt is 7", benchmark_with({"prompt": 7})),
    "chat that ends with the assistant": Case(
        "ends with the assistant", benchmark_with({"prompt": [{"role": "assistant", "content": "x"}]})
    ),
    "model id that climbs": Case("'../../x' is neither", model_named("../../x")),
    "model id that is empty": Case("neither a file or folder", model_named("")),
    "model folder that is empty": Case("broken", model_folder(emptied)),
    "corrupt weights": Case("the weights are damaged", model_folder(cut_weights)),
    "two outputs": Case("2 outputs (num_labels), but a reward model has one", model_folder(two_outputs)),
    "configuration without labels": Case("Report: ", model_folder(no_labels), code=0),
    "configuration without labels, two outputs": Case(
        "2 outputs (num_labels)", model_folder(two_outputs_and_no_labels)
    ),
    "no chat template": Case("no chat template", model_folder(without_template)),
    "configuration that is no JSON": Case("broken", model_folder(no_json)),
    "unknown architecture": Case("broken", model_folder(edit_config(model_type="nonesuch"))),
    "rewards that are NaN": Case("the model's reward is nan", model_folder(with_nan)),
    "pickle without leave": Case("--allow-pickle", model_folder(only_pickle)),
    "missing scores": Case("nothing.parquet", scores_file("nothing.parquet", None)),
    "scores of a wrong kind": Case("ends in", scores_file("s.csv", "a,b")),
    "malformed scores": Case("line 7: not JSON", scores_file("s.jsonl", seven)),
    "scores that are NaN": Case(
        "s.jsonl, line 1 (item 'a', response 0): reward is nan, not a finite number",
        scores_file("s.jsonl", score_row % (0, "true", "NaN") + score_row % (1, "false", "1")),
    ),
    "scores without a wrong response": Case(
        "no wrong response", scores_file("s.jsonl", score_row % (0, "true", 1))
    ),
    "JSON that is not RewardBench's": Case("not RewardBench scores", scores_file("s.json", '{"a": 1}')),
    "scores of a generative judge": Case(
        "generative judge",
        scores_file(
            "s.json", json.dumps({"id": ["1"], "subset": ["Math"], "scores": [None], "num_correct": [1]})
        ),
    ),
    "published scores of nobody": Case("--scores published: name the model", scores_file("published", None)),
    "one file for two models": Case(
        "one --model",
        scores_file(
            "s.json",
            '{"id": ["1"], "subset": ["x"], "scores": [[1.0, 0.0]], "num_correct": [1]}',
            *("--model", "a/b", "--model", "c/d"),
        ),
    ),
    "condition without a value": Case("needs at least 20 prompts", options("--fail-if", "temperature>3")),
    "configuration of unknown options": Case("unknown option 'modle'", config_file("modle: x")),
    "configuration that is no YAML": Case("c.yaml", config_file("a: [")),
    "recipe with an unknown field": Case("did you mean 'column'", recipe_file("- model: a/b\n  colunm: 1\n")),
}


def fails(error: OSError) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_line_and_code_2(
    name: str,
    invoke: Callable[..., Outcome],
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = CASES[name]
    arguments = case.prepare(tiny_model)
    if name == "malformed JSONL":
        lines = Path("bad.jsonl").read_text().splitlines()
        lines[6] = lines[6][:20]
        Path("bad.jsonl").write_text("\n".join(lines))
    if case.broken is not None:
        monkeypatch.setattr(case.broken[0], fails(case.broken[1]))
    before = set(tmp_path.rglob("*"))
    ended = invoke(*arguments, *([] if "--resamples" in arguments else ["--resamples", "20"]))
    assert ended.code == case.code, ended
    assert "Traceback" not in ended.err
    made = {path for path in set(tmp_path.rglob("*")) - before if path.is_file()}
    assert not [path for path in made if path.name.endswith(".tmp")]
    if case.code == 0:
        assert ended.err == ""
        assert case.reported in " ".join(ended.out.split()), ended.out
        return
    assert ended.err.startswith("rmcalib: error: "), ended.err
    assert ended.err.count("\n") == 1, ended.err
    assert case.reported in ended.err, ended.err
    if name != "condition without a value":  # found out when all is done and written
        assert not {path.name for path in made} & {"report.html", "metrics.json", "scores.parquet", "x.json"}


def test_there_are_enough_cases() -> None:
    assert sum(case.code == 2 for case in CASES.values()) >= 30


def test_verbose_shows_where_it_happened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["rmcalib", "eval", "--scores", "nothing.parquet", "--verbose"])
    with pytest.raises(ValueError, match=r"nothing\.parquet"):
        main()


def _broken(*_: object) -> None:
    raise KeyError("x")


def test_a_mistake_of_ours_is_called_one(
    monkeypatch: pytest.MonkeyPatch, invoke: Callable[..., Outcome]
) -> None:
    monkeypatch.setattr("rmcalib.judges.registry", _broken)
    ended = invoke("models")
    assert ended.code == 1
    assert ended.err == "rmcalib: error: KeyError: 'x' (this should not happen; --verbose shows where)\n"


def test_a_model_name_of_hundreds_of_characters(invoke: Callable[..., Outcome]) -> None:
    for name in ("x" * 400, "org/" + "y" * 400):
        done = invoke("eval", "--model", name)
        assert done.code == 2
        assert "is neither a file or folder here nor a Hub id like 'org/name'" in done.err
        assert "Errno" not in done.err
