"""Are the tests, ceilings and intervals of people's votes valid?

Draws many data sets from known fractions of votes. Counts how often each 95% interval contains the value of
unlimited data, and how often the null test rejects a calibrated forecast. Compares the noise ceilings, which
are estimated from votes alone, with the scores of the true fractions. Writes results/votes.csv and
results/votes.md.

    python scripts/measure_votes.py [--runs 400] [--only NAME] [--fresh]
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from measuring import markdown, measure_all
from scipy.special import expit, softmax

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import ece
from rmcalib.calibration.votes import VoteForecasts, with_tie_outcome
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.measures import Settings as MetricSettings
from rmcalib.metrics.table import estimate_of
from rmcalib.metrics.views import whole_part
from rmcalib.scores import Scores

RESAMPLES = 199
MANY = 200_000  # prompts from which the values of unlimited data are computed
LOW = 0.93
CEILINGS = {
    "vote_agreement_ceiling": "agreement",
    "vote_log_loss_ceiling": "log loss",
    "vote_brier_ceiling": "Brier",
}
MEASURES = (
    "vote_agreement", "vote_gap", "vote_calibration_error", "vote_log_loss", "vote_brier", "vote_agreement_ceiling",
    "vote_log_loss_ceiling", "vote_log_loss_excess", "vote_brier_ceiling",
    "vote_brier_excess", "vote_disagreement_excess",
)  # fmt: skip
NU = 0.6  # of Davidson's model, where people find responses equally good


@dataclass(frozen=True)
class Setting:
    """Known shares of votes, and a forecast of them.

    knows: "shares" if the forecast is the true shares; "less" if it is their mean given a part of what
    decides them, so that it is calibrated although the shares vary around it. scale: the factor on its log
    odds, above 1 for over-confident forecasts. votes: for each prompt; 0 for 1 to 8.
    """

    name: str
    votes: int
    knows: Literal["shares", "less"] = "shares"
    scale: float = 1.0
    m: int = 2
    n: int = 500
    ties: Literal["davidson", "drop"] | None = None

    @property
    def is_calibrated(self) -> bool:
        """Whether the null is true."""
        return self.scale == 1.0

    def draw(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Forecasts (n, m), true shares among those who choose (n, m), and the share of ties (n,)."""
        known = rng.normal(scale=1.2, size=(n, self.m))
        if self.knows == "shares":
            shares = known_mean = softmax(known, axis=1)
        elif self.m == 2:
            lead = known[:, 0] - known[:, 1]
            first = expit(lead + rng.normal(scale=1.5, size=n))
            shares = np.column_stack([first, 1 - first])
            mean = mean_expit(lead, 1.5)
            known_mean = np.column_stack([mean, 1 - mean])
        else:
            known_mean = softmax(known, axis=1)
            drawn = rng.gamma(2.0 * known_mean) + 1e-12  # Dirichlet with this mean
            shares = drawn / drawn.sum(axis=1, keepdims=True)
        ties = np.zeros(n)
        if self.ties is not None:
            odds = NU * np.exp(np.log(shares).mean(axis=1))
            ties = odds / (1 + odds)
        return softmax(self.scale * np.log(known_mean), axis=1), shares, ties

    def vote(self, shares: FloatArray, ties: FloatArray, rng: np.random.Generator) -> IntArray:
        """Votes (n, m + 1), the ties last."""
        n = len(shares)
        voters = rng.integers(1, 9, size=n) if self.votes == 0 else np.full(n, self.votes)
        return rng.multinomial(voters, np.column_stack([shares * (1 - ties[:, None]), ties]))

    def scores(self, p: FloatArray, votes: IntArray) -> Scores:
        """Forecasts and votes as scores."""
        return Scores.from_arrays(np.log(p), votes=votes[:, :-1], ties=votes[:, -1])


