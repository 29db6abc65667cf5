"""The model card of a calibrated model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmcalib._util.markdown import markdown_table
from rmcalib._util.terminal import clean_line
from rmcalib.repair._calibrate import METRIC_LABELS
from rmcalib.repair._calibrator import Calibrator

__all__ = ["model_card"]


def model_card(
    calibrator: Calibrator,
    model: str,
    revision: str,
    tensors: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    name: str,
) -> str:
    """Return a model card in Markdown: what was changed in the model, and which prompts were used.

    Parameters
    ----------
    calibrator : Calibrator
        Its temperature was applied.
    model, revision : str
        The original model: a Hub id, or a name without a slash for a local one.
    tensors : Sequence[str]
        Names of the tensors that were divided.
    rows : Sequence[Mapping[str, Any]]
        The rows of a `Calibration`; may be empty.
    name : str
        Name of the new model.

    Returns
    -------
    str

    Examples
    --------
    >>> card = model_card(Calibrator(2.0, 1.8, 2.3), "org/rm", "0" * 40, ["score.weight"], [], "me/rm-cal")
    >>> card.splitlines()[:2]
    ['---', 'base_model: org/rm']
    """
    local = "/" not in model
    about = calibrator.fitted_on
    original = _code(model) if local else f"[{model}](https://huggingface.co/{model})"
    where = f" of {_code(str(about['benchmark']))}" if about.get("benchmark") else ""
    at = f" at revision `{clean_line(str(about['revision']))}`" if about.get("revision") else ""
    n = f"{about['n']:,} prompts" if about.get("n") else "labelled prompts"
    header = [
        "---",
        *([] if local else [f"base_model: {model}"]),
        "library_name: transformers",
        "pipeline_tag: text-classification",
        "tags: [reward-model, calibration, rmcalib]",
        "---",
    ]
    lines = [
        f"# {clean_line(name)}",
        "",
        f"A calibrated copy of the reward model {original} (revision `{clean_line(revision)}`). Its rewards "
        f"are those of the original divided by the temperature **{calibrator.temperature:.6g}** "
        f"({calibrator.level:.0%} interval {calibrator.low:.3g} to {calibrator.high:.3g}), so that a softmax "
        "of them gives calibrated probabilities. The order of the responses and the accuracy do not change.",
        "",
        f"- Changed: {', '.join(_code(tensor) for tensor in tensors)}. Nothing else changes.",
        f"- Fitted on: {n}{where}{at}, with rmcalib {_version(calibrator)}.",
        "- A temperature is only valid for prompts like those it was fitted on. Check it on yours first: "
        f"`rmcalib eval --model {clean_line(name)} --benchmark yours.jsonl`.",
        "- License and terms are those of the original model.",
    ]
    return "\n".join([*header, *lines, *_table(rows)]) + "\n"


def _version(calibrator: Calibrator) -> str:
    return clean_line(str(calibrator.versions.get("rmcalib", "(unknown version)")))


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    found = {(row["stage"], row["metric"]): row for row in rows if row["category"] == "overall"}
    if not found:
        return []
    lines = [
        [label, *(_cell(found.get((stage, metric))) for stage in ("before", "after"))]
        for metric, label in METRIC_LABELS.items()
    ]
    return ["", *markdown_table(["", "before", "after, on held-out prompts"], lines)]


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None or row["value"] is None:
        return ""
    limits = "" if row["low"] is None else f" [{row['low']:.3f}, {row['high']:.3f}]"
    return f"{row['value']:.3f}{limits}"


def _code(text: str) -> str:
    """Return text as inline code: a name cannot add markup or lines."""
    return f"`{clean_line(text).replace('`', chr(39))}`"
