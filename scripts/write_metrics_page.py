"""Write docs/metrics.md: the page about metrics, with tables from the catalogue.

python scripts/write_metrics_page.py [--check]
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from rmcalib._util.display import markdown_table
from rmcalib._util.files import write_text
from rmcalib.metrics import Metric, catalogue
from rmcalib.metrics.catalogue import metric_groups

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
BETTER = {"low": "lower", "high": "higher", "zero": "near 0", None: "–"}
START, END = "<!-- catalogue: start -->", "<!-- catalogue: end -->"


def updated(page: str) -> str:
    """Return the page with the tables of the catalogue between its two marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    own = [metric for metric in catalogue().values() if not metric.source]
    return f"{before}{START}\n\n{tables(own)}\n{END}{after}"


def tables(metrics: Iterable[Metric]) -> str:
    """Return one table per group of metrics, with name, meaning, unit and direction."""
    every = list(metrics)
    lines: list[str] = []
    for group, heading in metric_groups().items():
        rows = [metric for metric in every if metric.group == group]
        if rows:
            cells = [[f"`{one.name}`", one.meaning, one.unit or "–", BETTER[one.better]] for one in rows]
            table = markdown_table(["metric", "meaning", "unit", "better"], cells, escape=False)
            lines += [f"### {heading}", "", *table, ""]
    return "\n".join(lines)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is stale")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    if updated(page) == page:
        return
    if options.check:
        sys.exit(f"{PAGE} is stale: run python scripts/write_metrics_page.py")
    write_text(PAGE, updated(page))


if __name__ == "__main__":
    main()
