"""A calibrator: one temperature, the data it was fitted on, and what it makes of other rewards."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Gt, Lt

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib._util.files import json_hash, write_json
from rmcalib._util.storage import read_input
from rmcalib._util.texts import parse_json, typed
from rmcalib.calibration.clusters import mean_error
from rmcalib.calibration.maps import fit_sigmoid
from rmcalib.metrics.results import Shown
from rmcalib.metrics.views import Part, whole_part
from rmcalib.scores import Scores, load_scores
from rmcalib.scores.scale import Scale

if TYPE_CHECKING:
    from rmcalib.repair.calibration import Calibration
    from rmcalib.repair.decisions import Decisions

Positive = Annotated[float, Gt(0), Lt(float("inf"))]
FORMAT = 1
"""The version of the file format."""


@dataclass(frozen=True)
class CalibratorCheck:
    """Whether a calibrator holds on other scores: the result of `Calibrator.check`.

    Attributes
    ----------
    temperature, low, high : float
        The best temperature for the other scores, with its interval.
    n : int
        Number of prompts that it was fitted on.
    holds : bool or None
        Whether chance can explain the difference to the calibrator; None if the scores are those that it was
        fitted on, which cannot show that.
    threshold : float, optional
        The best b of a calibrator of single responses.
    """

    temperature: float
    low: float
    high: float
    n: int
    holds: bool | None
    threshold: float | None = None


@dataclass(frozen=True)
class Calibrator:
    """Turns rewards into probabilities: a temperature T that was fitted on labelled prompts.

    P(response j is the best of its prompt) = softmax(r/T)_j. With a threshold b, fitted on responses that are
    labelled one by one, also P(response j is correct) = σ((r_j − b)/T). Both are only valid for prompts like
    those of the fit. Use `check` before you use it on others.

    Parameters
    ----------
    temperature : float
        The number that rewards are divided by.
    low, high : float
        Limits of its interval.
    level : float
        Confidence level of the interval.
    threshold, threshold_low, threshold_high : float, optional
        The reward b at which a response is as likely correct as not, with its interval.
    covariance : 2 × 2 floats, optional
        Of the slope s and the intercept c in the log-odds s·(r − b)/T + c, if there is a threshold.
    model : str
        Name of the judge.
    fitted_on : mapping
        What it was fitted on: benchmark, revision, n (prompts), clusters, categories, a hash of the scores,
        the model's revision, the kind of judge.
    reference : tuple of float
        Quantiles of the rewards that it was fitted on, from the smallest to the largest.
    versions : mapping
        Versions of rmcalib, numpy and scipy.

    Examples
    --------
    >>> calibrator = Calibrator(2.0, 1.8, 2.3, model="org/rm", reference=(-1.0, 0.0, 1.0))
    >>> calibrator.apply(Scores.from_arrays([[4.0, 2.0]])).reward.tolist()
    [2.0, 1.0]
    >>> calibrator.percentile([0.5, 7.0]).tolist()
    [75.0, 100.0]
    """

    temperature: Positive
    low: float
    high: float
    level: Annotated[float, Gt(0), Lt(1)] = 0.95
    threshold: float | None = None
    threshold_low: float | None = None
    threshold_high: float | None = None
    covariance: tuple[tuple[float, float], tuple[float, float]] | None = field(default=None, repr=False)
    model: str = ""
    fitted_on: Mapping[str, Any] = field(default_factory=dict)
    reference: tuple[float, ...] = field(default=(), repr=False)
    versions: Mapping[str, str] = field(default_factory=dict, repr=False)

    def apply(self, scores: Scores) -> Scores:
        """Return the scores with rewards divided by the temperature; the manifest names the calibrator.

        With a threshold, (r − b)/T: their sigmoid is the probability that a response is correct.
        """
        moved = scores if self.threshold is None else replace(scores, reward=scores.reward - self.threshold)
        calibrated = moved.at_temperature(self.temperature)
        about = {
            "temperature": self.temperature,
            "threshold": self.threshold,
            "fitted_on": dict(self.fitted_on),
        }
        calibrated = replace(calibrated, manifest={**calibrated.manifest, "calibrator": about})
        if self.threshold is None:
            return calibrated
        return calibrated.with_scale(Scale("log_odds", "calibrated, response by response"))

    def check(self, scores: Scores) -> CalibratorCheck:
        """Fit other scores, which are not calibrated yet, and compare the result with this calibrator.

        >>> rewards = np.tile([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]], (40, 1))
        >>> check = Calibrator(1.0, 0.9, 1.1).check(Scores.from_arrays(rewards))
        >>> check.holds, round(check.temperature, 2)
        (False, 2.89)
        """
        part = labelled_part(scores, "one" if self.threshold is None else "labelled")
        if self.threshold is None:
            best = part.scale.temperature_interval(self.level)
            found = Calibrator(best.value, best.low, best.high)
        else:
            found = fit_pointwise(part, self.level)
        same = scores.content_hash() == self.fitted_on.get("scores")
        holds = None if same else _agree(self, found)
        return CalibratorCheck(found.temperature, found.low, found.high, len(part), holds, found.threshold)

    def percentile(self, rewards: Any) -> FloatArray:
        """Return the percentage of reference rewards below each reward (N,), half of equal ones included."""
        quantiles = np.asarray(self.reference, dtype=np.float64)
        rewards = np.asarray(rewards, dtype=np.float64)
        if not len(quantiles):
            return np.full(len(rewards), np.nan)
        values, index = np.unique(quantiles, return_inverse=True)
        levels = np.bincount(index, np.linspace(0, 100, len(quantiles))) / np.bincount(index)
        return np.interp(rewards, values, levels, left=0.0, right=100.0)

    def save(self, path: str | Path) -> Path:
        """Write the calibrator as JSON, with a digest of its content."""
        content = {"rmcalib_calibrator": FORMAT, **asdict(self)}
        return write_json(path, {**content, "sha256": json_hash(content)})

    @classmethod
    def load(cls, path: str | Path) -> Calibrator:
        """Read a file that `save` wrote; a ValueError says what is wrong with another one."""
        content = parse_json(read_input(path), str(path))
        if not isinstance(content, dict) or content.get("rmcalib_calibrator") != FORMAT:
            raise ValueError(f"{path}: not a calibrator; make one with `rmcalib calibrate`")
        if content.pop("sha256", None) != json_hash(content):
            raise ValueError(f"{path}: damaged, or changed by hand; make it again with `rmcalib calibrate`")
        return typed(cls, content, str(path))


def as_calibrator(given: Any) -> Calibrator:
    """Return a calibrator from what users have: one, the result of `calibrate`, or a file."""
    found = getattr(given, "calibrator", given)
    return found if isinstance(found, Calibrator) else Calibrator.load(found)


@dataclass(frozen=True, repr=False)
class Applied(Shown):
    """The result of `apply`: the input's rows with what their rewards mean.

    Attributes
    ----------
    calibrator : Calibrator
        What was applied.
    added : dict of arrays (rows of the input,)
        The new columns; see `apply`.
    given : dict
        The columns of the input.
    n : int
        Number of prompts.
    accepted : float or None
        The fraction of prompts whose first choice is accepted; None without a threshold.
    """

    calibrator: Calibrator
    added: dict[str, Any]
    given: dict[str, Any]
    n: int
    accepted: float | None = None

    @property
    def table(self) -> Any:
        """The input's rows and columns in their order, and the new columns: a pandas table."""
        import pandas

        return pandas.DataFrame({name: list(values) for name, values in {**self.given, **self.added}.items()})

    def save(self, path: str | Path) -> Path:
        """Write the table as .csv, .tsv, .jsonl or .parquet, by the ending of the name."""
        from rmcalib._util.files import csv_bytes, write_file

        ending = Path(path).suffix.lower()
        writers: dict[str, Callable[[Any], Any]] = {
            ".csv": lambda file: file.write(csv_bytes(self.table, guarded=False)),
            ".tsv": lambda file: file.write(csv_bytes(self.table, "\t", guarded=False)),
            ".jsonl": lambda file: self.table.to_json(file, orient="records", lines=True, force_ascii=False),
            ".parquet": lambda file: self.table.to_parquet(file, index=False),
        }
        if ending not in writers:
            raise ValueError(f"{path}: unknown ending; use one of {', '.join(writers)}")
        return write_file(path, writers[ending])

    def __repr__(self) -> str:
        """Return the numbers of rows and prompts."""
        rows = len(next(iter(self.added.values())))
        return f"Applied({rows} rows, {self.n} prompts, T = {self.calibrator.temperature:.3g})"


