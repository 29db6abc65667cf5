"""Models whose files would take forever, fill the memory, run code or end the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rmcalib._util.hub import HubError
from rmcalib._util.processes import isolated
from rmcalib.benchmarks import Item
from rmcalib.judges import load_judge, load_model
from rmcalib.judges._templates import encode, text_ids
from tests.judges.folders import adapter_of, copied
from tests.judges.layouts import LAYOUTS
from tests.judges.tiny import tiny_tokenizer

FOREVER = "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}{% endfor %}"
FOREVER += "{% endfor %}{% endfor %}"


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"num_hidden_layers": 10**8}, "num_hidden_layers"),
        ({"hidden_size": 10**9}, "hidden_size"),
        ({"vocab_size": 10**12}, "vocab_size"),
        ({"num_attention_heads": 10**9}, "num_attention_heads"),
        ({"text_config": {"intermediate_size": 10**9}}, "intermediate_size"),
        ({"num_hidden_layers": 1e300}, "num_hidden_layers"),
        ({"_attn_implementation": "org/kernel"}, "trust_remote_code"),
        ({"attn_implementation": "org/kernel:run"}, "trust_remote_code"),
        ({"text_config": {"attn_implementation": "org/kernel"}}, "trust_remote_code"),
    ],
)
def test_configurations_that_do_not_fit_the_weights_are_refused(
    values: dict[str, Any], named: str, plain: Path, tmp_path: Path
) -> None:
    folder = copied(plain, tmp_path / "m", **values)
    start = time.monotonic()
    with pytest.raises(HubError, match=named) as caught:
        load_model(str(folder), device="cpu")
    assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("content", ["", "[1]", '{"a":' * 5_000 + "1" + "}" * 5_000])
@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_files_that_are_no_objects_are_refused(file: str, content: str, plain: Path, tmp_path: Path) -> None:
    folder = copied(plain, tmp_path / "m")
    (folder / file).write_text(content)
    with pytest.raises(HubError) as caught:
        load_model(str(folder), device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("length", ["many", 0, [4]])
def test_an_odd_longest_text_of_a_tokenizer_is_ignored(length: Any, plain: Path, tmp_path: Path) -> None:
    folder = copied(plain, tmp_path / "m")
    change(folder / "tokenizer_config.json", model_max_length=length)
    model, same = load_model(str(folder), device="cpu"), load_model(str(plain), device="cpu")
    assert model.max_length == same.max_length
    (ids, _), *_ = text_ids(["a b"], model.tokenizer, max_length=9)
    assert ids == text_ids(["a b"], same.tokenizer, max_length=9)[0][0]


@pytest.mark.parametrize("cut", [0, 9, 1000])
def test_damaged_weights_are_refused(cut: int, plain: Path, tmp_path: Path) -> None:
    folder = copied(plain, tmp_path / "m")
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:cut])
    with pytest.raises(HubError, match="damaged"):
        load_model(str(folder), device="cpu")


@pytest.mark.parametrize("index", ["[]", '{"weight_map": 3}', '{"weight_map": {"a": "../../etc/passwd"}}'])
def test_an_index_of_weights_names_files_of_its_folder(index: str, plain: Path, tmp_path: Path) -> None:
    folder = copied(plain, tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(HubError):
        load_model(str(folder), device="cpu")


def test_an_adapter_may_not_choose_a_folder_of_this_machine(plain: Path, tmp_path: Path) -> None:
    folder, _ = adapter_of(plain, tmp_path / "adapter", with_head=False)
    for judge in (
        load_judge(str(folder), device="cpu"),
        load_judge(str(folder), kind="policy", device="cpu"),
    ):
        with pytest.raises(HubError, match="`base`"):
            judge.identity()
    change(folder / "adapter_config.json", r=10**9)
    with pytest.raises(HubError, match="r = 1000000000"):
        load_model(str(folder), device="cpu", base=str(plain))
    for base in (None, 7, ["x"], "/gone/base"):
        change(folder / "adapter_config.json", base_model_name_or_path=base)
        with pytest.raises(HubError, match="base"):
            load_model(str(folder), device="cpu")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "adapter_model.safetensors"])
def test_a_pipe_in_a_folder_is_refused(plain: Path, tmp_path: Path, file: str) -> None:
    folder = copied(plain, tmp_path / "m")
    (folder / file).unlink(missing_ok=True)
    os.mkfifo(folder / file)
    with pytest.raises(HubError, match=file):
        load_model(str(folder), device="cpu")


def test_a_template_that_never_ends_is_stopped(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmcalib.judges._files._TRIAL_SECONDS", 1.0)
    folder = copied(plain, tmp_path / "m")
    (folder / "chat_template.jinja").write_text(FOREVER)
    with pytest.raises(HubError, match="template"):
        load_model(str(folder), device="cpu")


def test_a_template_that_takes_long_for_some_prompts_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmcalib.judges._templates._RENDER_SECONDS", 0.05)
    slow = (
        "{% for i in range(9999) %}{% for j in range(200) %}{% endfor %}{% endfor %}"  # about half a second
    )
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% if 'x' in messages[0].content %}" + slow + "{% endif %}a"
    assert encode([Item("a", "c", "y", ("r",), 1)], tokenizer, max_length=9)
    with pytest.raises(ValueError, match=r"'b', response 0.*template"):
        encode([Item("b", "c", "x", ("r",), 1)], tokenizer, max_length=9)


@pytest.mark.parametrize("template", ["{{ 1 / 0 }}", "{{ messages.a.b }}", "{% for %}", "{{ none() }}"])
def test_a_template_that_fails_names_the_item(template: str) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match="'a', response 0"):
        encode([Item("a", "c", "y", ("r",), 1)], tokenizer, max_length=9)


def test_a_tokenizer_that_takes_forever_or_all_memory_is_refused(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmcalib.judges._files._TRIAL_SECONDS", 5.0)
    folder = copied(plain, tmp_path / "m")
    padding = {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_id": 0, "pad_type_id": 0}
    change(folder / "tokenizer.json", padding={**padding, "pad_to_multiple_of": None, "pad_token": "x"})
    with pytest.raises(HubError, match="tokenizer"):
        load_model(str(folder), device="cpu")


@pytest.mark.parametrize("content", [b"", b"no pieces", bytes(range(256)) * 9])
@pytest.mark.parametrize("family", ["open-llama", "internlm2-pieces"])
def test_a_damaged_tokenizer_model_is_refused(family: str, content: bytes, tmp_path: Path) -> None:
    layout = LAYOUTS[family](tmp_path / "m")
    assert load_model(str(layout.folder), device="cpu", recipe=layout.model).max_length == 512
    (layout.folder / "tokenizer.model").write_bytes(content)
    with pytest.raises(HubError, match="tokenizer") as caught:
        load_model(str(layout.folder), device="cpu", recipe=layout.model)
    assert "tiktoken" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "added", [{"x": {}}, {"5": 3}, {"5": {}}, {"999": {"content": "<|a|>"}}, {"5": {"content": 7}}]
)
def test_odd_special_tokens_are_refused(added: dict[str, Any], tmp_path: Path) -> None:
    layout = LAYOUTS["internlm2-pieces"](tmp_path / "m")
    change(layout.folder / "tokenizer_config.json", added_tokens_decoder=added)
    with pytest.raises(HubError) as caught:
        load_model(str(layout.folder), device="cpu", recipe=layout.model)
    assert "\n" not in str(caught.value)


def test_child_processes_import_nothing_from_the_current_folder(tmp_path: Path) -> None:
    for module in ("torch", "numpy", "json", "rmcalib"):
        (tmp_path / f"{module}.py").write_text("print('hijacked')")
    code = "import json, numpy, rmcalib; print(rmcalib.__file__)"
    root = str(Path(__file__).parents[2])
    script = (
        f"import subprocess; from rmcalib._util.processes import isolated; subprocess.run(isolated({code!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import os, sys; sys.path.insert(0, {root!r})\n{script}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == [f"{root}/rmcalib/__init__.py"], done.stderr
    assert isolated("pass")[1] == "-I"
