"""How every result shows itself: its document is made, and drawn, when someone asks for it."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.files import write_text

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def data_frame(rows: list[dict[str, Any]]) -> pandas.DataFrame:
    """Return rows as a pandas table; pandas is imported only then."""
    import pandas

    return pandas.DataFrame(rows)


class Shown:
    """Result objects compute nothing further: rows as a table, a page, a figure, the first screen in a notebook."""

    rows: list[dict[str, Any]]

    def document(self) -> Any:
        """Return what the result says, ready to be drawn."""
        raise NotImplementedError

    def table_rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``table``."""
        return self.rows

    @property
    def table(self) -> pandas.DataFrame:
        """The rows as a pandas table."""
        return data_frame(self.table_rows())

    def to_html(self, path: str | Path) -> Path:
        """Write the page: one self-contained file."""
        from rmcalib.report.document import to_html

        return write_text(path, to_html(self.document()))

    def plot(self, ax: Axes | None = None) -> Figure:
        """Return the first figure of the page as a matplotlib figure; drawn on ``ax``, if axes are given."""
        from rmcalib.report.document import Drawing

        name = type(self).__name__
        for block in self.document().first:
            if not isinstance(block, Drawing):
                continue
            if ax is not None and "ax" not in signature(block.draw).parameters:
                raise ValueError(f"ax: the figure of a {name} has several panels; call plot() without it")
            if (figure := block.draw() if ax is None else block.draw(ax=ax)) is not None:
                return figure
        raise ValueError(f"a {name} without intervals has no figure")

    def _repr_html_(self) -> str:
        from rmcalib.report.document import to_fragment

        return to_fragment(self.document())
