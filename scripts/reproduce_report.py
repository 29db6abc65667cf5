"""The tables and figures of results/, from the rows of scripts/reproduce_paper.py."""

import gzip
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import paper_figures
import paper_relations
import paper_reward_models
from scipy.stats import kendalltau

from rmcalib._util.display import markdown_table
from rmcalib._util.files import write_bytes, write_text
from rmcalib.report.figures import figure_bytes
from rmcalib.tabular import DATASETS, load_dataset
from rmcalib.tabular._results import fold_means

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHIPPED = Path(__file__).parents[1] / "results"
MODELS = {
    "PlackettLuce": "pl",
    "MallowsModel": "mallows",
    "PreferenceModel": "rc",
    "RPC": "rpc",
    "PlackettLuceRPC": "pl-rpc",
}
LEARNERS = tuple(MODELS.values())
SMALLEST = 1e-6  # rows are kept with six digits
CELL = ["dataset", "learner", "family", "notion", "k", "discrepancy"]
# Rows, features, labels, rankings of the paper's table of data sets.
PAPER_SIZES = {
    "authorship": (841, 70, 4, 17),
    "glass": (214, 9, 6, 30),
    "iris": (150, 4, 3, 5),
    "libras": (360, 90, 15, 317),
    "vehicle": (846, 18, 4, 18),
    "vowel": (528, 10, 11, 294),
    "wine": (178, 13, 3, 5),
    "yeast": (1484, 8, 10, 471),
    "movies": (602, 65, 15, 260),
    "political": (170, 46, 6, 87),
}


def write_report(tables: dict[str, pd.DataFrame], folder: Path) -> None:
    """Write results/label_ranking.md, and the tables and figures that the pages show."""
    means = {name: fold_means(table) for name, table in tables.items()}
    cells = agreement(means, SHIPPED / "published_errors.csv.gz")
    write_compressed(folder / "agreement.csv.gz", cells)
    taus = tau_agreement(tables["reference"], SHIPPED / "published_tau.csv")
    write_table(folder / "tau.csv", taus)
    sizes = dataset_table(folder / "datasets.csv")
    write_table(folder / "datasets.csv", sizes)
    relations = paper_relations.main(folder)
    paper_reward_models.main(folder)
    both = pd.concat([means["reference"], means["same"]], ignore_index=True)
    correlations = write_figures(means, both, folder)
    parts = [
        "# Label ranking: every table\n",
        "Made by `python scripts/reproduce_paper.py`; [README.md](README.md) says what follows. Values are "
        "means over five folds; `n/a` was not made.\n",
        "## Data sets\n",
        sizes_text(sizes),
        "## Agreement with the published values\n",
        agreement_text(cells),
        "### Cells outside three standard errors\n",
        outside_text(cells),
        "### Kendall's tau of the published folds\n",
        tau_text(taus),
        "## Errors by k\n",
        "As in the paper's appendix; the numbers are in errors.csv.\n",
        *(f"![{name}](errors_{name}.png)\n" for name in dict.fromkeys(means["reference"]["dataset"])),
        "## The same fits, by both protocols (sub-2)\n",
        same_text(both),
        "## Forecasts that are calibrated by construction\n",
        control_text(means["control"]),
        "## Trained and measured as the paper describes\n",
        exact_text(means["exact"]),
        "## Strong notions: excess over the null mean (share of folds rejected)\n",
        strong_text(means["exact"]),
        "## Repairs fitted on held-out training rows\n",
        repair_text(means["recalibration"]),
        "## Absolute difference against Jeffreys divergence, Kendall's tau per k\n",
        plain(correlations),
        "## Relations between the notions that differ from the paper\n",
        plain(relations[~relations["agrees"]].drop(columns=["agrees", "source_error"])),
    ]
    write_text(folder / "label_ranking.md", "\n".join(parts) + "\n")


def write_compressed(path: Path, table: pd.DataFrame) -> None:
    """Write a table with six digits."""
    write_bytes(path, gzip.compress(six_digits(table).to_csv(index=False).encode(), mtime=0))


def write_table(path: Path, table: pd.DataFrame) -> None:
    write_text(path, six_digits(table).to_csv(index=False))


def six_digits(table: pd.DataFrame) -> pd.DataFrame:
    return table.map(lambda value: float(f"{value:.6g}") if isinstance(value, float) else value)


