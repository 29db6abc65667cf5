"""The same model at several training steps, as a table and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmcalib.metrics import OVERALL, TRAINING_METRICS
from rmcalib.report._drawing import BAD, BLUE, GREY, INK, plain_axes

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["step_labels", "training_figure", "training_rows"]

Row = dict[str, Any]
_WIDE = 20  # temperatures that differ by more than this factor need a logarithmic axis


def step_labels(models: Sequence[str], manifests: Sequence[Mapping[str, Any]]) -> dict[int, int] | None:
    """Return the step of each run by its position, if the runs are steps of one training run; else None.

    >>> step_labels(["a", "a"], [{"step": 10}, {"step": 20}])
    {0: 10, 1: 20}
    >>> step_labels(["a", "b"], [{"step": 10}, {"step": 20}]) is None
    True
    """
    steps = [manifest.get("step") for manifest in manifests]
    integers = [step for step in steps if isinstance(step, int) and not isinstance(step, bool)]
    if len(set(models)) != 1 or len(steps) < 2 or len(set(integers)) != len(steps):
        return None
    return dict(enumerate(integers))


def training_rows(metrics: Sequence[Row], steps: Mapping[str, int]) -> list[Row]:
    """Return one row per step, the first step first: step, model, best, and each metric with its interval.

    ``best`` is True for the step that keeps the most information.

    Parameters
    ----------
    metrics : Sequence[Row]
        Tidy rows of all models (model, category, metric, value, low, high).
    steps : Mapping[str, int]
        The step of each model.
    """
    found = {(row["model"], row["metric"]): row for row in metrics if row["category"] == OVERALL}
    rows = []
    for model, step in sorted(steps.items(), key=lambda one: one[1]):
        row: Row = {"step": step, "model": model}
        for name in TRAINING_METRICS:
            own = found.get((model, name), {})
            row[name] = own.get("value")
            if name in ("ece_null_mean", "ece_p_value"):
                continue
            row |= {f"{name}_{end}": own.get(end) for end in ("low", "high")}
        rows.append(row)
    known = [row["kept_information"] for row in rows if row["kept_information"] is not None]
    return [
        {"step": row["step"], "best": bool(known) and row["kept_information"] == max(known), **row}
        for row in rows
    ]


def training_figure(rows: Sequence[Row]) -> Figure | None:
    """Draw metrics over the steps of a training run, with intervals; None without rows.

    >>> row = {"step": 1, **{name: 0.5 for name in TRAINING_METRICS}}
    >>> [axes.get_title() for axes in training_figure([row, {**row, "step": 2}]).axes]
    ['says and right', 'kept information', 'best temperature', 'ECE']
    """
    import pandas
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    if not rows:
        return None
    frame = (
        pandas.DataFrame(rows)
        .set_index("step")
        .drop(columns=["model", "best"], errors="ignore")
        .astype(float)
    )
    figure = Figure(figsize=(8.4, 5.2), dpi=130, layout="constrained")
    panels = figure.subplots(2, 2, sharex=True).ravel()
    said, kept, temperature, ece = panels
    _curves(said, frame, {"accuracy": ("right", BLUE), "mean_confidence": ("says", BAD)})
    said.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _curves(kept, frame, {"kept_information": ("", BLUE)})
    kept.axhline(0, color=GREY, linewidth=0.9, linestyle=":")
    _curves(temperature, frame, {"temperature": ("", BLUE)})
    temperature.axhline(1, color=GREY, linewidth=0.9, linestyle=":")
    found = frame["temperature"][frame["temperature"] > 0]
    if found.max() > _WIDE * found.min():
        temperature.set_yscale("log")
    _curves(ece, frame, {"ece": ("measured", BLUE), "ece_null_mean": ("mean if calibrated", GREY)})
    ece.set_ylim(bottom=0)
    titles = ("says and right", "kept information", "best temperature", "ECE")
    for axes, title in zip(panels, titles, strict=True):
        plain_axes(axes, grid="y")
        axes.set_title(title, fontsize=9, color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (said, ece):
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    for axes in (temperature, ece):
        axes.set_xlabel("step")
    return figure


def _curves(axes: Axes, frame: pandas.DataFrame, styles: Mapping[str, tuple[str, str]]) -> None:
    """Draw metrics over the steps, with intervals as bands; steps without a value are left out.

    ``styles`` has the name and colour of each metric; the line style and the marker depend on its place.
    """
    import seaborn

    names, colours = zip(*styles.values(), strict=True)
    lines = frame[list(styles)].set_axis(names, axis=1)
    seaborn.lineplot(
        lines, palette=list(colours), markers=list("ov"[: len(names)]), markeredgewidth=0, ax=axes
    )
    for name, (_, colour) in styles.items():
        if f"{name}_low" in frame:
            known = frame.dropna(subset=[name, f"{name}_low"])
            ends = known[f"{name}_low"], known[f"{name}_high"]
            axes.fill_between(known.index, *ends, color=colour, alpha=0.15, linewidth=0)
