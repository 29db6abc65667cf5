"""Make a judge from a language model and the user's options."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rmcalib.judges._generative.chat_api import ChatApi
from rmcalib.judges._generative.judge import DEFAULT_VOTES, GenerativeJudge
from rmcalib.judges._generative.local import LocalChat
from rmcalib.judges._generative.models import ChatModel
from rmcalib.judges._generative.prompts import BUILT_IN, JudgePrompt, read_prompt
from rmcalib.judges._http import CONCURRENCY, TIMEOUT, open_client
from rmcalib.judges._judge import Judge
from rmcalib.judges._model_files import check_model_name
from rmcalib.judges._options import LoadOptions, check_options, refuse_local_options

__all__ = ["JUDGES", "load_generative"]

JUDGES = ("letter", "yes-no", "rating", "votes", "rewardbench2")
"""The ways in which a language model can judge: names of the built-in prompts."""

_ASKS = {"letter": "best", "yes-no": "correct", "rating": "rating"}
_OWN = ("judging", "judge_prompt", "votes", "placements", "judge_seed", "max_characters")
_SERVED = ("endpoint", "served_name", "api_key_env", "concurrency", "timeout")


def load_generative(name: str, **options: Any) -> Judge:
    """Return a language model as a judge: behind an `endpoint`, or loaded here with `LoadOptions`."""
    served = options.get("endpoint") is not None
    loading = tuple(field.name for field in dataclasses.fields(LoadOptions))
    if served:
        refuse_local_options(options, ("recipe", "recipes"))
    for option in ("endpoint_kind", "tokenize_here"):
        if option in options:
            raise ValueError(f"{option}: has no effect on a language model that judges")
    check_options(options, (*_OWN, *_SERVED, *loading))
    if options.get("compile"):
        raise ValueError("compile: has no effect on a language model that judges")
    kind = options.get("judging")
    if kind not in JUDGES:
        raise ValueError(f"judging: unknown {kind!r} (have: {', '.join(JUDGES)})")
    prompt = read_prompt(options.get("judge_prompt") or BUILT_IN / f"{kind}.yaml")
    _check_kind(kind, prompt, options.get("judge_prompt"))
    samples = any(question.answer == "text" for question in prompt.questions)
    if options.get("votes") is not None and not samples:
        raise ValueError(f"votes: has no effect: --judge {kind} reads log-probabilities and takes no samples")
    if options.get("placements") is not None and not any(q.asks == "best" for q in prompt.questions):
        raise ValueError(f"placements: has no effect: --judge {kind} shows one response at a time")
    chat = _chat(check_model_name(name) if not served else name, options, prompt)
    return GenerativeJudge(
        name,
        chat,
        prompt,
        votes=DEFAULT_VOTES if options.get("votes") is None else options["votes"],
        placements=options.get("placements"),
        seed=int(options.get("judge_seed") or 0),
        max_characters=options.get("max_characters"),
    )


def _chat(name: str, options: dict[str, Any], prompt: JudgePrompt) -> ChatModel:
    if options.get("endpoint") is None:
        given = {key: value for key, value in options.items() if key not in _OWN and key != "endpoint"}
        for option in given:
            if option in _SERVED:
                raise ValueError(f"{option}: has no effect without an endpoint")
        return LocalChat(name, LoadOptions.of(**given))
    workers = int(options.get("concurrency", CONCURRENCY))
    client = open_client(
        options["endpoint"],
        api_key_env=options.get("api_key_env"),
        timeout=float(options.get("timeout", TIMEOUT)),
        concurrency=workers,
    )
    logprobs = any(question.answer == "token" for question in prompt.questions)
    return ChatApi(name, client, served_name=options.get("served_name"), workers=workers, logprobs=logprobs)


def _check_kind(kind: str, prompt: JudgePrompt, path: str | Path | None) -> None:
    """Raise a `ValueError` if a prompt file does not fit `--judge`."""
    wanted, answer = _ASKS.get(kind), {"rewardbench2": None, "votes": "text"}.get(kind, "token")
    for question in prompt.questions:
        if wanted is not None and question.asks != wanted:
            raise ValueError(
                f"{path}: asks: --judge {kind} needs a prompt with {wanted!r}, not {question.asks!r}"
            )
        if answer is not None and question.answer != answer:
            raise ValueError(f"{path}: answer: --judge {kind} needs {answer!r}, not {question.answer!r}")
