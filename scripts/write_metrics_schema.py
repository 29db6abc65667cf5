"""Write docs/metrics.schema.json, the JSON schema of `metrics.json`, from the types of its parts.

python scripts/write_metrics_schema.py [--to FILE]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from rmcalib._util.files import write_json

DOCS = Path(__file__).parents[1] / "docs"
Number = float | None


class MetricValue(TypedDict):
    """One metric of one category. ``note`` says why there is no value or no interval."""

    category: str
    metric: str
    value: Number
    low: Number
    high: Number
    n: int
    note: str


class Group(TypedDict):
    """The gap of one group of prompts."""

    group_by: str
    group: str
    n: int
    says: Number
    right: Number
    gap: Number
    low: Number
    high: Number
    p_value: Number
    p_adjusted: Number
    pooled: Number
    spread: Number
    flagged: bool
    note: str


class Bin(TypedDict):
    """One point of the first screen's reliability diagram."""

    low: float
    high: float
    count: int
    confidence: float
    frequency: float
    band_low: float
    band_high: float


class PanelBin(Bin):
    """One point of a reliability diagram of all responses."""

    panel: str


class MetricsFile(TypedDict):
    """The numbers of one evaluation."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    model: str
    benchmark: str
    metrics: list[MetricValue]
    groups: list[Group]
    facts: dict[str, Any]
    first_choice: list[Bin]
    reliability: list[PanelBin]
    isotonic: list[dict[str, Any]]
    decisions: dict[str, Any] | None
    notes: list[str]
    manifest: dict[str, Any]
    made_from: str
    summary: str
    protocol: str
    bins: int
    resamples: int
    level: float
    seed: int


def metrics_file() -> TypeAdapter[MetricsFile]:
    """Return what checks the content of a ``metrics.json``, and knows its JSON schema."""
    return TypeAdapter(MetricsFile)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=DOCS / "metrics.schema.json")
    options = parser.parse_args()
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **metrics_file().json_schema()}
    write_json(options.to, schema)
    print(options.to)


if __name__ == "__main__":
    main()
