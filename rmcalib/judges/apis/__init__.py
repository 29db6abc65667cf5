"""The APIs of rewards: one file each, used by judges to ask servers and by `serve` to answer clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmcalib.judges.apis._api import Api
from rmcalib.judges.apis.llama_factory import LlamaFactory
from rmcalib.judges.apis.openrlhf import Openrlhf
from rmcalib.judges.apis.score import Score
from rmcalib.judges.apis.sglang import Sglang
from rmcalib.judges.apis.slime import Slime
from rmcalib.judges.apis.vllm import Vllm

APIS: tuple[Api, ...] = (Vllm(), Sglang(), Openrlhf(), Slime(), LlamaFactory(), Score())
"""A new API is a file and a row here; one that is asked is also a choice of `endpoint_kind`."""
UNKNOWN = Api()
"""A server with only a known chat API."""
PATHS = frozenset(path for api in APIS for path in api.served_at)


def api_of(path: str, body: Any) -> Api:
    """Return the API of a request to `serve`; a ValueError says what was expected."""
    if not isinstance(body, Mapping):
        raise ValueError(f"expected a JSON object, got {type(body).__name__}")
    here = [(keys, api) for api in APIS if path in api.served_at for keys in api.keys]
    for keys, api in here:
        if all(key in body for key in keys):
            return api
    expected = "; ".join(f"{', '.join(keys)} ({api.title})" for keys, api in here)
    begun = [keys for keys, _ in here if any(key in body for key in keys)]
    if begun:
        missing = " or ".join(", ".join(key for key in keys if key not in body) for keys in begun)
        raise ValueError(f"missing keys: {missing}; expected {expected}")
    raise ValueError(f"unknown keys: {', '.join(map(str, list(body)[:8])) or 'none'}; expected {expected}")
