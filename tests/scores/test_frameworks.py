"""Files that the frameworks' own writers made (`scripts/write_rollouts.py`): all have the same samples."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmcalib
from rmcalib.judges.apis.samples import Sample, Scored
from rmcalib.live.log import RewardLog

FOLDERS = Path(__file__).with_name("frameworks")
LABELLED = {"verl-legacy", "verl-validation", "swift", "swift-megatron"}
NAMES = sorted(path.name for path in FOLDERS.iterdir() if path.is_dir())
SAMPLES = {float(step): rows for step, rows in json.loads((FOLDERS / "samples.json").read_text()).items()}


def check(rows: list[dict[str, Any]], labelled: bool) -> None:
    """Compare the rows of a watch with the samples."""
    assert [row["step"] for row in rows] == [*SAMPLES]
    for row, every in zip(rows, SAMPLES.values(), strict=True):
        assert (row["n_samples"], row["n_prompts"]) == (6, 3)
        assert row["mean_reward"] == pytest.approx(np.mean([one["reward"] for one in every]))
        assert row["repeated"] == pytest.approx(1 / 6)
        assert row["markdown"] == pytest.approx(4 / 6)
        assert row["mean_length"] == pytest.approx(np.mean([len(one["text"]) for one in every]))
        assert row["right"] == (0.5 if labelled else pytest.approx(np.nan, nan_ok=True))


@pytest.mark.parametrize("name", NAMES)
def test_the_files_of_a_framework(name: str, tmp_path: Path) -> None:
    found = rmcalib.watch(FOLDERS / name)
    check(found.steps, name in LABELLED)
    file = max(path for path in (FOLDERS / name).rglob("*.jsonl") if "aggregated" not in path.name)
    of_file = rmcalib.watch(file).steps  # a file of the folder is watched by itself
    assert {row["step"] for row in of_file} <= {*SAMPLES}
    with pytest.raises(ValueError) as wrong:
        rmcalib.watch(FOLDERS / name, columns="reward=nothing_like_it")
    first = json.loads(file.read_text(encoding="utf-8").splitlines()[0])
    columns = {"score" if key == "rewards" else key for key in first if key != "content"}
    assert all(key in str(wrong.value) for key in columns)
    # It grows: the second step comes while it is followed.
    run = tmp_path / "run"
    shutil.copytree(FOLDERS / name, run)
    late = [path for path in run.rglob("*") if path.is_file() and "4" in str(path.relative_to(run))]
    parts = {path: path.read_bytes() for path in late or run.glob("completions.jsonl")}
    for path, content in parts.items():
        whole = content.splitlines(keepends=True)
        path.write_bytes(b"" if late else b"".join(whole[: len(whole) // 2]))
    seen: list[int] = []

    def look(now: Any) -> bool:
        seen.append(len(now.steps))
        for path, content in parts.items():
            path.write_bytes(content)
        return len(seen) > 1

    followed = rmcalib.watch(run, follow=True, every=0.01, on_look=look)
    assert seen == [1, 2]
    check(followed.steps, name in LABELLED)


def test_the_log_of_a_server_is_watched(tmp_path: Path) -> None:
    log = RewardLog(tmp_path, rotate=300)
    for step, every in SAMPLES.items():
        rows = [
            (
                Sample(one["prompt"], one["text"], step=int(step), label=float(one["right"])),
                Scored(one["reward"], one["reward"], None, False),
            )
            for one in every
        ]
        for row in rows:
            log.write([row])
    log.close()
    assert len([*tmp_path.iterdir()]) > 2
    check(rmcalib.watch(tmp_path).steps, True)
