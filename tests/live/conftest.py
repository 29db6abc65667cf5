"""Tests against a real vLLM. `make test-vllm` runs them; without VLLM_PYTHON they are not collected."""

from __future__ import annotations

import os

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
collect_ignore_glob = [] if os.environ.get("VLLM_PYTHON") else ["*.py"]