def apply(
    scores: Any,
    calibrator: Calibrator | Calibration | str | Path,
    *,
    decisions: Decisions | float | None = None,
    columns: str | Mapping[str, Any] | None = None,
    scale: str | None = None,
) -> Applied:
    """Say what rewards mean: probabilities, percentiles, and what to accept. Labels are not needed.

    Parameters
    ----------
    scores : Scores, DataFrame or path
        The rewards; see `load_scores`.
    calibrator : Calibrator, Calibration or path
        The result of `calibrate`, or its file.
    decisions : Decisions or float, optional
        The result of `decide` for calibrated scores, or its threshold.
    columns, scale
        As for `load_scores`.

    Returns
    -------
    Applied
        Its ``table`` has the rows and columns of the input in their order, and

        - ``probability``: P(the response is the best of its prompt) = softmax(r/T),
        - ``p_correct``: P(the response is correct) = σ((r − b)/T), if the calibrator has a threshold,
        - ``percentile``: the percentage of the calibrator's reference rewards below this one,
        - ``beats_typical``: P(it beats a typical response to its prompt), the mean of σ((r − r_j)/T) over the
          other responses of its prompt, or over the reference rewards if it has none,
        - ``decision``: "accept" if the prompt's first choice can be accepted, else "ask"; with ``decisions``.

        Where a row of the input has several responses (chosen and rejected), each new column has a suffix:
        ``probability_0``, ``probability_1``, ...

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"prompt": ["a", "b", "a"], "score": [2.0, 1.0, 0.0]})
    >>> found = apply(table, Calibrator(2 / np.log(3), 1.5, 2.5, reference=(0.0, 1.0, 2.0)), decisions=0.7)
    >>> found.table["probability"].round(3).tolist(), found.table["decision"].tolist()
    ([0.75, 1.0, 0.25], ['accept', 'accept', 'accept'])
    """
    from rmcalib.scores._load import load_with_rows

    calibrator = as_calibrator(calibrator)
    loaded = load_with_rows(scores, columns, scale=scale)
    own = loaded.scores
    if (reason := own.refusal("apply")) is not None:
        raise ValueError(f"{own.name}: rewards cannot become probabilities: {reason}")
    found: dict[str, Any] = {"probability": own.at_temperature(calibrator.temperature).probabilities}
    if calibrator.threshold is not None:
        from scipy.special import expit

        found["p_correct"] = expit((own.reward - calibrator.threshold) / calibrator.temperature)
    found["percentile"] = calibrator.percentile(own.reward)
    found["beats_typical"] = _beats_typical(own, calibrator)
    accepted = None
    if decisions is not None:
        threshold = decisions if isinstance(decisions, int | float) else decisions.choice.threshold
        surest = np.maximum.reduceat(found["probability"], own.offsets[:-1])
        accept = np.zeros(len(surest), dtype=bool) if threshold is None else surest >= threshold
        found["decision"] = np.repeat(np.where(accept, "accept", "ask"), np.diff(own.offsets))
        accepted = float(accept.mean())
    given = dict(loaded.table.columns)
    added = _by_input_row(found, loaded.row, own.response, len(loaded.table))
    twice = [name for name in added if name in given]
    if twice:
        raise ValueError(f"{loaded.table.source}: has a column {twice[0]!r} already; rename or remove it")
    return Applied(calibrator, added, given, own.n_items, accepted)


