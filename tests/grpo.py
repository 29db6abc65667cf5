"""A tiny GRPO run of TRL on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def grpo_trainer(
    folder: Path,
    rewards: list[Any],
    prompts: list[dict[str, Any]],
    n_prompts: int,
    n_samples: int,
    **changes: Any,
) -> Any:
    """Return a trainer with so many prompts and samples of each per step; ``changes`` are arguments of GRPO's config.

    ``model``, ``processing_class`` and ``callbacks`` among them are those of the trainer; the default model has random
    weights.
    """
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    from tests.hub import tiny

    seed = changes.get("seed", 0)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    names = ("model", "processing_class", "callbacks")
    given = {name: changes.pop(name) for name in names if name in changes}
    settings = {
        "per_device_train_batch_size": n_prompts * n_samples,
        "num_generations": n_samples,
        "log_completions": True,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "lr_scheduler_type": "constant",
        **changes,
    }
    if "model" not in given:
        given["model"] = AutoModelForCausalLM.from_config(tiny.tiny_config())
        given["processing_class"] = tiny.tiny_tokenizer()
    return GRPOTrainer(
        reward_funcs=rewards,
        args=GRPOConfig(output_dir=str(folder), **settings),
        train_dataset=Dataset.from_list(prompts),
        **given,
    )
