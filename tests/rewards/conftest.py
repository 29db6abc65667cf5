"""One Hub with tiny models for all tests of batches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hub.server import LoopbackHub
from tests.rewards.batch_hub import add_models


@pytest.fixture(scope="session")
def model_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    with LoopbackHub() as hub:
        add_models(hub, tmp_path_factory.mktemp("files"))
        yield hub