def agreement(means: dict[str, pd.DataFrame], path: Path) -> pd.DataFrame:
    """Return every published cell beside ours. Cells of the filter top_10 are left out: the paper has none.

    ``file`` is the discrepancy of the published file. Full-rank errors do not depend on it, so they were
    published twice. ``tolerance`` is three standard errors of the published folds, with the spread
    of tree seeds added for rpc and pl-rpc where it was measured.
    """
    rows = pd.read_csv(path, dtype={"commit": str})
    rows = rows[rows["weighting"] != "top_10"].rename(columns={"discrepancy": "file"})
    filtered = rows["weighting"].map({"uniform": "", "95_prob_mass": "-95"})
    names = rows["file"].map({"abs": "abs", "jeff": "jeffreys_unit"})
    rows = rows.assign(
        learner=rows["model"].map(MODELS),
        notion=rows["notion"].map({"rankwise": "rankwise", "fullrank": "full-rank"}) + filtered,
        discrepancy=names.where(rows["notion"] == "rankwise", "l1"),
    )
    published = rows.groupby([*CELL, "file", "commit"])["ece"].agg(["mean", "sem"]).reset_index()
    published = published.rename(columns={"mean": "published", "sem": "standard_error"})
    ours = {name: table[table["protocol"] == "reference"] for name, table in means.items()}
    seeds = pd.concat([ours[name] for name in ("reference", "seed1", "seed2")])
    seeds = seeds[seeds["learner"].isin(("rpc", "pl-rpc"))].groupby(CELL)["mean"].agg(["std", "count"])
    spread = seeds["std"].where(seeds["count"] > 1).rename("seed_sd").reset_index()
    mine = ours["reference"][[*CELL, "mean"]].rename(columns={"mean": "ours"})
    cells = published.merge(mine, how="left", on=CELL).merge(spread, how="left", on=CELL)
    cells["difference"] = cells["ours"] - cells["published"]
    wide = np.hypot(cells["standard_error"], cells["seed_sd"].fillna(0))
    cells["tolerance"] = np.maximum(3 * wide, SMALLEST)
    cells["agrees"] = (cells["difference"].abs() <= cells["tolerance"]).where(cells["ours"].notna())
    cells["reason"] = [reason(row) for row in cells.to_dict("records")]
    return cells


def reason(row: dict[Any, Any]) -> str:
    """Say why a published cell is not repeated; empty if it is."""
    if math.isnan(row["ours"]):
        return "not made"
    if row["agrees"]:
        return ""
    if row["dataset"] in ("glass", "movies") and row["family"] == "top":
        return "published with an older aggregation"
    if row["learner"] in ("rpc", "pl-rpc") and math.isnan(row["seed_sd"]):
        return "unseeded trees; the spread of seeds was not measured here"
    if row["learner"] == "pl-rpc":
        return "the public code starts Newman's iterations at random"
    return "not explained"


def tau_agreement(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return Kendall's tau of every published fold beside ours."""
    rows = pd.read_csv(path, dtype={"commit": str})
    rows = rows.assign(learner=rows["model"].map(MODELS)).rename(columns={"kendall_tau": "published"})
    own = table[table["notion"] == "kendall_tau"][["dataset", "learner", "fold", "value"]]
    own = own.rename(columns={"value": "ours"})
    return rows.drop(columns="model").merge(own, how="left", on=["dataset", "learner", "fold"])


def dataset_table(path: Path) -> pd.DataFrame:
    """Return the size of every data set, its number of rankings, and which fraction of all they are.

    Rows that are in the file stay: the files of the data sets are fixed by their hashes.
    """
    there = pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=["dataset"])
    rows = []
    for name in set(DATASETS) - set(there["dataset"]):
        data = load_dataset(name)
        n_rankings = len(np.unique(data.orders, axis=0))
        features = data.numeric.shape[1] + data.texts.shape[1]
        size = (len(data), features, data.n_items, n_rankings)
        rows.append(
            {"dataset": name}
            | dict(zip(("rows", "features", "labels", "rankings"), size, strict=True))
            | {"fraction": n_rankings / math.factorial(data.n_items)}
            | {"paper": " × ".join(map(str, PAPER_SIZES.get(name, ()))) or "–"}
            | {"agrees": PAPER_SIZES.get(name, size) == size}
        )
    return pd.concat([there, pd.DataFrame(rows)], ignore_index=True).sort_values("dataset", ignore_index=True)


