"""Models on several benchmarks, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmcalib._util.display import number, points, temperature_text
from rmcalib._util.terminal import add_row, clean_line, open_console, print_table, table

if TYPE_CHECKING:
    from rmcalib.report import Joint

__all__ = ["print_joint"]


def print_joint(joint: Joint) -> None:
    """Print each model on each benchmark: the gap, what is lost, the best temperature, and the verdict."""
    from rich.text import Text

    terminal = open_console()
    level = f"{joint.settings.level:.0%} interval"
    temperatures = {(row["model"], row["benchmark"]): row for row in joint.temperatures}
    for row in joint.models:
        model = row["model"]
        terminal.print(Text(f"\n{clean_line(model)}", style="bold"))
        shown = table("benchmark", "gap in points", "lost\ninformation", level, "best T", level, gap=1)
        for name in joint.benchmarks:
            gap, lost = (joint.value(model, name, key) for key in ("overconfidence", "lost_information"))
            best = temperatures.get((model, name))
            if gap is None and lost is None and best is None:
                continue
            around = "–" if lost is None else f"{number(lost['low'])} to {number(lost['high'])}"
            limits = (
                "–"
                if best is None
                else f"{temperature_text(best['low'])} to {temperature_text(best['high'])}"
            )
            add_row(
                shown,
                name,
                points(gap),
                "–" if lost is None else number(lost["value"]),
                around,
                temperature_text(None if best is None else best["temperature"]),
                limits,
            )
        print_table(terminal, shown)
        terminal.print(Text(clean_line(row["words"])))
    terminal.print(Text(f"\n{joint.summary}"))
    for note in joint.notes:
        terminal.print(Text(f"* {clean_line(note)}", style="dim"))
