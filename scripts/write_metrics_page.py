"""Write docs/metrics.md: the page about metrics, with tables from the catalogue.

python scripts/write_metrics_page.py [--check]
"""

from collections.abc import Iterable

from pages import write_tables

from rmcalib._util.display import markdown_table
from rmcalib.metrics import Metric, catalogue
from rmcalib.metrics.catalogue import metric_groups

BETTER = {"low": "lower", "high": "higher", "zero": "near 0", None: "–"}


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
    own = [metric for metric in catalogue().values() if not metric.source]
    write_tables("metrics.md", "catalogue", tables(own), __doc__)


if __name__ == "__main__":
    main()
