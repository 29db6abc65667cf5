"""Tests of judges load many small models of their own."""

from __future__ import annotations

import pytest

from rmcalib.judges import _files


@pytest.fixture(autouse=True)
def _trusted_tokenizers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not start a process for every tokenizer; `test_hostile` does."""
    if "test_hostile" not in request.node.nodeid:
        monkeypatch.setattr(_files, "try_tokenizer", lambda *_: None)
