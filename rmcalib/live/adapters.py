"""What frameworks call: each adapter is a `Reward` in the framework's own form."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rmcalib.judges.apis.openrlhf import Openrlhf
from rmcalib.judges.apis.samples import Sample, as_sample, as_samples, split_conversation
from rmcalib.live.policy import PolicyTexts, Texts
from rmcalib.live.reward import Reward, raise_first

_PROMPT_KEYS = ("prompt", "raw_prompt", "question", "problem")  # of verl's extra_info


def trl(reward: Reward, name: str | None, label: str | None) -> Callable[..., list[float | None]]:
    """Return TRL's `f(prompts, completions, ..., **columns) -> rewards`."""

    def reward_function(
        prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        state = columns.get("trainer_state")
        labels = None if label is None else _column(columns, label, len(completions))
        samples = as_samples(prompts, completions, labels, getattr(state, "global_step", None))
        outcomes = reward.outcomes(samples)
        scored = [None if isinstance(each, Exception) else each for each in outcomes]
        log_extra, log_metric = columns.get("log_extra"), columns.get("log_metric")
        if log_extra is not None and reward.meaning.event:
            probabilities = [None if each is None else each.probability for each in scored]
            log_extra(f"{title}_probability", probabilities)
        if log_metric is not None and scored:
            log_metric(
                f"{title}/outside", float(np.mean([each is not None and each.outside for each in scored]))
            )
            log_metric(f"{title}/failed", float(np.mean([each is None for each in scored])))
        return [None if each is None else each.reward for each in scored]

    title = name or identifier(reward.name)
    reward_function.__name__ = reward_function.__qualname__ = title
    return reward_function


def openrlhf(reward: Reward, policy: PolicyTexts | str | None) -> Callable[..., dict[str, Any]]:
    """Return OpenRLHF's `reward_func(queries, prompts, labels)`, which it calls in many threads."""
    _refuse_none(reward, "OpenRLHF")
    _refuse_group(reward, "OpenRLHF")
    texts = Texts(PolicyTexts.load(policy) if isinstance(policy, str) else policy)

    def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
        samples = texts.samples(queries, prompts, labels)
        answer: dict[str, Any] = Openrlhf().answer("", "", raise_first(reward.submit(samples).result()))
        return answer

    return reward_func


def slime(reward: Reward) -> Callable[..., Any]:
    """Return slime's `async fn(args, sample)`; with `--group-rm` it gets a list of samples."""
    _refuse_none(reward, "slime")

    async def rm(args: Any, sample: Any, **_: Any) -> Any:  # noqa: ARG001 (slime passes its arguments)
        group = sample if isinstance(sample, list) else [sample]
        samples = [
            as_sample(each.prompt, each.response, f"sample {n}", label=each.label)
            for n, each in enumerate(group)
        ]
        outcomes = await asyncio.wrap_future(reward.submit(samples))
        rewards = [scored.reward for scored in raise_first(outcomes)]
        return rewards if isinstance(sample, list) else rewards[0]

    return rm


def verl(reward: Reward) -> Callable[..., Any]:
    """Return verl's `async compute_score`. It gets no prompt, so the data set must have it in `extra_info`."""
    _refuse_none(reward, "verl")
    _refuse_group(reward, "verl")

    async def compute_score(
        data_source: str,  # noqa: ARG001 (verl passes it by name)
        solution_str: str,
        ground_truth: Any = None,
        extra_info: dict[str, Any] | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        info = extra_info or {}
        prompt = next((info[key] for key in _PROMPT_KEYS if key in info), None)
        if prompt is None:
            raise ValueError(
                f"extra_info: has no prompt ({', '.join(_PROMPT_KEYS)}), and verl does not pass it to a function: add "
                "it to the data set, or use the manager: reward.reward_manager.name=RewardManager"
            )
        return await verl_score(reward, as_sample(prompt, solution_str, "solution_str", label=ground_truth))

    return compute_score


async def verl_score(reward: Reward, sample: Sample) -> dict[str, Any]:
    """Return verl's score of a sample, with what its rollout files keep."""
    outcomes = await asyncio.wrap_future(reward.submit([sample]))
    (scored,) = raise_first(outcomes)
    stated = {} if scored.probability is None else {"probability": scored.probability}
    return {"score": scored.reward, "raw": scored.raw, "outside": float(scored.outside), **stated}


def swift(reward: Reward) -> type:
    """Return a class for ms-swift's `orms`, which it calls with completions and columns."""

    class RmcalibReward:
        """A reward of rmcalib."""

        def __init__(self, args: Any = None, **_: Any) -> None:
            self.args = args

        def __call__(
            self, completions: Sequence[Any], messages: Sequence[Any], **columns: Any
        ) -> list[float | None]:
            prompts = [_without_answer(each, f"sample {n}") for n, each in enumerate(messages)]
            step = getattr(columns.get("trainer_state"), "global_step", None)
            return reward(prompts, completions, step=step)

    RmcalibReward.__name__ = RmcalibReward.__qualname__ = identifier(reward.name)
    return RmcalibReward


def identifier(name: str) -> str:
    """Return the last part of a model's name as a Python name.

    >>> identifier("org/Skywork-Reward-V2")
    'Skywork_Reward_V2'
    """
    last = re.sub(r"\W+", "_", name.rstrip("/").rpartition("/")[2]).strip("_")
    return last if last.isidentifier() else f"reward_{last}"


def _without_answer(messages: Sequence[Any], where: str) -> Any:
    """Return the messages before the assistant's last one, which ms-swift has appended already."""
    ends = bool(messages) and messages[-1].get("role") == "assistant"
    return split_conversation(messages, where)[0] if ends else messages


def _column(columns: dict[str, Any], name: str, n: int) -> Sequence[Any]:
    values = columns.get(name)
    if values is None or len(values) != n:
        have = ", ".join(sorted(key for key, column in columns.items() if isinstance(column, list))) or "none"
        raise ValueError(f"label: the data set has no column {name!r} (has {have})")
    return values


def _refuse_none(reward: Reward, framework: str) -> None:
    if reward.on_error == "none":
        raise ValueError(f'on_error="none": {framework} does not understand None; use on_error="raise"')


def _refuse_group(reward: Reward, framework: str) -> None:
    if reward.meaning.needs_group:
        raise ValueError(
            f'output="p": {framework} asks for one response at a time, and this is P(best of its prompt); use '
            'output="logit", or a calibrator that was fitted on labels of single responses'
        )
