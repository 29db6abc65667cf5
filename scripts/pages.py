"""Pages of the documentation with tables that a script writes between two marks."""

import argparse
import sys
from pathlib import Path

from rmcalib._util.files import write_text

DOCS = Path(__file__).parents[1] / "docs"


def write_tables(name: str, mark: str, tables: str, description: str | None) -> None:
    """Replace what is between the marks of a page; with --check, only fail if that would change it."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=raw)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is stale")
    options = parser.parse_args()
    start, end = f"<!-- {mark}: start -->", f"<!-- {mark}: end -->"
    page = (DOCS / name).read_text(encoding="utf-8")
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    updated = f"{before}{start}\n\n{tables}\n{end}{after}"
    if updated == page:
        return
    if options.check:
        sys.exit(f"{DOCS / name} is stale: run python {sys.argv[0]}")
    write_text(DOCS / name, updated)
