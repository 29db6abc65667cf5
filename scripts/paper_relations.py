"""The paper's two diagrams as code: which notion of calibration implies which, and which does not.

With the forecasts fixed, every notion is a set of linear equations for the true distributions. Notion A
implies notion B for these forecasts if the equations of B follow from those of A, which is a question of
rank. If they do not follow, a step in a direction that A does not see gives a true distribution under which A
holds and B fails. ``population_error`` checks it independently.

    python scripts/paper_relations.py   # checks results/relations.csv, or writes it; draws results/hierarchy.png
"""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import null_space
from scipy.optimize import least_squares
from threadpoolctl import threadpool_limits

from rmcalib.ranking import Mallows, PlackettLuce, all_rankings
from rmcalib.ranking.events import Family, all_events, occurs, occurs_unchecked, unique_rows

Array = NDArray[np.float64]
Notion = dict[str, Any]

_SAME = 1e-9
SAID = ["m", "k", "from", "to", "where", "paper", "model", "counterexample", "agrees"]
"""The columns of the table that are the same on every machine; the sizes of errors depend on the direction found."""


@dataclass(frozen=True)
class Relation:
    """What the paper says about two notions for m items: ``implies`` or not."""

    m: int
    k: int
    source: str
    target: str
    implies: bool
    where: str


def notion(name: str, k: int) -> Notion:
    """Return the arguments of ``population_error`` for a name such as "rankwise sub-k" or "top-k"."""
    strong = not name.startswith("rankwise")
    if name in ("full-rank", "rankwise"):
        return {"strong": strong}
    return {"strong": strong, "family": "sub" if "sub" in name else "top", "k": k}


def relations(m: int) -> list[Relation]:
    """Return every arrow of both diagrams for m items, with the values of k that the theorems state."""
    sub, top = range(2, m), range(1, m - 1)
    arrows: list[tuple[str, str, bool, Any, str]] = [
        ("full-rank", "rankwise", True, [m], "Theorem 4.1"),
        ("full-rank", "sub-k", True, range(2, m + 1), "Theorem 4.2 (i)"),
        ("full-rank", "top-k", True, range(1, m + 1), "Theorem 4.2 (ii)"),
        ("sub-k", "rankwise sub-k", True, range(2, m + 1), "Theorem 4.3 (i)"),
        ("top-k", "rankwise top-k", True, range(1, m + 1), "Theorem 4.3 (ii)"),
        ("top-k", "full-rank", True, [m - 1], "Corollary, top-(m-1)"),
        ("top-k", "sub-k", True, [m - 1], "Theorem, top-k, not sub-k: k = m-1"),
        ("rankwise", "full-rank", False, [m], "rankwise, not full-rank"),
        ("sub-k", "top-k", False, sub, "sub-k, not top-k"),
        ("top-k", "sub-k", False, [k for k in top if k > 1], "top-k, not sub-k"),
        ("sub-k", "full-rank", False, sub, "sub-k, not full-rank"),
        ("top-k", "full-rank", False, top, "top-k, not full-rank"),
        ("rankwise", "sub-k", False, sub, "rankwise, not sub-k"),
        ("rankwise", "top-k", False, top, "rankwise, not top-k"),
        ("sub-k", "rankwise", False, sub, "sub-k, not rankwise"),
        ("top-k", "rankwise", False, top, "top-k, not rankwise"),
        ("rankwise sub-k", "rankwise top-k", False, sub, "rankwise sub-k, not rankwise top-k"),
        ("rankwise top-k", "rankwise sub-k", False, sub, "rankwise top-k, not rankwise sub-k"),
        ("rankwise sub-k", "rankwise", False, sub, "rankwise sub-k, not rankwise"),
        ("rankwise top-k", "rankwise", False, top, "rankwise top-k, not rankwise"),
        ("rankwise sub-k", "sub-k", False, sub, "rankwise sub-k, not sub-k"),
        ("rankwise top-k", "top-k", False, top, "rankwise top-k, not top-k"),
    ]
    return [Relation(m, k, a, b, implies, where) for a, b, implies, ks, where in arrows for k in ks]


def population_error(
    orders: Any,
    truth: NDArray[Any],
    forecast: NDArray[Any],
    *,
    strong: bool,
    family: Family = "top",
    k: int | None = None,
) -> Any:
    """Return the population error of one notion, which is zero if and only if the model is calibrated.

    ``truth`` and ``forecast`` (X, R) are the probabilities of the rankings ``orders`` (R, m) for each
    instance; all instances are equally likely. ``strong`` conditions on the whole marginal distribution,
    otherwise on the probability of one event: instances with equal forecasts are pooled. The error is Σ over
    events of E |P(event | forecast) − forecast|, averaged over sets of items for sub-k. With fractions (object
    arrays) it is exact.
    """
    orders = np.asarray(orders)
    n_items, exact = orders.shape[1], truth.dtype == object
    k = n_items if k is None else k
    mass = Fraction(1, len(truth)) if exact else 1 / len(truth)
    events = all_events(n_items, k)
    happens = occurs_unchecked(orders, events, family).astype(int)
    # Fractions can be multiplied by integers, but not by booleans.
    happens = happens.astype(object) if exact else happens.astype(np.float64)
    true, predicted = truth @ happens, forecast @ happens
    which = np.zeros(len(events), dtype=np.int64)
    if family == "sub" and k < n_items:
        _, which = unique_rows(np.sort(events, axis=1), n_items)
    total = mass * 0
    for number in np.unique(which):
        columns = np.flatnonzero(which == number)
        for given in [columns] if strong else columns[:, None]:
            total = total + _conditional_error(true[:, given], predicted[:, given], mass)
    return total / (int(which.max()) + 1)


