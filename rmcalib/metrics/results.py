"""How every result shows itself. This is the only place that imports the renderer, when a page is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas


class Shown:
    """Result objects compute nothing further: rows as a table, a page, a figure, the first screen in a notebook."""

    rows: list[dict[str, Any]]

    def table_rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``table``."""
        return self.rows

    @property
    def table(self) -> pandas.DataFrame:
        """The rows as a pandas table."""
        import pandas

        return pandas.DataFrame(self.table_rows())

    def to_html(self, path: str | Path) -> Path:
        """Write the page: one self-contained file."""
        from rmcalib.report.pages import write_page

        return write_page(self, path)

    def plot(self) -> Any:
        """Return the first figure of the page as a matplotlib figure."""
        from rmcalib.report.pages import plot

        return plot(self)

    def _repr_html_(self) -> str:
        from rmcalib.report.pages import first_screen

        return first_screen(self)