def pick(means: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    return means[(means[list(wanted)] == list(wanted.values())).all(axis=1)]


def by_learner(means: pd.DataFrame) -> Iterator[tuple[list[str], pd.DataFrame]]:
    """Yield every data set and learner, and their rows."""
    for dataset in dict.fromkeys(means["dataset"]):
        for learner in LEARNERS:
            yield [dataset, learner], pick(means, dataset=dataset, learner=learner)


def value(means: pd.DataFrame, column: str = "mean", **wanted: Any) -> float:
    found = pick(means, **wanted)
    return float(found[column].iloc[0]) if len(found) else math.nan


def show(number: float, digits: int = 3) -> str:
    return "n/a" if math.isnan(number) else f"{number:.{digits}f}"


def gap(number: float) -> str:
    """Show a difference of values that are kept with six digits."""
    return f"below {SMALLEST:.0e}" if number < SMALLEST else f"{number:.1e}"


def markdown(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    return "\n".join(markdown_table(head, [list(map(str, line)) for line in lines], escape=False)) + "\n"


def plain(table: pd.DataFrame) -> str:
    def cell(entry: Any) -> str:
        return f"{entry:.3g}" if isinstance(entry, float) else str(entry)

    return markdown(list(table.columns), [[cell(entry) for entry in row] for row in table.to_numpy()])


def sizes_text(sizes: pd.DataFrame) -> str:
    shown = sizes.assign(fraction=[f"{f:.4f}" if f > 0.001 else f"{f:.1e}" for f in sizes["fraction"]])
    return plain(shown)


def agreement_text(cells: pd.DataFrame) -> str:
    lines = []
    for (dataset, learner), rows in cells.groupby(["dataset", "learner"], sort=False):
        made = rows[rows["ours"].notna()]
        gaps = made["difference"].abs()
        near = f"{int(made['agrees'].astype(bool).sum())} of {len(made)}"
        numbers = [gap(gaps.median()), gap(gaps.max())] if len(made) else ["n/a", "n/a"]
        lines.append([dataset, learner, str(len(rows)), near, *numbers])
    made = cells[cells["ours"].notna()]
    total = f"{int(made['agrees'].astype(bool).sum())} of {len(made)}"
    lines.append(["all", "", str(len(cells)), total, "", ""])
    return markdown(["data set", "learner", "published", "agree", "median difference", "largest"], lines)


def outside_text(cells: pd.DataFrame) -> str:
    outside = cells[cells["agrees"].eq(False)]
    groups = outside.groupby(["dataset", "learner", "family", "notion", "reason"], sort=False)
    lines = [[*key, str(len(rows)), gap(rows["difference"].abs().max())] for key, rows in groups]
    return markdown(["data set", "learner", "events", "notion", "reason", "cells", "largest"], lines)


def tau_text(taus: pd.DataFrame) -> str:
    lines = []
    for (dataset, learner), rows in taus.groupby(["dataset", "learner"], sort=False):
        made = rows.dropna(subset="ours")
        largest = gap((made["ours"] - made["published"]).abs().max()) if len(made) else "n/a"
        ours = float(made["ours"].mean()) if len(made) else math.nan
        lines.append([dataset, learner, show(rows["published"].mean()), show(ours), largest])
    return markdown(["data set", "learner", "published", "ours", "largest difference of a fold"], lines)


def same_text(both: pd.DataFrame) -> str:
    columns = [(p, n) for p in ("reference", "exact") for n in ("rankwise", "rankwise-95")]
    lines = []
    for names, own in by_learner(both):
        here = pick(own, family="sub", k=2, discrepancy="abs")
        found = [value(here, protocol=protocol, notion=notion) for protocol, notion in columns]
        lines.append([*names, *map(show, found)])
    head = ["data set", "learner", "reference", "reference, 95% filter", "exact", "exact, 95% of occurrences"]
    return markdown(head, lines)


def control_text(control: pd.DataFrame) -> str:
    lines = []
    exact = {"protocol": "exact", "notion": "rankwise"}
    for names, own in by_learner(pick(control, family="sub", k=2, discrepancy="abs")):
        if len(own):
            found = [
                value(own, **exact),
                value(own, "null_mean", **exact),
                value(own, protocol="reference", notion="rankwise"),
                value(own, protocol="reference", notion="rankwise-95"),
            ]
            lines.append([*names, *map(show, found)])
    head = ["data set", "learner", "exact", "its null mean", "reference", "reference, 95% filter"]
    return markdown(head, lines)


EVENTS = (("sub", 2), ("sub", 3), ("top", 1), ("top", 2), ("top", 3))


def exact_text(exact: pd.DataFrame) -> str:
    lines = []
    for names, own in by_learner(exact):
        cells = [show(value(own, notion="kendall_tau"))]
        for family, k in EVENTS:
            at = pick(own, family=family, k=k, notion="rankwise", discrepancy="abs")
            null = value(at, "null_mean")
            cells.append(show(value(at)) + ("" if math.isnan(null) else f" ({null:.3f})"))
        if len(own):
            lines.append([*names, *cells])
    return markdown(["data set", "learner", "tau", *(f"{f}-{k}" for f, k in EVENTS)], lines)


def strong_text(exact: pd.DataFrame) -> str:
    strong = exact[(exact["notion"] == "full-rank") & exact["null_mean"].notna()]
    lines = []
    for names, own in by_learner(strong):
        cells = []
        for family, k in EVENTS[:4]:
            at = pick(own, family=family, k=k)
            cells.append(f"{value(at, 'excess'):+.3f} ({value(at, 'rejected'):.0%})" if len(at) else "n/a")
        if len(own):
            lines.append([*names, *cells])
    return markdown(["data set", "learner", *(f"{f}-{k}" for f, k in EVENTS[:4])], lines)


def repair_text(means: pd.DataFrame) -> str:
    lines = []
    for dataset in dict.fromkeys(means["dataset"]):
        for learner in LEARNERS:
            for measure, wanted in (
                ("log loss", {"notion": "log_loss"}),
                ("sub-2", {"notion": "rankwise", "family": "sub", "k": 2}),
                ("top-1", {"notion": "rankwise", "family": "top", "k": 1}),
            ):
                here = pick(means, dataset=dataset, **wanted)
                found = [value(here, learner=f"{learner}{suffix}") for suffix in ("", "+t", "+u", "+pl")]
                if not math.isnan(found[0]):
                    lines.append([dataset, learner, measure, *map(show, found)])
    head = ["data set", "learner", "measure", "before", "temperature", "+ uniform", "+ Plackett-Luce"]
    return markdown(head, lines)


def write_figures(means: dict[str, pd.DataFrame], both: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Write each figure with its table; return Kendall's tau of absolute and Jeffreys errors per k."""
    reference = means["reference"]
    unfiltered = reference["dataset"] == "libras"  # the filter is not published for it
    kept = reference["notion"].str.endswith("-95") | unfiltered
    errors = reference[kept & reference["discrepancy"].isin(("abs", "l1"))]
    write_table(folder / "errors.csv", errors[[*CELL, "mean", "sd", "folds"]])
    for dataset, own in errors.groupby("dataset"):
        title = f"{dataset}: reference protocol" + ("" if dataset == "libras" else ", 95% filter")
        save(folder / f"errors_{dataset}.png", paper_figures.panels_by_k(own, title=title))

    weak = pick(both, discrepancy="abs", notion="rankwise-95")
    weak = weak[weak["dataset"].isin(("political", "movies")) & weak["k"].isin((2, 3))]
    panels = [
        (f"{dataset}, {text}", {"dataset": dataset, "protocol": protocol})
        for protocol, text in (("reference", "as published"), ("exact", "exact marginals"))
        for dataset in ("political", "movies")
    ]
    drawn = paper_figures.bars(weak, panels=panels, title="The same fits, measured two ways")
    save(folder / "same_fits.png", drawn, weak[["protocol", *CELL, "mean", "sd"]])

    points, correlations = jeffreys_points(reference)
    title = "Absolute difference against Jeffreys divergence, one point per data set and learner"
    drawn = paper_figures.abs_against_jeffreys(points, correlations, title=title)
    save(folder / "abs_jeffreys.png", drawn, points)

    control = pick(means["control"], family="sub", k=2, discrepancy="abs")
    published = pick(control, protocol="reference", notion="rankwise-95")
    exact = pick(control, protocol="exact", notion="rankwise")
    names = ("reference, 95%", "exact")
    table = side_by_side(names, published, exact)
    title = "Forecasts that are calibrated by construction: what each protocol reports (sub-2)"
    save(folder / "calibrated.png", paper_figures.paired(table, names, title=title), table)

    before = pick(means["recalibration"], notion="rankwise", family="sub", k=2)
    mixed = before[before["learner"].str.endswith("+pl")]
    after = mixed.assign(learner=mixed["learner"].str.removesuffix("+pl"))
    table = side_by_side(("before", "after"), before, after)
    title = "Sub-2 error before and after mixing with Plackett-Luce"
    save(folder / "repairs.png", paper_figures.paired(table, ("before", "after"), title=title), table)
    return correlations


def jeffreys_points(reference: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return both errors of each data set, learner and k, and Kendall's tau of the two per k."""
    weak = pick(reference, notion="rankwise-95", family="sub")
    columns = {"abs": "abs", "jeffreys_unit": "jeffreys"}
    points = weak.pivot(index=["dataset", "learner", "k"], columns="discrepancy", values="mean")
    points = points.rename(columns=columns).dropna().reset_index()
    rows = []
    for k, own in points.groupby("k"):
        tau = kendalltau(own["abs"], own["jeffreys"])
        rows.append({"k": k, "n": len(own), "tau": tau.statistic, "p_value": tau.pvalue})
    return points, pd.DataFrame(rows)


def side_by_side(names: tuple[str, str], left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    """Return the means of two selections as columns, and the null mean of the second."""
    keys = ["dataset", "learner"]
    one = left[[*keys, "mean"]].rename(columns={"mean": names[0]})
    other = right[[*keys, "mean", "null_mean"]].rename(columns={"mean": names[1]})
    return one.merge(other, on=keys)


def save(path: Path, figure: "Figure", table: pd.DataFrame | None = None) -> None:
    """Write a figure, and its table beside it."""
    write_bytes(path, figure_bytes(figure, "png"))
    if table is not None:
        write_table(path.with_suffix(".csv"), table)