SETTINGS = (
    *(Setting(f"equals the shares, {v} votes", v) for v in (2, 4, 50)),
    *(Setting(f"knows less, {v} votes", v, "less") for v in (2, 4, 50)),
    *(Setting(f"knows less, over-confident, {v} votes", v, "less", 2.0) for v in (2, 4, 50)),
    Setting("knows less, under-confident, 4 votes", 4, "less", 0.5),
    Setting("equals the shares, 1 vote", 1),
    Setting("knows less, 1 to 8 votes", 0, "less"),
    Setting("knows less, 4 votes, 150 prompts", 4, "less", n=150),
    Setting("equals the shares, four responses, 4 votes", 4, m=4),
    Setting("knows less, four responses, 4 votes", 4, "less", m=4),
    Setting("over-confident, four responses, 4 votes", 4, "less", 2.0, m=4),
    Setting("ties left out, equals the shares, 4 votes", 4, ties="drop"),
    Setting("ties by Davidson, equals the shares, 4 votes", 4, ties="davidson"),
    Setting("ties by Davidson, over-confident, 4 votes", 4, scale=2.0, ties="davidson"),
)


def mean_expit(x: FloatArray, spread: float) -> FloatArray:
    """The mean of expit(x + a normal number with this standard deviation), by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    return np.asarray(expit(x[:, None] + spread * nodes) @ (weights / weights.sum()))


def estimates(setting: Setting, scores: Scores, seed: int) -> Iterator[tuple[str, Any, bool | None]]:
    """Every number with its interval, and whether a null test rejects."""
    how = MetricSettings(resamples=RESAMPLES, seed=seed)
    part = whole_part(scores, ties=setting.ties or "drop", seed=seed)
    for name in MEASURES:
        found = estimate_of(catalogue()[name], part, how)
        interval = None if found is None else found.interval()
        if found is not None and interval is not None:
            test = found.test()
            yield name, interval, None if test is None else test.p_value <= 0.05


def truths(setting: Setting) -> dict[str, float]:
    """The values of unlimited data, from the true shares of many prompts."""
    rng = np.random.default_rng(12345)
    p, shares, ties = setting.draw(MANY, rng)
    votes = setting.vote(shares, ties, rng)
    width, q = setting.m, shares
    counted = votes[:, :-1].sum(axis=1) > 0
    flat = VoteForecasts(
        np.log(p[counted]).ravel(),
        votes[counted, :-1].ravel(),
        np.full(int(counted.sum()), width),
        np.zeros(int(counted.sum()) * width, dtype=bool),
    )
    if setting.ties == "davidson":
        q = np.column_stack([shares * (1 - ties[:, None]), ties])
        flat = with_tie_outcome(flat, votes[counted, -1])
        p = flat.probability.reshape(-1, width + 1)
        q = q[counted]
    rows = np.arange(len(p)), p[:, :width].argmax(axis=1)
    says, agree = p[rows], q[rows]
    entropy, pairs = -(q * np.log(q)).sum(axis=1), (q**2).sum(axis=1)
    return {
        "vote_agreement": agree.mean(),
        "vote_gap": (says - agree).mean(),
        "vote_calibration_error": 0.0 if setting.is_calibrated else ece(says, agree),
        "vote_log_loss": -(q * np.log(p)).sum(axis=1).mean(),
        "vote_brier": (1 + (p**2 - 2 * p * q).sum(axis=1)).mean(),
        "vote_agreement_ceiling": q[:, :width].max(axis=1).mean(),
        "vote_log_loss_ceiling": entropy.mean(),
        "vote_log_loss_excess": (-(q * np.log(p)).sum(axis=1) - entropy).mean(),
        "vote_brier_ceiling": (1 - pairs).mean(),
        "vote_brier_excess": ((p - q) ** 2).sum(axis=1).mean(),
        "vote_disagreement_excess": (pairs - agree).mean(),
    }


def measure(setting: Setting, runs: int) -> list[dict[str, Any]]:
    """Count over ``runs`` data sets: one row for each number."""
    start, true = time.process_time(), truths(setting)
    found: dict[str, list[tuple[float, float, float, bool | None]]] = {}
    for run in range(runs):
        rng = np.random.default_rng([run, SETTINGS.index(setting)])
        p, shares, ties = setting.draw(setting.n, rng)
        scores = setting.scores(p, setting.vote(shares, ties, rng))
        for name, interval, rejected in estimates(setting, scores, run):
            found.setdefault(name, []).append((interval.value, interval.low, interval.high, rejected))
    seconds = time.process_time() - start
    rows = []
    for name, results in found.items():
        value, low, high = np.array([result[:3] for result in results]).T
        held = (low - 1e-9 <= true[name]) & (true[name] <= high + 1e-9)
        tested = results[0][3] is not None
        rows.append(
            {
                "setting": setting.name,
                "prompts": setting.n,
                "votes": setting.votes or "1-8",
                "measure": name,
                "truth": round(float(true[name]), 5),
                "mean": round(float(value.mean()), 5),
                "error_of_mean": round(float(value.std(ddof=min(runs - 1, 1)) / np.sqrt(runs)), 6),
                "coverage": round(float(held.mean()), 4),
                "width": round(float((high - low).mean()), 5),
                "rejected": round(float(np.mean([result[3] for result in results])), 4) if tested else None,
                "runs": runs,
                "seconds": round(seconds, 1),
            }
        )
    return rows


def report(rows: list[dict[str, Any]], runs: int) -> str:
    """The text of results/votes.md."""
    by: dict[tuple[str, str], dict[str, Any]] = {(row["setting"], row["measure"]): row for row in rows}
    present = {row["setting"] for row in rows}
    settings = [setting.name for setting in SETTINGS if setting.name in present]
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    calibrated = {setting.name for setting in SETTINGS if setting.is_calibrated}
    tests = [
        {
            "forecast": name,
            "true error": f"{float(row['truth']):.3f}",
            "rejected": f"{float(row['rejected']):.3f}",
        }
        for name in settings
        if (row := by[name, "vote_calibration_error"])
    ]
    rates = [float(by[name, "vote_calibration_error"]["rejected"]) for name in settings if name in calibrated]
    ceilings = []
    for name in settings:
        line: dict[str, Any] = {"forecast": name}
        for measure_name, heading in CEILINGS.items():
            if (name, measure_name) in by:
                row = by[name, measure_name]
                line[f"{heading}: true shares"] = f"{float(row['truth']):.4f}"
                error = 2 * float(row["error_of_mean"])
                line[f"{heading}: ceiling"] = f"{float(row['mean']):.4f} ± {error:.4f}"
        if len(line) > 1:
            ceilings.append(line)
    coverage = []
    for name in settings:
        line = {"forecast": name}
        for measure_name in measures:
            held = by[name, measure_name]["coverage"] if (name, measure_name) in by else None
            shown = "" if held is None else f"{float(held):.3f}"
            low = held is not None and float(held) < LOW
            line[measure_name.removeprefix("vote_")] = f"**{shown}**" if low else shown
        coverage.append(line)
    worst = min(rows, key=lambda row: float(row["coverage"]))
    seconds = sum({row["setting"]: float(row["seconds"]) for row in rows}.values())
    return f"""# Validity of the metrics of people's votes

