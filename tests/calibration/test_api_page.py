"""The reference pages list every public name of the core."""

import re
from pathlib import Path

import pytest

import rmcalib.calibration
import rmcalib.ranking

PAGES = Path(__file__).parents[2] / "docs" / "api"


@pytest.mark.parametrize("package", [rmcalib.calibration, rmcalib.ranking], ids=["calibration", "ranking"])
def test_the_page_has_every_public_name_in_order(package: object) -> None:
    name, names = package.__name__, package.__all__  # type: ignore[attr-defined]
    page = (PAGES / f"{name.rpartition('.')[2]}.md").read_text(encoding="utf-8")
    listed = re.findall(rf"^::: {re.escape(name)}\.(\w+)$", page, re.MULTILINE)
    assert listed == names
