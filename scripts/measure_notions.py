"""Are the null tests and intervals of the ranking notions valid? Rejection and coverage rates.

Draws many data sets from a known truth. Calibrated forecasts should be rejected in 5% of the data sets,
however the events are chosen, and 95% intervals should contain the true error. Writes
results/statistics_notions.csv and results/statistics_notions.md.

    python scripts/measure_notions.py [--runs 800] [--processes 2]
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from measuring import parser_of, uncertainty

from rmcalib._util.arrays import IntArray
from rmcalib._util.display import markdown_table
from rmcalib._util.files import write_csv, write_text
from rmcalib.calibration import NotionResult, full_rank, sub_k, top_k
from rmcalib.calibration.binning import BinSums, ErrorOptions, bin_edges, bin_index, binned_error
from rmcalib.ranking import PartialRankings, RankingDistribution
from rmcalib.ranking.synthetic import Synthetic, synthetic_mallows, synthetic_plackett_luce

GENERATORS: dict[str, Callable[..., Synthetic]] = {
    "plackett-luce": synthetic_plackett_luce,
    "mallows": synthetic_mallows,
}
RESAMPLES = 199  # the two-sided p-value of full-rank needs them to reach 5% exactly
STRONG = ("full-rank", "strong sub-2")
BLOCK = 50  # data sets that one task simulates


class Case(NamedTuple):
    """One row of the table: a notion, how its events are chosen, and the data."""

    notion: str
    events: str
    model: str
    items: int
    instances: int
    confidence: float = 1.0


def cases() -> list[Case]:
    pl, mallows = GENERATORS
    calibrated = [
        *(Case(notion, "all", pl, 5, n) for notion in ("sub-2", "top-1") for n in (50, 300)),
        *(Case(notion, "all", mallows, 5, 50) for notion in ("sub-2", "top-1")),
        Case("top-3", "covering 95%", pl, 6, 60),
        Case("top-3", "covering 50%", pl, 6, 60),
        Case("top-3", "covering 95% of a training fold", pl, 6, 60),
        Case("sub-4", "the most frequent, above max_events", pl, 6, 60),
        Case("sub-2", "settled by top-2 lists, others left out", pl, 4, 60),
        Case("sub-2", "settled by top-2 lists, others marginalised", pl, 4, 60),
        *(Case("full-rank", "all", pl, 3, n) for n in (50, 300)),
        Case("full-rank", "all", mallows, 3, 50),
        Case("full-rank", "all", pl, 4, 200),
        Case("strong sub-2", "all", pl, 4, 100),
    ]
    off = [
        Case(notion, "all", model, 4, n, confidence)
        for notion in ("sub-2", "top-1", "full-rank")
        for model, n, confidence in (
            *((pl, n, confidence) for n in (60, 300) for confidence in (0.5, 3.0)),
            (mallows, 60, 3.0),
        )
    ]
    return calibrated + off


def ask(case: Case, data: Synthetic, train: IntArray) -> NotionResult:
    dist, orders = data.forecast, data.orders
    if case.notion == "full-rank":
        return full_rank(dist, orders)
    if case.notion == "strong sub-2":
        return full_rank(dist, orders, family="sub", k=2)
    family, k = case.notion.split("-")
    notion = sub_k if family == "sub" else top_k
    if "lists" in case.events:
        shape = np.minimum(np.argsort(orders, axis=1), 2)
        option: Any = "marginalise" if case.events.endswith("marginalised") else "leave_out"
        return notion(dist, PartialRankings(shape), int(k), open_events=option)
    ways: dict[str, dict[str, Any]] = {
        "all": {},
        "covering 95%": {"coverage": 0.95},
        "covering 50%": {"coverage": 0.5},
        "covering 95% of a training fold": {"coverage": 0.95, "counted_on": train},
        "the most frequent, above max_events": {"max_events": 50},
    }
    return notion(dist, orders, int(k), **ways[case.events])


def true_error(case: Case) -> float | None:
    """The error of infinitely many instances, from 80,000 of them and their true probabilities.

    That of full-rank depends on the given forecasts; ``true_excess`` computes it for each data set.
    """
    if case.confidence == 1 or case.notion == "full-rank":
        return 0.0
    error = ErrorOptions()
    sums: list[Any] = []
    for seed in range(20):
        rng = np.random.default_rng([777, seed])
        data = GENERATORS[case.model](4000, case.items, confidence=case.confidence, rng=rng)
        events = ask(case, data, data.orders).events
        p, q = (_marginals(dist, events, case.notion) for dist in (data.forecast, data.truth))
        index = bin_index(p, bin_edges(p, error)) + 10 * np.arange(len(events))
        shape = (len(events), 10)
        total = [
            np.bincount(index.ravel(), w, shape[0] * 10).reshape(shape) for w in (None, p.ravel(), q.ravel())
        ]
        sums.append(np.array(total, dtype=np.float64))
    return float(binned_error(BinSums(*np.sum(sums, axis=0)), error).mean())


def _marginals(dist: RankingDistribution, events: IntArray, notion: str) -> Any:
    return dist.sub(events) if notion.startswith("sub") else dist.top(events)


def true_excess(result: NotionResult, truth: RankingDistribution) -> float:
    """The expected excess of full-rank over its null mean, given the forecasts."""
    kernel: Any = result.uncertainty.kernel  # type: ignore[union-attr]
    probabilities = np.exp(truth.log_prob(result.events))[None]
    return float(kernel.expected_error(probabilities) - kernel.expected_error(kernel.p))


def measure(task: tuple[Case, int, int, float]) -> dict[str, float]:
    """Rejections, intervals that hold the truth, and their width, summed over a block of data sets.

    Calibrated forecasts have no interval here: by construction it excludes 0 if and only if the test rejects
    (for full-rank: only if).
    """
    case, first, runs, truth = task
    total = dict.fromkeys(("rejected", "covered", "excludes_0", "width", "contradiction", "value"), 0.0)
    for run in range(first, first + runs):
        rng = np.random.default_rng([case.instances, case.items, int(1000 * case.confidence), run])
        data = GENERATORS[case.model](case.instances, case.items, confidence=case.confidence, rng=rng)
        train = data.truth.sample(1, rng)[0]
        result = ask(case, data, train)
        null = result.null(resamples=RESAMPLES, rng=run)
        total["rejected"] += null.p_value <= 0.05
        total["value"] += null.excess if case.notion in STRONG else null.value
        if case.confidence == 1:
            continue
        interval = result.interval(resamples=RESAMPLES, rng=run)
        true = true_excess(result, data.truth) if case.notion == "full-rank" else truth
        total["covered"] += interval.low <= true <= interval.high
        excludes = not interval.low <= 0 <= interval.high
        total["excludes_0"] += excludes
        total["contradiction"] += excludes != (null.p_value <= 0.05)
        total["width"] += interval.high - interval.low
    return total


def row(case: Case, truth: float | None, parts: list[dict[str, float]], runs: int) -> dict[str, Any]:
    mean = {name: sum(part[name] for part in parts) / runs for name in parts[0]}
    off = None if case.confidence == 1 else True
    known = truth if case.notion != "full-rank" or case.confidence == 1 else None
    return {
        **case._asdict(),
        "true_error": None if known is None else round(known, 4),
        "mean_error": round(mean["value"], 4),
        "rejected_at_5_percent": round(mean["rejected"], 4),
        "interval_excludes_0": None if off is None else round(mean["excludes_0"], 4),
        "coverage": None if off is None else round(mean["covered"], 4),
        "mean_width": None if off is None else round(mean["width"], 4),
        "contradictions": None if off is None else round(mean["contradiction"], 4),
        "runs": runs,
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    head = ["notion", "events", "model", "items", "instances"]
    head += ["mean_error", "rejected_at_5_percent"]
    if rows[0]["coverage"] is not None:
        head[5:] = ["confidence", "true_error", *head[5:], "coverage", "mean_width"]
    cells = [["" if one[name] is None else one[name] for name in head] for one in rows]
    return "\n".join(markdown_table([name.replace("_", " ") for name in head], cells))


def main() -> None:
    parser = parser_of(__doc__, runs=800)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cases", type=int, help="only the first so many rows")
    options = parser.parse_args()
    chosen = cases()[: options.cases]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        truths = list(pool.map(true_error, chosen))
        rows = []
        # Fewer of the forecasts that are off: intervals take most of the time.
        sizes = [options.runs if case.confidence == 1 else options.runs // 8 for case in chosen]
        tasks = [
            [(case, start, min(BLOCK, runs - start), truth) for start in range(0, runs, BLOCK)]
            for case, truth, runs in zip(chosen, truths, sizes, strict=True)
        ]
        found = pool.map(measure, [task for blocks in tasks for task in blocks])
        for case, truth, runs, blocks in zip(chosen, truths, sizes, tasks, strict=True):
            rows.append(row(case, truth, [next(found) for _ in blocks], runs))
            print(rows[-1], flush=True)
    write_csv(options.output / "statistics_notions.csv", rows)
    calibrated = [one for one in rows if one["confidence"] == 1]
    others = [one for one in rows if one["confidence"] != 1]
    error = uncertainty(options.runs)
    text = f"""# Notions for rankings: are the tests and intervals valid?

Made by `scripts/measure_notions.py` from {options.runs} simulated data sets per row, an eighth as many in
the second table, with {RESAMPLES} resamples each. A rate near 0.05 or 0.95 is uncertain by about ±{error:.3f}
(±{error * 8**0.5:.3f} in the second table).

`confidence` is the factor between the log-utilities (or dispersions) of the forecast and of the truth: 1 is
calibrated. The errors of `full-rank` and `strong sub-2` are excesses over the null mean. Their true values
depend on the forecasts and differ between data sets.

## Calibrated forecasts

The null test should reject in 5% of the data sets. Interval and test use the same simulated data sets, so the
interval contains 0 if the test does not reject. Except for full-rank, it contains 0 only in this case.

{markdown(calibrated)}

## Over-confident and under-confident forecasts

The interval should contain the true error in 95% of the data sets.

{markdown(others) if others else ""}
"""
    write_text(options.output / "statistics_notions.md", text)
    print(text)


if __name__ == "__main__":
    main()
