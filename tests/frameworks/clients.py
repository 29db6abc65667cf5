"""Runs in the environment of the frameworks: their own request functions ask our server, or import our modules.

Reads a task from standard input (JSON), and writes what the framework got to the last line of standard output.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any


def openrlhf(task: dict[str, Any]) -> Any:
    """Send many samples at once, each in a request of its own, as a rollout does."""
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    executor = SingleTurnAgentExecutor(task["url"])

    async def ask() -> Any:
        asked = [executor._fetch_rewards_via_http([q], [p], [None]) for q, p in task["pairs"]]
        return [answer[0] for answer in await asyncio.gather(*asked)]

    return asyncio.run(ask())


def openrlhf_function(task: dict[str, Any]) -> Any:
    """Import a file with a `reward_func`, and call it as OpenRLHF does."""
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    executor = SingleTurnAgentExecutor(task["file"])

    async def ask() -> Any:
        asked = [executor._fetch_rewards_via_func([q], [p], [None]) for q, p in task["pairs"]]
        return [answer[0] for answer in await asyncio.gather(*asked)]

    return asyncio.run(ask())


def llama_factory(task: dict[str, Any]) -> Any:
    """Run the real `ppo_utils.py`. A normal import would load all of LLaMA-Factory."""
    found = importlib.util.find_spec("llamafactory")
    assert found is not None
    assert found.submodule_search_locations is not None
    root = Path(next(iter(found.submodule_search_locations)))
    for name in ("llamafactory", "llamafactory.train", "llamafactory.train.ppo", "llamafactory.extras"):
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    packages = types.ModuleType("llamafactory.extras.packages")
    packages.is_requests_available = lambda: True  # type: ignore[attr-defined]
    sys.modules[packages.__name__] = packages
    module = importlib.import_module("llamafactory.train.ppo.ppo_utils")
    return module.get_rewards_from_server(task["url"], task["texts"]).tolist()


class Tokenizer:
    """Characters as tokens, with a template; verl needs no more."""

    bos_token, eos_token, chat_template = "<s>", "</s>", "x"

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(chr(int(one)) for one in ids)

    def apply_chat_template(self, chat: list[dict[str, str]], **_: Any) -> str:
        return "<s>" + "".join(f"[{one['role']}]{one['content']}" for one in chat)


def verl_data(prompt: list[dict[str, str]], response: str, extra: dict[str, Any]) -> Any:
    import numpy as np
    import torch
    from verl import DataProto

    ids = torch.tensor([[ord(one) for one in response] + [0, 0]])
    mask = torch.tensor([[1, 1] + [1] * len(response) + [0, 0]])
    columns = {
        "raw_prompt": prompt,
        "data_source": "mine",
        "reward_model": {"ground_truth": "4"},
        "extra_info": extra,
    }
    arrays = {}
    for name, value in columns.items():
        arrays[name] = np.empty(1, dtype=object)
        arrays[name][0] = value
    tensors = {"prompts": torch.ones(1, 2), "responses": ids, "attention_mask": mask}
    return DataProto.from_dict(tensors=tensors, non_tensors=arrays)


def verl_config(**reward: Any) -> Any:
    from omegaconf import OmegaConf

    model = {"enable": True, "model_path": "demo", "rollout": {"name": "vllm"}}
    return OmegaConf.create(
        {"reward": {"custom_reward_function": {"path": None}, "reward_model": model, **reward}}
    )


def verl_manager(task: dict[str, Any]) -> Any:
    """Load our manager by `pkg://`, as verl does."""
    from verl.trainer.ppo.reward import resolve_reward_manager_cls

    chosen = {"source": "importlib", "name": "RewardManager", "module": {"path": "pkg://rmcalib.live.verl"}}
    config = verl_config(reward_manager=chosen)
    manager: Any = resolve_reward_manager_cls(config)(config, Tokenizer(), None)

    async def ask() -> Any:
        data = [verl_data(prompt, response, {}) for prompt, response in task["conversations"]]
        return await asyncio.gather(*(manager.run_single(one) for one in data))

    return asyncio.run(ask())


def verl_function(task: dict[str, Any]) -> Any:
    """Load our function by `pkg://`, and let verl's naive manager call it."""
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
    from verl.trainer.ppo.reward import get_custom_reward_fn

    function = {"path": "pkg://rmcalib.live.verl", "name": "compute_score"}
    config = verl_config(custom_reward_function=function)

    async def ask() -> Any:
        manager = NaiveRewardManager(config, Tokenizer(), get_custom_reward_fn(config))  # it keeps this loop
        pairs = task["conversations"]
        data = [verl_data(prompt, response, {"prompt": prompt}) for prompt, response in pairs]
        return await asyncio.gather(*(manager.run_single(one) for one in data))

    return asyncio.run(ask())


def verl_classify(task: dict[str, Any]) -> Any:
    """Let verl's own client ask `/classify` with the reward model's text."""
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

    worker: Any = object.__new__(RewardLoopWorker)
    worker.config = verl_config()
    worker.input_tokenizer = worker.reward_model_tokenizer = Tokenizer()
    worker.reward_router_address = task["url"].removeprefix("http://")

    async def ask() -> Any:
        data = [verl_data(prompt, response, {}) for prompt, response in task["conversations"]]
        return await asyncio.gather(*(worker.compute_score_disrm(one) for one in data))

    return asyncio.run(ask())


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    sys.path += asked["paths"]  # of rmcalib and its packages, after those of this environment
    print("\n" + json.dumps(globals()[asked["client"]](asked)))
