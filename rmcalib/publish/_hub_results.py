"""Results for the Hub: the entries of a model repository's `.eval_results/*.yaml`."""

from __future__ import annotations

import re
from typing import Any

from rmcalib._util.hub import HubError, check_repo_id
from rmcalib.metrics import find_value
from rmcalib.report import HEADLINE, Evaluation

__all__ = ["eval_results", "is_on_hub"]


def eval_results(evaluation: Evaluation, *, source: str | None = None) -> list[dict[str, Any]]:
    """Return the headline metrics as entries of the Hub's `.eval_results`.

    An entry needs a data set of the Hub, so the list is empty if the benchmark is a local file. `task_id` is
    the name of the metric; the Hub shows the tasks that the data set lists. `source` is the URL of a page
    with more about the evaluation.

    >>> from rmcalib.report import evaluate
    >>> from rmcalib.scores import Scores
    >>> made = {"model": "org/rm", "benchmark": "org/bench", "benchmark_revision": "1" * 40}
    >>> report = evaluate(Scores.from_arrays([[2.0, 0.0], [0.0, 2.0]], manifest=made), resamples=20)
    >>> [entry["dataset"]["task_id"] for entry in eval_results(report)][:3]
    ['mean_confidence', 'accuracy', 'overconfidence']
    """
    manifest = evaluation.manifest
    revision = manifest.get("benchmark_revision")
    if not is_on_hub(evaluation.benchmark, revision):
        return []
    data = {"id": evaluation.benchmark, "revision": str(revision)}
    date = str((manifest.get("timings") or {}).get("finished") or "")
    entries = []
    for name in (*HEADLINE, "ece"):
        row = find_value(evaluation.metrics, name)
        if row is None or row["value"] is None:
            continue
        entry: dict[str, Any] = {
            "dataset": {**data, "task_id": name},
            "value": round(float(row["value"]), 6),
            "notes": _note(row, evaluation.settings.level),
        }
        if date:
            entry["date"] = date
        if source:
            entry["source"] = {"url": source}
        entries.append(entry)
    return entries


def is_on_hub(name: str, revision: object) -> bool:
    """Return whether a model or data set is on the Hub: it has an id `org/name` and a commit.

    >>> is_on_hub("org/rm", "1" * 40), is_on_hub("folder/rm", "a hash of its files"), is_on_hub("rm", None)
    (True, False, False)
    """
    try:
        check_repo_id(name)
    except HubError:
        return False
    return "/" in name and re.fullmatch(r"[0-9a-f]{40}", str(revision)) is not None


def _note(row: Any, level: float) -> str:
    limits = "" if row["low"] is None else f", {level:.0%} interval [{row['low']:.4f}, {row['high']:.4f}]"
    return f"rmcalib, {row['n']} {'prompt' if row['n'] == 1 else 'prompts'}{limits}"
