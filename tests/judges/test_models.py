"""Models from folders: stock heads, dtypes, columns, lengths, and what a run says of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from rmcalib._util.hub import HubError
from rmcalib.judges import Classifier, Recipe, about_judge, load_model
from tests.hub import tiny
from tests.judges.folders import IDS, copied, rewards

torch.set_num_threads(1)

# deberta-v2 in transformers still compiles with torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "gemma2", "mistral", "gpt_neox"])
def test_stock_heads_give_the_library_s_own_logits(model_type: str, tmp_path: Path) -> None:
    stock = tiny.tiny_classifier(model_type)
    model = load_model(str(tiny.save_model(tmp_path / "m", stock)), device="cpu")
    assert model.kind == "causal"
    expected = stock(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits[:, 0]
    torch.testing.assert_close(rewards(model), expected, atol=1e-5, rtol=1e-5)
    assert rewards(model).std() > 1e-3


@pytest.mark.parametrize("model_type", ["deberta-v2", "bert"])
def test_encoders_score_as_a_whole(model_type: str, tmp_path: Path) -> None:
    stock = tiny.tiny_classifier(model_type)
    model = load_model(str(tiny.save_model(tmp_path / "m", stock)), device="cpu")
    assert model.kind == "encoder"
    expected = stock(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits[:, 0]
    torch.testing.assert_close(rewards(model), expected, atol=1e-5, rtol=1e-5)


def test_a_local_folder_s_revision_follows_its_bytes(plain: Path, tmp_path: Path) -> None:
    first = load_model(str(plain), device="cpu")
    same = shutil.copytree(plain, tmp_path / "same")
    assert first.revision == load_model(str(same), device="cpu").revision
    other = copied(plain, tmp_path / "other")
    tiny.tiny_classifier(seed=1).save_pretrained(other)
    assert first.revision != load_model(str(other), device="cpu").revision


def test_the_cpu_uses_float32_whatever_the_checkpoint_says(tmp_path: Path) -> None:
    folder = tiny.save_model(tmp_path / "m", tiny.tiny_classifier().to(torch.bfloat16))
    model = load_model(str(folder), device="cpu")
    assert model.dtype == torch.float32
    assert {p.dtype for p in model.backbone.parameters()} == {torch.float32}


def test_the_head_stays_float32_in_half_precision(plain: Path) -> None:
    model = load_model(str(plain), device="cpu", dtype="bfloat16")
    assert {p.dtype for p in model.backbone.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in model.head.parameters()} == {torch.float32}
    exact = tiny.tiny_classifier().score.weight
    assert torch.equal(next(model.head.parameters()), exact)  # as stored, not rounded on the way


def test_column_and_sign_pick_the_reward(tmp_path: Path) -> None:
    stock = tiny.tiny_classifier(num_labels=3)
    folder = str(tiny.save_model(tmp_path / "m", stock))
    model = load_model(folder, device="cpu", recipe=Recipe(folder, column=2, sign=-1.0))
    expected = -stock(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits[:, 2]
    torch.testing.assert_close(rewards(model), expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(HubError, match=r"column: must be from 0 to 2, got 3"):
        load_model(folder, device="cpu", recipe=Recipe(folder, column=3))
    with pytest.raises(HubError, match=r"3 outputs \(num_labels\), but a reward model has one"):
        load_model(folder, device="cpu")


def test_a_config_without_num_labels_is_settled_by_the_head(plain: Path, tmp_path: Path) -> None:
    silent = copied(plain, tmp_path / "silent", id2label=None, label2id=None, num_labels=None)
    assert "id2label" not in json.loads((silent / "config.json").read_text())
    torch.testing.assert_close(
        rewards(load_model(str(silent), device="cpu")), rewards(load_model(str(plain), device="cpu"))
    )


def test_max_length_is_the_model_s_own_and_can_be_shortened(plain: Path, tmp_path: Path) -> None:
    folder = str(plain)
    assert load_model(folder, device="cpu").max_length == 512
    assert load_model(folder, device="cpu", max_length=64).max_length == 64
    with pytest.raises(ValueError, match="max_length: 1024 is more than the 512 tokens"):
        load_model(folder, device="cpu", max_length=1024)
    with pytest.raises(ValueError, match="max_length: must be at least 8 tokens, got 0"):
        load_model(folder, device="cpu", max_length=0)
    long = copied(plain, tmp_path / "long", max_position_embeddings=131072)
    assert load_model(str(long), device="cpu").max_length == 4096


def test_a_run_s_inputs_follow_what_changes_a_score(plain: Path, tmp_path: Path) -> None:
    from rmcalib.benchmarks import Benchmark, load_benchmark
    from rmcalib.judges import RewardModel
    from rmcalib.runs import inputs_hash, score_inputs

    def written(text: str) -> str:
        path = tmp_path / "bench.jsonl"
        path.write_text(json.dumps(tiny.benchmark_rows(1)[0] | {"prompt": text}))
        return str(path)

    name = str(plain)
    model, bench = load_model(name, device="cpu"), load_benchmark(written("a"))

    def hashed(model: RewardModel, bench: Benchmark) -> str:
        return inputs_hash(score_inputs(Classifier(model), bench))

    first = hashed(model, bench)
    assert hashed(load_model(name, device="cpu"), load_benchmark(written("a"))) == first
    recipe = Recipe(name, loss="known", note="x", scale="ratings")
    described = load_model(name, device="cpu", recipe=recipe)
    assert hashed(described, bench) == first
    about = about_judge(Classifier(described))
    assert (about["about_model"]["loss"], about["scale"]) == ("known", "ratings")
    others = [
        (load_model(name, device="cpu", max_length=64), bench),
        (load_model(name, device="cpu", dtype="bfloat16"), bench),
        (load_model(name, device="cpu", recipe=Recipe(name, sign=-1.0)), bench),
        (model, load_benchmark(written("b"))),
    ]
    hashes = {hashed(*pair) for pair in others}
    assert len(hashes | {first}) == 5
    running: Any = model.backbone.config
    running._attn_implementation = "eager"
    assert hashed(model, bench) not in hashes | {first}
