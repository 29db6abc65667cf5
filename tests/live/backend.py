"""Judges that a real vLLM runs on this machine's CPU, by our own backend."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmcalib.judges import load_judge
from rmcalib.judges._judge import scored_chunks

# Compiling for a busy CPU takes minutes, and changes the speed of such small models little.
OPTIONS: dict[str, Any] = {
    "backend": "vllm",
    "python": os.environ.get("VLLM_PYTHON"),
    "vllm_options": "--enforce-eager",
}


@contextmanager
def running(model: Path, **options: Any) -> Iterator[Any]:
    """Yield a judge whose server runs until the block ends."""
    judge: Any = load_judge(str(model), **OPTIONS, **options)
    judge.identity()  # starts the server, and compares it with transformers
    try:
        yield judge
    finally:
        judge.close()


def rewards_of(judge: Any, items: Any) -> list[float]:
    return [reward for chunk in scored_chunks(judge, items) for one in chunk for reward in one.rewards]