def _beats_typical(scores: Scores, calibrator: Calibrator) -> FloatArray:
    """Return the mean of σ((r − r_j)/T) over the other responses of a prompt, or the reference rewards: (N,)."""
    from scipy.special import expit

    sizes, result = np.diff(scores.offsets), np.empty(len(scores))
    for m in np.unique(sizes).tolist():
        rows = np.flatnonzero(np.repeat(sizes == m, sizes))
        own = scores.reward[rows].reshape(-1, m) / calibrator.temperature
        if m == 1:
            others = np.asarray(calibrator.reference, dtype=np.float64) / calibrator.temperature
            wins = sum((expit(own - other) for other in others), np.zeros(own.shape))
            result[rows] = (wins / (len(others) or np.nan)).ravel()
        else:
            wins = sum((expit(own - own[:, [j]]) for j in range(m)), np.zeros(own.shape))
            result[rows] = ((wins - 0.5) / (m - 1)).ravel()  # without itself
    return result


def _by_input_row(found: Mapping[str, Any], row: IntArray, response: IntArray, n: int) -> dict[str, Any]:
    """Put columns (N,) into the order of the input's rows, one column per response if a row has several."""
    import pandas

    several = len(np.unique(row)) < len(row)
    result: dict[str, Any] = {}
    for name, values in found.items():
        for number in np.unique(response).tolist() if several else [None]:
            mine = slice(None) if number is None else response == number
            column = pandas.Series(values[mine], index=row[mine]).reindex(range(n))
            result[name if number is None else f"{name}_{number}"] = column.to_numpy()
    return result


