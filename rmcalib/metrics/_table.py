"""All metrics of a model's scores, overall and by category, as one tidy table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, check_integer
from rmcalib.benchmarks import OfficialScore
from rmcalib.calibration import check_level
from rmcalib.metrics._catalogue import Metric, chosen_metrics, official_of
from rmcalib.metrics._forecasts import Forecasts, forecast, select_prompts, top_1_prompts
from rmcalib.metrics._statistic import NO_INTERVAL, Settings, Statistic
from rmcalib.scores import Scores

__all__ = [
    "OVERALL",
    "Part",
    "category_names",
    "find_value",
    "metric_rows",
    "parts_of",
    "rows_of",
    "statistic_of",
    "why_missing",
]

OVERALL = "overall"
"""The name of all prompts together in the column ``category``."""
_NO_LENGTHS = "lengths are unknown: the scores have no token counts, and the texts are not available"


def metric_rows(
    scores: Scores,
    *,
    model: str,
    benchmark: str,
    lengths: FloatArray | None = None,
    no_calibration: str | None = None,
    settings: Settings | None = None,
    metrics: Iterable[str] | None = None,
    official: Iterable[OfficialScore] = (),
) -> list[dict[str, Any]]:
    """Return the metrics of scores as tidy rows, one per category and metric.

    Parameters
    ----------
    scores : Scores
        The scores of one model.
    model, benchmark : str
        Their names in the rows.
    lengths : float array (N,), optional
        Lengths of the responses; the scores' token counts by default.
    no_calibration : str, optional
        Why the rewards are not utilities. Metrics that need probabilities are then empty, with this note.
    settings : Settings, optional
        Bins, resamples, level and seed.
    metrics : Iterable[str], optional
        Names of the metrics to compute; by default all of the catalogue.
    official : Iterable[OfficialScore]
        The scores that the benchmark's authors define (`rmcalib.benchmarks.official_score`).

    Returns
    -------
    list of dict
        Rows of model, benchmark, category, metric, value, low, high, n, note. Most metrics are computed on
        the prompts with exactly one correct response; see `Metric.prompts`. ``n`` counts those prompts.

    Examples
    --------
    >>> columns = {"item_id": ["a", "a", "b", "b"], "category": ["x"] * 4, "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [2.0, 0.0, 0.0, 1.0]}
    >>> rows = metric_rows(Scores.from_columns(columns), model="m", benchmark="b", metrics=["accuracy"])
    >>> [(row["category"], row["value"]) for row in rows]
    [('overall', 0.5), ('x', 0.5)]
    """
    settings = settings or Settings()
    check_level(settings.level)
    check_integer(settings.resamples, "resamples", 1)
    wanted = chosen_metrics(metrics)
    about = {"model": model, "benchmark": benchmark}
    return [
        {**about, **row}
        for part in parts_of(scores, lengths=lengths, official=official)
        for row in rows_of(part, wanted, settings, no_calibration)
    ]


class Part:
    """The prompts of one category, or all prompts, split by the kinds that metrics are computed on."""

    def __init__(
        self, name: str, everything: Forecasts, members: BoolArray, voted: Forecasts | None = None
    ) -> None:
        self.name = name
        self.is_everything = bool(members.all())
        one = members & top_1_prompts(everything)
        masks = {"one": one, "several": members & ~one}
        self._everything, self._masks = everything, {**masks, "all": members}
        self._made: dict[str, Forecasts] = {"all": everything} if name == OVERALL else {}
        self.has_pairs = everything.scores.beats is not None
        self._voted = voted
        self.only_tied = not everything.one_answer[members].any()

    def forecasts(self, prompts: str) -> Forecasts | None:
        """Return the prompts with "one" correct response, with "several", "all", or those with "votes".

        None if there are none.
        """
        if prompts == "votes":
            return self._voted
        if not self._masks[prompts].any():
            return None
        if prompts not in self._made:
            self._made[prompts] = select_prompts(self._everything, self._masks[prompts])
        return self._made[prompts]


def parts_of(
    scores: Scores, *, lengths: FloatArray | None = None, official: Iterable[OfficialScore] = ()
) -> Iterator[Part]:
    """Yield all prompts first, then each category.

    Prompts whose votes are tied have no correct response. They count only for metrics of votes.
    ``lengths`` (N,) are those of all responses; ``official`` as in `metric_rows`.
    """
    decided = scores.decided()
    if lengths is not None and decided is not scores:
        lengths = lengths[np.isin(scores.item_id, decided.item_id)]
    everything, has_votes = forecast(decided, lengths=lengths, official=official), scores.n_votes > 0
    voted = forecast(scores.take(has_votes)) if has_votes.any() else None
    for shown, name in category_names(everything).items():
        if name is None:
            yield Part(shown, everything, np.ones(len(everything), dtype=bool), voted)
            continue
        own = None if voted is None else voted.category == name
        part = select_prompts(voted, own) if voted is not None and own is not None and own.any() else None
        yield Part(shown, everything, everything.category == name, part)


def why_missing(metric: Metric, part: Part, no_calibration: str | None) -> str | None:
    """Return why a metric has no meaning for these scores; None if it has one.

    Rewards that are not utilities give no probabilities, but a judge may give those of pairs.
    """
    if "probabilities" in metric.needs or ("pairs" in metric.needs and not part.has_pairs):
        return no_calibration
    return None


def statistic_of(
    metric: Metric, part: Part, settings: Settings, no_calibration: str | None = None
) -> Statistic | None:
    """Compute a metric of a part.

    None if it needs several correct responses, votes or an official score, and there are none.
    """
    forecasts = part.forecasts(metric.prompts)
    if "official" in metric.needs and (forecasts is None or official_of(forecasts) is None):
        return None
    if forecasts is None:
        if metric.prompts in ("several", "votes"):
            return None
        tied = f"{part.name} has no single right answer"
        return Statistic.missing(0, tied if part.only_tied else "no prompt with one correct response")
    reason = why_missing(metric, part, no_calibration)
    if reason is not None:
        return Statistic.missing(len(forecasts), reason)
    if "lengths" in metric.needs and np.isnan(forecasts.length).any():
        return Statistic.missing(len(forecasts), _NO_LENGTHS)
    return metric.statistic(forecasts, settings)


def rows_of(
    part: Part, metrics: Sequence[Metric], settings: Settings, no_calibration: str | None = None
) -> list[dict[str, Any]]:
    """Return rows of category, metric, value, low, high, n, note: one per metric that the part has."""
    found = [(metric.name, statistic_of(metric, part, settings, no_calibration)) for metric in metrics]
    return [
        _tidy_row(part.name, name, statistic, settings) for name, statistic in found if statistic is not None
    ]


def _tidy_row(category: str, metric: str, statistic: Statistic, settings: Settings) -> dict[str, Any]:
    """Return one tidy row; the note says why an interval is missing."""
    note, found = statistic.note, statistic.interval(settings)
    if found is None and statistic.value is not None:
        note = note or (NO_INTERVAL if statistic.n == 1 and statistic.has_interval else statistic.no_limits)
    return {
        "category": category,
        "metric": metric,
        "value": statistic.value,
        "low": None if found is None else found.low,
        "high": None if found is None else found.high,
        "n": statistic.n,
        "note": note,
    }


def category_names(forecasts: Forecasts) -> dict[str, str | None]:
    """Return the names in tables and the categories they stand for: overall (None) first.

    >>> columns = {"item_id": ["a", "a"], "category": ["overall"] * 2, "response": [0, 1],
    ...            "is_correct": [True, False], "reward": [1.0, 0.0]}
    >>> category_names(forecast(Scores.from_columns(columns)))
    {'overall': None, 'overall (category)': 'overall'}
    """
    found = dict.fromkeys(forecasts.category.tolist())
    names: dict[str, str | None] = {OVERALL: None}
    return names | {f"{name} (category)" if name == OVERALL else name: name for name in found}


def find_value(
    rows: Iterable[Mapping[str, Any]], metric: str, category: str = OVERALL
) -> Mapping[str, Any] | None:
    """Return the row of a metric in a category.

    Parameters
    ----------
    rows : Iterable[Mapping[str, Any]]
        Rows with metric and category, such as those of `metric_rows`.
    metric, category : str
        Their names.

    Returns
    -------
    dict or None
        The first such row; None if there is none.

    Examples
    --------
    >>> find_value([{"metric": "ece", "category": "overall", "value": 0.1}], "ece")["value"]
    0.1
    """
    return next((row for row in rows if row["metric"] == metric and row["category"] == category), None)
