"""Evaluations of the same models on several benchmarks, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from rmcalib._util.terminal import clean_line
from rmcalib.judges import recipe_of_run, registry, why_no_calibration
from rmcalib.report.evaluation._evaluation import Evaluation
from rmcalib.report.several._joint import Joint, join_benchmarks
from rmcalib.scores import Scores

__all__ = ["join_evaluations"]


def join_evaluations(
    evaluations: Sequence[Evaluation], scores: Sequence[Scores], *, recipes: Iterable[str | Path] = ()
) -> Joint:
    """Put evaluations on several benchmarks side by side: does one temperature serve them all?

    Parameters
    ----------
    evaluations : sequence of Evaluation
        Results of :func:`rmcalib.evaluate`, of one or several models.
    scores : sequence of Scores
        The scores that each evaluation was made from, in the same order.
    recipes : iterable of paths
        YAML files that describe more models.

    Returns
    -------
    Joint
        The headline metrics of each model on each benchmark, and its temperatures.

    Examples
    --------
    >>> from rmcalib.report import evaluate
    >>> scores = [Scores.from_arrays([[2.0, 0.0], [0.0, 2.0]])] * 2
    >>> made = [evaluate(one, model="org/rm", resamples=20) for one in scores]
    >>> join_evaluations(made, scores).benchmarks
    ['unnamed-benchmark']
    """
    known = registry(recipes)
    found: dict[str, dict[str, Callable[[], Scores]]] = {}
    for one, own in zip(evaluations, scores, strict=True):
        if why_no_calibration(recipe_of_run(one.model, one.manifest, known)) is None:
            found.setdefault(clean_line(one.model), {})[clean_line(one.benchmark)] = partial(_itself, own)
    rows = [
        {**row, "model": clean_line(row["model"]), "benchmark": clean_line(row["benchmark"])}
        for one in evaluations
        for row in one.metrics
    ]
    return join_benchmarks(rows, found, settings=evaluations[0].settings)


def _itself(scores: Scores) -> Scores:
    return scores