def _conditional_error(truth: NDArray[Any], forecast: NDArray[Any], mass: Any) -> Any:
    """Σ over groups of equal forecast rows of |Σ mass · (truth − forecast)|, summed over columns."""
    total = mass * 0
    left = np.ones(len(forecast), dtype=bool)
    while left.any():
        distance = np.abs(forecast - forecast[int(np.argmax(left))])
        same = distance == 0 if forecast.dtype == object else distance < _SAME
        group = left & same.astype(bool).all(axis=1)
        gap = mass * (truth[group] - forecast[group]).sum(axis=0)
        total = total + np.abs(gap).sum()
        left &= ~group
    return 0.0 if isinstance(total, float) and total < _SAME else total


def equations(forecast: Array, asked: Notion) -> Array:
    """Return the rows (equations, X·R) of a notion: each row times (truth − forecast) must be 0."""
    n, n_rankings = forecast.shape
    m = next(m for m in range(2, 9) if len(all_rankings(m)) == n_rankings)
    k, family = asked.get("k", m), asked.get("family", "top")
    events = all_events(m, k)
    happens = occurs(all_rankings(m), events, family).astype(float)
    marginals = forecast @ happens
    sets = np.unique(np.sort(events, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    whole = family == "top" or k == m  # all events are alternatives of one another
    rows = []
    for number in [0] if whole else np.unique(sets):
        columns = np.arange(len(events)) if whole else np.flatnonzero(sets == number)
        for given in [columns] if asked["strong"] else columns[:, None]:
            left = np.ones(n, dtype=bool)
            while left.any():
                same = np.abs(marginals[:, given] - marginals[np.argmax(left), given]) < _SAME
                group = left & same.all(axis=1)
                rows += [np.outer(group, happens[:, event]).reshape(-1) for event in given]
                left &= ~group
    return np.array(rows) / n


def counterexample(forecast: Array, source: Notion, target: Notion) -> Array | None:
    """Return a truth (X, R) with which ``source`` holds and ``target`` fails, or None if there is none."""
    n, n_rankings = forecast.shape
    sums = np.kron(np.eye(n), np.ones(n_rankings))
    unseen = null_space(np.concatenate([equations(forecast, source), sums]), rcond=1e-9)
    if not unseen.shape[1]:
        return None
    effect = equations(forecast, target) @ unseen
    _, sizes, directions = np.linalg.svd(effect, full_matrices=False)
    if sizes[0] < 1e-7:
        return None
    step = (unseen @ directions[0]).reshape(forecast.shape)
    with np.errstate(divide="ignore"):
        length = np.where(step < 0, -forecast / step, np.inf).min()
    truth = np.clip(forecast + length * step, 0, None)
    result: Array = truth / truth.sum(axis=1, keepdims=True)
    return result


def general_forecasts(m: int, rng: np.random.Generator) -> Array:
    """Return forecasts of six instances that give many rankings one of two probabilities."""
    size = len(all_rankings(m))
    rows = np.array([rng.permutation(np.repeat([1.0, 2.0], size // 2)) for _ in range(6)])
    result: Array = rows / rows.sum(axis=1, keepdims=True)
    return result


def mallows_forecasts(m: int, rng: np.random.Generator) -> Array:
    """Return Mallows forecasts with six centres and one dispersion, so that equal distances are pooled."""
    centers = all_rankings(m)[rng.permutation(len(all_rankings(m)))[:6]]
    return np.exp(Mallows(centers, rng.uniform(0.3, 1.0)).log_prob(all_rankings(m)))


def plackett_luce_forecasts(m: int, rng: np.random.Generator) -> Array:
    """Return Plackett-Luce forecasts that agree about some events.

    Half of the time these are six relabellings of one forecast, which share their marginals; otherwise two
    forecasts that agree about m − 1 rankings, found numerically.
    """
    orders = all_rankings(m)
    if rng.random() < 0.5:
        utilities = rng.normal(size=m)[orders[rng.permutation(len(orders))[:6]]]
        return np.exp(PlackettLuce(utilities).log_prob(orders))
    while True:
        first = np.append(rng.normal(scale=1.5, size=m - 1), 0.0)
        shared = orders[rng.permutation(len(orders))[: m - 1]]
        wanted = PlackettLuce([first]).log_prob(shared)[0]

        def gaps(u: Array, shared: Any = shared, wanted: Array = wanted) -> Array:
            return PlackettLuce([np.append(u, 0.0)]).log_prob(shared)[0] - wanted

        found = least_squares(gaps, rng.normal(scale=2, size=m - 1), xtol=1e-15, ftol=1e-15, gtol=1e-15)
        other = np.append(found.x, 0.0)
        if np.abs(found.fun).max() < 1e-12 and 0.2 < np.abs(other - first).max() < 8:
            return np.exp(PlackettLuce([first, other]).log_prob(orders))


FORECASTS = {
    "general": general_forecasts,
    "plackett_luce": plackett_luce_forecasts,
    "mallows": mallows_forecasts,
}


def check(relation: Relation, model: str, *, tries: int, seed: int = 0) -> dict[str, float]:
    """Look for a counterexample in sets of forecasts; return the errors of both notions under the first."""
    rng = np.random.default_rng([seed, relation.m])
    source, target = notion(relation.source, relation.k), notion(relation.target, relation.k)
    orders = all_rankings(relation.m)
    for _ in range(tries):
        forecast = FORECASTS[model](relation.m, rng)
        truth = counterexample(forecast, source, target)
        if truth is not None:
            error = float(population_error(orders, truth, forecast, **target))
            return {
                "error": error,
                "source_error": float(population_error(orders, truth, forecast, **source)),
            }
    return {"error": 0.0, "source_error": 0.0}


def table() -> pd.DataFrame:
    """Check every relation for m = 3 and 4 and all three model classes: one row each."""
    rows = []
    for m in (3, 4):
        for relation in relations(m):
            for model in FORECASTS:
                found = check(relation, model, tries=12 if m == 3 else 6)
                said = {"m": m, "k": relation.k, "from": relation.source, "to": relation.target}
                paper = "implies" if relation.implies else "does not imply"
                exists = found["error"] > 1e-6
                rows.append(
                    said
                    | {"where": relation.where, "paper": paper, "model": model}
                    | {"counterexample": exists, "agrees": exists != relation.implies}
                    | {key: float(f"{value:.3g}") for key, value in found.items()}
                )
    return pd.DataFrame(rows)


def diagram(found: pd.DataFrame) -> Any:
    """Draw both diagrams for general forecasts: what implies what, and what does not."""
    from matplotlib.figure import Figure

    places = {
        "full-rank": (0.5, 0.92),
        "sub-k": (0.12, 0.55),
        "rankwise": (0.5, 0.55),
        "top-k": (0.88, 0.55),
        "rankwise sub-k": (0.12, 0.12),
        "rankwise top-k": (0.88, 0.12),
    }
    exists = found[found["model"] == "general"].groupby(["from", "to"])["counterexample"].agg(["any", "all"])
    figure = Figure(figsize=(12, 5), layout="constrained", dpi=150)
    for axes, implied in zip(figure.subplots(1, 2), (True, False), strict=True):
        box = {"boxstyle": "round,pad=0.5", "facecolor": "#eaf1f9", "edgecolor": "#2463a6"}
        boxes = {
            name: axes.text(*place, name, ha="center", va="center", fontsize=10, bbox=box).get_bbox_patch()
            for name, place in places.items()
        }
        shown = exists[~exists["all"] if implied else exists["any"]]
        for row in shown.reset_index().to_dict("records"):
            source, target = row["from"], row["to"]
            # Beside the arrow back, and around the box between them.
            bent = (target, source) in shown.index or {source, target} == {"sub-k", "top-k"}
            look = {
                "arrowstyle": "-|>,head_width=0.3,head_length=0.6",
                "color": "#2463a6" if implied else "#c23b4b",
                "linestyle": "--" if row["any"] != row["all"] else "-",
                "connectionstyle": f"arc3,rad={0.2 if bent else 0}",
                "patchA": boxes[source],
                "patchB": boxes[target],
                "shrinkA": 2,
                "shrinkB": 4,
            }
            axes.annotate("", places[target], places[source], arrowprops=look)
        verb = "implies" if implied else "does not imply: there is a counterexample"
        axes.set_title(f"{verb} (dashed: for some k only)", loc="left", fontsize=11)
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.axis("off")
    return figure


def main(folder: Path = Path("results")) -> pd.DataFrame:
    """Check every relation again; write relations.csv, or raise a ValueError if it says otherwise; draw it."""
    from rmcalib._util.files import write_bytes, write_text
    from rmcalib.report.figures import figure_bytes

    with threadpool_limits(1):  # the matrices are small: more threads take ten times as long
        path, found = folder / "relations.csv", table()
    if path.is_file():
        found = checked(pd.read_csv(path), found, path)
    else:
        write_text(path, found.to_csv(index=False))
    write_bytes(folder / "hierarchy.png", figure_bytes(diagram(found), "png"))
    return found


def checked(written: pd.DataFrame, found: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the written table if it has the relations and verdicts that were found."""
    differing = pd.concat([written[SAID], found[SAID]]).drop_duplicates(keep=False)
    if len(differing):
        first = differing.iloc[0].to_dict()
        raise ValueError(f"{path}: {len(differing)} rows are not those found now, such as {first}")
    if not ((written["error"] > 0) == written["counterexample"]).all() or written["source_error"].any():
        raise ValueError(f"{path}: the errors do not agree with the column counterexample")
    return written


if __name__ == "__main__":
    main()
