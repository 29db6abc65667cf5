"""Write small rollouts with the frameworks' own writers, as fixtures of the tests.

    pip download --no-deps --dest WHEELS verl==0.9.1 ms-swift==4.6.0 skyrl==0.3.0 areal==1.0.4
    python scripts/write_rollouts.py WHEELS [--to tests/scores/frameworks]

The functions that write are taken out of the wheels and run by themselves, on texts of our own, with stand-ins for
tensors and tokenizers: the frameworks need not be installed. All folders have the same samples, so that
tests/scores/test_frameworks.py can compare them. NeMo-RL has no wheel, so its files follow its documentation; TRL
writes its own in tests/integrations/test_grpo.py.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import re
import shutil
import textwrap
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

Row = dict[str, Any]
STEPS = (3, 4)


def samples(step: int) -> list[Row]:
    """Return two samples of three prompts, of which one has equal samples."""
    rows = []
    for p, prompt in enumerate(["What is 2 + 2?", "Name a prime number.", "Ist 7 größer als 5?"]):
        for i in range(2):
            text = "yes" if p == 2 else f"**{p + i + step}**"
            rows.append(
                {"prompt": prompt, "text": text, "reward": round(0.5 * p - i + step / 4, 2), "right": i == 0}
            )
    return rows


class Words:
    """A stand-in for a tokenizer and its tensors: a text is one token."""

    pad_token_id = 0

    def __init__(self) -> None:
        self.texts: list[str] = [""]

    def encode(self, text: str) -> int:
        self.texts.append(text)
        return len(self.texts) - 1

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(self.texts[int(number)] for number in np.asarray(ids).ravel())

    def batch_decode(self, ids: Any, **_: Any) -> list[str]:
        return [self.decode(row) for row in ids]


class Tensor(np.ndarray[Any, Any]):
    """An array with the methods of a tensor that the writers call."""

    def __new__(cls, values: Any) -> Tensor:
        return np.asarray(values).view(cls)

    def to_padded_tensor(self, **_: Any) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def sum(self, axis: Any = None, dim: Any = None, **_: Any) -> Any:  # type: ignore[override]
        return Tensor(np.asarray(self).sum(axis if dim is None else dim))


def writer(wheels: Path, package: str, path: str, *names: str, **given: Any) -> dict[str, Callable[..., Any]]:
    """Return functions or classes of a file in a wheel, by name; ``given`` is what they refer to."""
    (wheel,) = wheels.glob(f"{package}-*.whl")
    with zipfile.ZipFile(wheel) as content:
        source = content.read(path).decode()
    found: dict[str, Any] = {}
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and node.name in names:
            lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
            space = {"np": np, "os": os, "json": json, "Path": Path, **given}
            code = "from __future__ import annotations\n" + textwrap.dedent("\n".join(lines))
            exec(compile(code, f"{wheel.name}/{path}", "exec"), space)
            found[node.name] = space[node.name]
    missing = {*names} - found.keys()
    if missing:
        raise SystemExit(f"{wheel}: {path} has no {', '.join(missing)}")
    return found


def verl(wheels: Path, folder: Path) -> None:
    """Write as its V1 trainer, its older trainer and its validation do."""
    v1 = writer(
        wheels,
        "verl",
        "verl/trainer/ppo/v1/trainer_base.py",
        *("_write_generations", "_dump_generations", "_log_rollout_data"),
        tq=SimpleNamespace(kv_batch_get=lambda keys, **_: dict(keys.data)),
        marked_timer=lambda *_, **__: nullcontext(),
    )
    old = writer(
        wheels,
        "verl",
        "verl/trainer/ppo/ray_trainer.py",
        *("_write_generations", "_dump_generations", "_log_rollout_data"),
        marked_timer=lambda *_, **__: nullcontext(),
    )
    for step in STEPS:
        rows, words = samples(step), Words()
        ids = {name: Tensor([[words.encode(row[name])] for row in rows]) for name in ("prompt", "text")}
        rewards = Tensor([[row["reward"]] for row in rows])
        truth = np.array([{"ground_truth": "4"} for _ in rows], dtype=object)
        with ThreadPoolExecutor(1) as executor:

            def trainer(
                code: Mapping[str, Any], executor: Any = executor, step: int = step, words: Words = words
            ) -> Any:
                it = SimpleNamespace(
                    global_steps=step, tokenizer=words, _dump_executor=executor, _dump_futures=[],
                    _write_generations=code["_write_generations"],
                )  # fmt: skip
                it._dump_generations = lambda **given: code["_dump_generations"](it, **given)
                return it

            class Keys(list):  # type: ignore[type-arg]
                data: Any

            keys = Keys(f"{i // 2:04d}_{i % 2}_0" for i in range(len(rows)))
            keys.data = {"uid": np.array(keys), "prompts": ids["prompt"], "responses": ids["text"],
                         "rm_scores": rewards, "reward_model": truth}  # fmt: skip
            batch: Any = SimpleNamespace(keys=keys, partition_id="train")
            v1["_log_rollout_data"](trainer(v1), batch, {}, str(folder / "verl-v1"))

            class Batch(list):  # type: ignore[type-arg]
                batch = {"prompts": ids["prompt"], "responses": ids["text"], "token_level_scores": rewards}  # noqa: RUF012
                non_tensor_batch = {"request_id": np.array(keys)}  # noqa: RUF012

            every = Batch(SimpleNamespace(non_tensor_batch={"reward_model": one}) for one in truth)
            extra = {"acc": np.array([row["right"] for row in rows])}
            old["_log_rollout_data"](trainer(old), every, extra, {}, str(folder / "verl-legacy"))
            validated = {
                "inputs": [row["prompt"] for row in rows],
                "outputs": [row["text"] for row in rows],
                "gts": ["4"] * len(rows),
                "scores": [row["reward"] for row in rows],
                "reward_extra_infos_dict": {
                    "reward": [row["reward"] for row in rows],
                    "acc": [np.bool_(row["right"]) for row in rows],
                    "uid": list(keys),
                },
            }
            it = trainer(v1)
            it._dump_generations(**validated, dump_path=str(folder / "verl-validation"))


def swift(wheels: Path, folder: Path) -> None:
    """Write as ms-swift does with transformers (lists), Megatron (lists, gen_step) and Ray (rows)."""
    made = writer(
        wheels,
        "ms_swift",
        "swift/utils/io_utils.py",
        "JsonlWriter",
        Queue=list,
        Thread=None,
        is_master=lambda: True,
        is_last_rank=lambda: True,
        check_json_format=lambda value: value,
        dist=SimpleNamespace(is_initialized=lambda: False),
    )["JsonlWriter"]
    mixin = writer(
        wheels, "ms_swift", "swift/megatron/trainers/rollout_mixin.py", "_build_log_table", Dict={}
    )
    ray = writer(
        wheels, "ms_swift", "swift/ray/megatron/base_trainer.py", "_maybe_log_completions", "_decode_log_content",
        JsonlWriter=made, List={}, OnPolicySample=None,
    )  # fmt: skip
    plain, megatron = (made(str(folder / name / "completions.jsonl")) for name in ("swift", "swift-megatron"))
    on_ray = SimpleNamespace(
        args=SimpleNamespace(log_completions=True, output_dir=str(folder / "swift-ray")),
        _decode_log_content=lambda content: ray["_decode_log_content"](None, content),
        _format_log_prompt=lambda messages: f"<|user|>{messages[-1]['content']}<|assistant|>",
    )
    for step in STEPS:
        rows = samples(step)
        logs = {"prompt": [row["prompt"] for row in rows], "completion": [row["text"] for row in rows]}
        rewards = {
            "MyReward": [row["reward"] for row in rows],
            "accuracy": [float(row["right"]) for row in rows],
        }
        more = {**rewards, "advantages": [0.0] * len(rows)}
        plain.append({"step": [str(step)] * len(rows), **logs, **more})
        megatron.append(mixin["_build_log_table"](SimpleNamespace(_step=step + 1, _logs=logs)) | more)
        conversations = [
            SimpleNamespace(
                messages=[
                    {"role": "user", "content": row["prompt"]},
                    {"role": "assistant", "content": row["text"]},
                ]
            )
            for row in rows
        ]
        ray["_maybe_log_completions"](on_ray, conversations, rewards["MyReward"], gen_step=step)


def skyrl(wheels: Path, folder: Path) -> None:
    """Write as the evaluations of SkyRL do: a reward per token."""
    dump = writer(
        wheels,
        "skyrl",
        "skyrl/train/utils/trainer_utils.py",
        *("dump_per_dataset_eval_results", "sanitize_data_source"),
        logger=SimpleNamespace(info=print),
        sanitize_data_source=lambda name: name.replace("/", "_"),
    )["dump_per_dataset_eval_results"]
    for step in STEPS:
        rows, words = samples(step), Words()
        place = folder / "skyrl" / "dumped_evals" / f"global_step_{step}_evals"
        place.mkdir(parents=True)
        generated = {
            "prompt_token_ids": [[words.encode(row["prompt"])] for row in rows],
            "response_ids": [[words.encode(row["text"])] for row in rows],
            "rewards": [[0.0, row["reward"]] for row in rows],
        }
        sources = ["sums/a"] * 2 + ["words"] * 4
        extras = [{"reward_spec": {"ground_truth": "4"}} for _ in rows]
        dump(place, words, generated, sources, ["gsm8k"] * len(rows), extras, {"eval/all/avg_score": 1.0})


def areal(wheels: Path, folder: Path) -> None:
    """Write as AReaL does: a file per version and task."""

    class File:
        def __init__(self, path: str, mode: str) -> None:
            self.file = Path(path).open(mode, encoding="utf-8")  # noqa: SIM115 (closed by __aexit__)

        async def __aenter__(self) -> File:
            return self

        async def __aexit__(self, *_: Any) -> None:
            self.file.close()

        async def write(self, text: str) -> None:
            self.file.write(text)

    async def makedirs(path: str, exist_ok: bool) -> None:
        Path(path).mkdir(parents=True, exist_ok=exist_ok)

    dump = writer(
        wheels,
        "areal",
        "areal/infra/workflow_executor.py",
        "_dump_trajectory",
        RTensor=SimpleNamespace(localize=lambda value: value),
        aiofiles=SimpleNamespace(open=File, os=SimpleNamespace(makedirs=makedirs)),
        Any=Any,
    )["_dump_trajectory"]
    for step in STEPS:
        rows, words = samples(step), Words()
        it = SimpleNamespace(
            _get_dump_dir=lambda _: str(folder / "areal" / "rollout"),
            _get_tokenizer=lambda words=words: words,
        )
        for task in range(3):
            group = rows[2 * task : 2 * task + 2]
            trajectory = {
                "input_ids": np.array(
                    [[words.encode(row["prompt"]), words.encode(row["text"])] for row in group]
                ),
                "rewards": np.array([row["reward"] for row in group]),
                "loss_mask": np.array([[0, 1]] * 2),
                "attention_mask": np.array([[1, 1]] * 2),
                "versions": np.array([[step, step]] * 2),
            }
            written, why = asyncio.run(dump(it, trajectory, 10 * step + task, False))
            assert written, why


def nemo(_: Path, folder: Path) -> None:
    """Follow the documentation of NeMo-RL: a slice of a list of message texts, values as lists."""
    place = folder / "nemo-rl"
    place.mkdir()
    for step in STEPS:
        rows = [
            {
                "content": [[row["prompt"], row["text"]]],
                "rewards": [row["reward"]],
                "input_lengths": [9],
                "idx": i,
            }
            for i, row in enumerate(samples(step))
        ]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (place / f"train_data_step{step}.jsonl").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheels", type=Path, help="the folder of the downloaded wheels")
    parser.add_argument("--to", type=Path, default=Path(__file__).parents[1] / "tests/scores/frameworks")
    given = parser.parse_args()
    wheels = {verl: "verl", swift: "ms_swift", skyrl: "skyrl", areal: "areal", nemo: None}
    for write, package in wheels.items():
        if package is not None and not any(given.wheels.glob(f"{package}-*.whl")):
            print(f"no wheel of {package}: its files stay")
            continue
        for old in given.to.glob(f"{re.escape(write.__name__)}*"):
            shutil.rmtree(old)
        given.to.mkdir(parents=True, exist_ok=True)
        write(given.wheels, given.to)
    expected = {step: samples(step) for step in STEPS}
    (given.to / "samples.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")
    print(f"{sum(path.is_file() for path in given.to.rglob('*'))} files in {given.to}")


if __name__ == "__main__":
    main()
