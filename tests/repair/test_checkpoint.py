"""Checkpoints with calibrated rewards: written completely or not at all, checked, and uploaded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import rmcalib
from rmcalib._util.hub import HubError
from rmcalib.judges import LoadOptions, Recipe
from rmcalib.repair import Calibrator, push_checkpoint, write_checkpoint
from rmcalib.repair.checkpoint import check_destination
from tests.hub.server import TOKEN, LoopbackHub
from tests.judges.folders import CustomHead, copied

torch.set_num_threads(1)
CPU = LoadOptions(device="cpu")
CALIBRATOR = Calibrator(
    2.5, 2.0, 3.0, model="demo", fitted_on={"benchmark": "mi`ne\n# x", "n": 1500}, versions={"rmcalib": "1"}
)


def test_rewards_of_a_checkpoint_are_divided_and_its_files_describe_it(tmp_path: Path) -> None:
    made = write_checkpoint(CALIBRATOR, tmp_path / "out", options=CPU)
    bench = rmcalib.load_benchmark("demo", limit=20)
    before, after = (
        rmcalib.score(model, bench, device="cpu").reward for model in ("demo", str(tmp_path / "out"))
    )
    np.testing.assert_allclose(after, before / 2.5, rtol=1e-5, atol=1e-6)
    assert made.tensors == ("score.weight",)
    assert made.difference < 1e-5
    assert made.recipe_file is None
    note = json.loads((tmp_path / "out/config.json").read_text())["rmcalib_calibration"]
    assert (note["temperature"], note["base_model"]) == (2.5, "demo")
    card = (tmp_path / "out/README.md").read_text()
    assert "divided by the temperature **2.5**" in card
    assert "1,500 prompts of `mi'ne # x`" in card  # a name cannot start a new line
    assert Calibrator.load(tmp_path / "out/calibrator.json") == CALIBRATOR


def test_models_that_need_a_recipe_get_one_under_their_new_names(tmp_path: Path) -> None:
    folder = str(CustomHead([nn.Linear(32, 1)]).save(tmp_path / "model", "v_head"))
    options = LoadOptions(device="cpu", recipe=Recipe(folder, status="rebuilt", head="v_head"))
    out = tmp_path / "out"
    made = write_checkpoint(CALIBRATOR, out, model=folder, repo_id="me/rm", options=options)
    assert made.recipe_file == out / "recipe.yaml"
    entries = yaml.safe_load((out / "recipe.yaml").read_text())["models"]
    assert entries == [{"model": name, "status": "rebuilt", "head": "v_head"} for name in (str(out), "me/rm")]
    scores = rmcalib.score(
        str(out), rmcalib.load_benchmark("demo", limit=4), device="cpu", recipes=(made.recipe_file,)
    )
    assert scores.n_items == 4
    assert str(tmp_path) not in (out / "README.md").read_text() + (out / "config.json").read_text()


def test_a_model_whose_rewards_are_not_linear_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_use, left = tmp_path / f".out.{os.getppid()}.tmp", tmp_path / f".out.{2**22 + 1}.tmp"
    in_use.mkdir()
    left.mkdir()
    (left / "model.safetensors").touch()

    def squashed(judge: object) -> np.ndarray:
        return np.array([0.9, 0.5]) if "demo" in judge.name else np.array([0.36002, 0.2])  # type: ignore[attr-defined]

    monkeypatch.setattr("rmcalib.repair.checkpoint._rewards", squashed)
    with pytest.raises(ValueError, match="not linear in its last layer"):
        write_checkpoint(CALIBRATOR, tmp_path / "out", options=CPU)
    assert list(tmp_path.iterdir()) == [in_use]  # what a killed process has left is removed, too


def test_folders_in_use_and_models_that_changed_are_refused(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()
    with pytest.raises(ValueError, match="full: exists"):
        write_checkpoint(CALIBRATOR, tmp_path / "full", options=CPU)
    with pytest.raises(ValueError, match="full/x: exists"):
        write_checkpoint(CALIBRATOR, tmp_path / "full/x", options=CPU)
    model = str(copied(plain, tmp_path / "model"))
    fitted = Calibrator(2.0, 1.0, 3.0, model=model, fitted_on={"model_revision": "0" * 64})
    with pytest.raises(ValueError, match="have changed since they were scored"):
        write_checkpoint(fitted, tmp_path / "out", options=CPU)
    judged = Calibrator(2.0, 1.0, 3.0, model="demo", fitted_on={"judge": "policy"})
    with pytest.raises(ValueError, match="demo: "):
        write_checkpoint(judged, tmp_path / "out", options=CPU)
    with pytest.raises(ValueError, match="do not name the model"):
        write_checkpoint(Calibrator(2.0, 1.0, 3.0), tmp_path / "out")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """A Hub that this process writes to, logged in."""
    with LoopbackHub() as hub:
        for name, value in (
            ("ENDPOINT", hub.url),
            ("HF_HUB_DISABLE_XET", True),
            ("HF_HUB_OFFLINE", False),
        ):
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # huggingface_hub's own use of httpx
def test_checkpoints_are_uploaded_completely(hub: LoopbackHub, tmp_path: Path) -> None:
    folder = write_checkpoint(CALIBRATOR, tmp_path / "out", repo_id="me/rm", options=CPU).folder
    for _ in range(2):  # the second time into the repository that exists
        assert push_checkpoint(folder, "me/rm") == f"{hub.url}/me/rm"
    repo = hub.repos["models", "me/rm"]
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert repo.commits[repo.refs["main"]] == files | {".gitattributes": b""}
    assert "# me/rm" in files["README.md"].decode()


def test_failed_uploads_are_explained(
    hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setenv("HF_TOKEN", "hf_another")
    with pytest.raises(HubError, match=r"me/rm: .*"):
        push_checkpoint(tmp_path, "me/rm")
    hub.fail("POST /api/repos/create", status=500)
    with pytest.raises(HubError, match=r"the Hub failed \(500\)"):
        push_checkpoint(tmp_path, "me/rm")
    with pytest.raises(ValueError, match="me/rm"):
        check_destination(tmp_path / "new", "rm")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(ValueError, match="log in first"):
        check_destination(tmp_path / "new", "me/rm")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="HF_HUB_OFFLINE is set"):
        check_destination(tmp_path / "new", "me/rm")


def test_a_link_or_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name, target in {"link": "empty", "dangling": "gone", "loop": "loop"}.items():
        (tmp_path / name).symlink_to(tmp_path / target)
        with pytest.raises(ValueError, match=f"{name}: exists"):
            check_destination(tmp_path / name)
    with pytest.raises(ValueError, match="file/below/it: cannot be written"):
        check_destination(tmp_path / "file" / "below" / "it")