Made by `scripts/measure_votes.py`: {runs} simulated data sets per setting with known fractions of votes,
{RESAMPLES} resamples each, in {seconds / 60:.0f} minutes on one core. Data sets have 500 pairs of responses
unless the setting says otherwise.

**A calibrated forecast is rejected in {min(rates):.3f} to {max(rates):.3f} of the data sets at 5%. The lowest
coverage of a 95% interval is {float(worst["coverage"]):.3f} ({worst["measure"]}, {worst["setting"]}).**

- "Equals the shares": the forecast gives every response the true fraction of people who prefer it.
- "Knows less": the forecast is calibrated too. Of the votes on prompts with the forecast 0.7, 70% are for the
  response. But the fractions of single prompts vary around 0.7, so people who see the same prompt agree more
  often than the forecast says.
- Over-confident forecasts multiply the log odds by 2, under-confident ones by 0.5.

## The null test

How often the test of `vote_calibration_error` rejects at 5%. An exact test rejects 0.03 to 0.07 of {runs}
calibrated forecasts.

{markdown(tests)}

## The noise ceilings

The score of the true fractions, and the mean of the ceilings that are estimated from the votes alone (± two
standard errors). The ceiling of the Brier score is unbiased. With few votes per prompt, the ceilings of
agreement and log loss assume a Dirichlet distribution. The shares have no such distribution in any setting,
so the differences show the effect of that assumption.

{markdown(ceilings)}

## Coverage of the intervals

The fraction of data sets whose 95% interval contains the true value, which is that of unlimited data. Bold:
below {LOW}. The file `votes.csv` also has the true values, means and widths.

{markdown(coverage)}
"""


def main() -> None:
    measure_all(
        "votes", __doc__, {(setting.name, setting.n): setting for setting in SETTINGS}, measure, report
    )


if __name__ == "__main__":
    main()