def fit_pointwise(part: Part, level: float = 0.95) -> Calibrator:
    """Fit T and b of P(correct) = σ((r − b)/T) on the labelled responses of a part, with prompts as clusters."""
    from scipy.special import expit

    known = ~np.isnan(part.label)
    r, y, cluster = part.reward[known], part.label[known], part.pointwise.cluster
    fit = fit_sigmoid(r, y)
    # In x = (r − b)/T at the fit, the log-odds are s·x + c with s = 1 and c = 0.
    x = fit.log_odds(r)
    p = np.asarray(expit(x))
    features = np.column_stack([x, np.ones(len(x))])
    curvature = (features * (p * (1 - p))[:, None]).T @ features
    moves = len(x) * (features * (y - p)[:, None]) @ np.linalg.pinv(curvature)
    # log T = −log s and b = b̂ − T·c, to the first order.
    of_scale, of_shift, of_both = (mean_error(one, cluster) for one in (*moves.T, moves.sum(axis=1)))
    scale, shift = of_scale.margin(level), of_shift.margin(level)
    together = (of_both.se**2 - of_scale.se**2 - of_shift.se**2) / 2
    t, b = fit.temperature, fit.threshold
    return Calibrator(
        temperature=t,
        low=float(t * np.exp(-scale)),
        high=float(t * np.exp(scale)),
        level=level,
        threshold=b,
        threshold_low=float(b - shift * t),
        threshold_high=float(b + shift * t),
        covariance=((of_scale.se**2, together), (together, of_shift.se**2)),
        fitted_on={"n": len(part), "clusters": len(x) if cluster is None else int(cluster.max()) + 1},
    )


def labelled_part(scores: Any, which: str = "one") -> Part:
    """Return the prompts with exactly one correct response ("one") or any label, or raise if there are none."""
    part = scores if isinstance(scores, Part) else whole_part(load_scores(scores))
    found = part.prompts(which)
    if found is None:
        what = "exactly one correct response" if which == "one" else "a label"
        raise ValueError(f"no prompt has {what}; give scores of labelled prompts")
    return found


def _agree(one: Calibrator, other: Calibrator) -> bool:
    """Return whether chance can explain the differences of two temperatures, and of two thresholds.

    The limits of the difference d of two logarithms of T are d ± √(a² + b²), where a and b are the distances of
    the two from their limits on the side that faces the other.

    >>> _agree(Calibrator(2.0, 1.7, 2.4), Calibrator(2.5, 2.1, 3.0))
    True
    >>> _agree(Calibrator(2.0, 1.9, 2.1), Calibrator(2.5, 2.3, 2.8))
    False
    """
    lower, upper = sorted((one, other), key=lambda each: each.temperature)
    if lower.temperature <= 0 or not np.isfinite(upper.temperature) or upper.low <= 0:
        agree = lower.high >= upper.low  # there is no distance in logarithms
    else:
        apart = np.log(upper.temperature / lower.temperature)
        room = np.log(lower.high / lower.temperature), np.log(upper.temperature / upper.low)
        agree = bool(apart <= math.hypot(*room))
    if one.threshold is None or other.threshold is None:
        return agree
    widths = [(each.threshold_high or 0.0) - (each.threshold_low or 0.0) for each in (one, other)]
    return agree and bool(abs(one.threshold - other.threshold) <= math.hypot(*widths) / 2)
