"""What a user can read off stays the same: see tests/golden/frozen.py."""

from __future__ import annotations

import pytest

from tests.golden import frozen


@pytest.mark.parametrize("name", frozen.SOURCES)
def test_nothing_changed(name: str) -> None:
    found = frozen.differences(name, frozen.SOURCES[name]())
    assert found == [], "if it is meant: python -m tests.golden.frozen"
