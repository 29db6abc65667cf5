"""Where a model is over- or under-confident: its gap by group of prompts, corrected for looking at many.

The gap of a small group is mostly noise, and the largest of many is inflated. So the gaps are partially
pooled (Morris 1983): Ĝ_k = μ + τ²/(τ² + v_k) (G_k − μ), and flags are corrected by Holm's method.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, find_root
from rmcalib._util.display import count
from rmcalib.calibration.binning import ErrorOptions, bin_edges, bin_index
from rmcalib.calibration.clusters import design_effect, mean_error, too_few_clusters
from rmcalib.calibration.estimates import TOO_FEW_CLUSTERS
from rmcalib.calibration.events import Events, Independent
from rmcalib.calibration.intervals import mean_difference
from rmcalib.calibration.simulation import draw_sums, widening
from rmcalib.metrics.table import Row
from rmcalib.metrics.views import MOST_CATEGORIES, Part

GROUPINGS = ("category", "length", "responses")
"""The groupings that all scores have."""
_FEWEST = 10  # prompts: with fewer, intervals and flags have little meaning
_QUARTERS = ("shortest quarter", "second quarter", "third quarter", "longest quarter")


def audit(
    part: Part,
    group_by: Iterable[str],
    columns: Mapping[str, Mapping[str, str]] | None = None,
    *,
    level: float = 0.95,
) -> list[Row]:
    """Return one row per grouping and group: n, says, right, gap, low, high, pooled, p_value, p_adjusted, flagged.

    ``columns`` maps the name of a grouping to the group of each item id; see `check_groupings` for other names.
    """
    given = columns or {}
    rows: list[Row] = []
    for name in group_by:
        groups = _groups(part, name, given)
        if len(groups) < 2:
            continue
        of_grouping = [
            {"group_by": name, "group": group, **_gap(part, members, level)}
            for group, members in groups.items()
        ]
        usable = [row for row in of_grouping if row["spread"] is not None]
        gaps = pooled([row["gap"] for row in usable], [row["spread"] ** 2 for row in usable])
        for row, gap in zip(usable, gaps, strict=True):
            row["pooled"] = gap
        rows += of_grouping
    tested = [row for row in rows if row["p_value"] is not None]
    for row, adjusted in zip(tested, holm([row["p_value"] for row in tested]), strict=True):
        row["p_adjusted"], row["flagged"] = adjusted, adjusted <= round(1 - level, 12)
    return rows


def check_groupings(names: Iterable[str], columns: Iterable[str]) -> None:
    """Raise a ValueError if a grouping is unknown."""
    have = [*GROUPINGS, *columns]
    for name in names:
        if name not in have:
            raise ValueError(f"group by: unknown {name!r} (have: {', '.join(have)})")


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's method, which controls the probability of any false alarm."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return [float(value) for value in adjusted]


def pooled(values: Sequence[float], variances: Sequence[float]) -> list[float]:
    """Return values shrunk towards their common mean: μ + τ²/(τ² + v)(x − μ), with τ² by the method of moments."""
    x, v = np.asarray(values, dtype=np.float64), np.maximum(np.asarray(variances, dtype=np.float64), 1e-12)
    if len(x) < 3:
        return [float(value) for value in x]
    spread = 0.0
    for _ in range(100):  # the weights of μ depend on τ²
        weight = 1 / (v + spread)
        mean = float((weight * x).sum() / weight.sum())
        k = len(x)
        moved = float((weight * (k / (k - 1) * (x - mean) ** 2 - v)).sum() / weight.sum())
        if abs(max(moved, 0.0) - spread) < 1e-12:
            break
        spread = max(moved, 0.0)
    shrunk = mean + spread / (spread + v) * (x - mean)
    return [float(value) for value in shrunk]


def cancelling(events: Events, *, bins: int = 10, resamples: int = 1000, seed: int = 0) -> float:
    """Return the p-value of the hypothesis that no errors of different signs cancel in the gap.

    The statistic is Σ_b |error of bin b| − |Σ_b error of bin b|, which is 0 if all errors have one sign. Its
    distribution is simulated where it is largest without cancelling: the stated probabilities are moved by a
    constant in log-odds to the observed frequency, and then every bin is right.
    """
    from scipy.special import expit, logit

    p, y = events.p, events.y
    index = bin_index(p, bin_edges(p, ErrorOptions(bins=bins)))
    cells = Independent(p).alternatives(index, bins)

    def excess(p: FloatArray, happened: FloatArray) -> FloatArray:
        """Return the statistic of forecasts (n,) and sums of outcomes (..., B)."""
        errors = np.bincount(index, p, bins) - happened
        return np.asarray(np.abs(errors).sum(axis=-1) - np.abs(errors.sum(axis=-1)))

    odds = logit(np.clip(p, 1e-12, 1 - 1e-12))
    target = float(np.clip(y.mean(), 0.5 / len(y), 1 - 0.5 / len(y)))
    moved = expit(odds + find_root(lambda shift: float(expit(odds + shift).mean()) - target, -60.0, 60.0))
    rng = np.random.default_rng(seed)
    ends = [Independent(moved).probabilities()]
    happened, _ = draw_sums(cells, ends, (), resamples=resamples, most=0, rng=rng)
    drawn = excess(moved, happened)
    wider = widening(
        design_effect((moved - y)[:, None], np.ones((len(y), 1)), events.cluster), len(drawn), rng
    )
    drawn = drawn if wider is None else drawn * wider
    observed = float(excess(p, np.bincount(index, y, bins).astype(np.float64)))
    return float((1 + (drawn >= observed - 1e-9).sum()) / (resamples + 1))


def _gap(part: Part, members: BoolArray, level: float) -> Row:
    """Return the gap of some prompts (n,)."""
    some = part.take(members)
    n, says, right = len(some), some.first_choice.p, some.first_choice.y
    row: Row = {"n": n, "says": float(says.mean()), "right": float(right.mean())}
    row["gap"] = row["says"] - row["right"]
    row |= dict.fromkeys(("low", "high", "p_value", "p_adjusted", "pooled", "spread")) | {"flagged": False}
    if n < _FEWEST:
        return row | {"note": f"fewer than {_FEWEST} prompts"}
    if too_few_clusters(some.cluster):
        return row | {"note": TOO_FEW_CLUSTERS}
    if_right, if_wrong = (says - outcome.first_choice.y for outcome in (some.if_right, some.if_wrong))
    interval = mean_difference(
        right, says, level=level, base=if_right, others=[if_wrong], cluster=some.cluster
    )
    error = mean_error(says - right, some.cluster).se
    spread = max(error, (interval.high - interval.low) / 4 if n < 50 else 0.0)
    return row | {
        "low": interval.low,
        "high": interval.high,
        "p_value": interval.p_value,
        "spread": spread,
        "note": "",
    }


def _groups(part: Part, name: str, columns: Mapping[str, Mapping[str, str]]) -> dict[str, BoolArray]:
    """Return which prompts (n,) are in each group, in the order of the table."""
    if name in columns:
        ids = part.scores.item_id[part.starts].tolist()
        of = np.array([columns[name].get(value, "") for value in ids], dtype=object)  # "": it has no group
        # Numbers by size, others by name.
        ordered = sorted(
            set(of) - {""}, key=lambda value: (int(value) if value.isdecimal() else np.inf, value)
        )
        if len(ordered) > MOST_CATEGORIES:
            raise ValueError(
                f"group by: {name!r} has {len(ordered):,} groups; at most {MOST_CATEGORIES} are measured: name a "
                "column with fewer"
            )
        return {group: of == group for group in ordered}
    if name == "category":
        return {group: part.category == group for group in part.categories}
    if name == "responses":
        return {count(m, "response"): part.sizes == m for m in np.unique(part.sizes).tolist()}
    length = part.of_first_choice(part.length)
    if np.isnan(length).any():
        raise ValueError(
            "group by: 'length' needs the lengths of the responses: give the benchmark of the scores"
        )
    quarter = np.searchsorted(np.quantile(length, [0.25, 0.5, 0.75]), length, side="left")
    return {_QUARTERS[i]: quarter == i for i in np.unique(quarter).tolist()}
