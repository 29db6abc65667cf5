"""The tables and figures of results/, from the rows of scripts/reproduce_paper.py."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rmcalib.tabular._figures import errors_by_k, grouped_bars, paired_bars, scatter
from rmcalib.tabular._tables import fold_means, paired_points

from rmcalib._util.files import write_csv, write_file, write_text
from rmcalib._util.markdown import markdown_table

Row = dict[str, Any]

MODELS = {
    "PlackettLuce": "pl",
    "MallowsModel": "mallows",
    "PreferenceModel": "rc",
    "RPC": "rpc",
    "PlackettLuceRPC": "pl-rpc",
}
NOTIONS = {
    ("rankwise", "uniform"): "rankwise",
    ("rankwise", "95_prob_mass"): "rankwise-95",
    ("fullrank", "uniform"): "full-rank",
}
DISCREPANCIES = {"abs": "abs", "jeff": "jeffreys_unit"}
REPEATABLE = ("pl", "mallows", "rc")
LEARNERS = ("pl", "mallows", "rc", "rpc", "pl-rpc")


def write_report(tables: dict[str, pd.DataFrame], folder: Path, published: Path | None) -> None:
    """Write the figures, and the tables between the markers of results/README.md."""
    means = {name: records(fold_means(table)) for name, table in tables.items()}
    parts = {
        "same-fits": same_fits_table(means["reference"]),
        "control": control_table(means["control"]),
        "control-rejections": rejection_table(records(tables["control"])),
        "exact": exact_table(means["exact"]),
        "full-rank": full_rank_table(means["exact"]),
        "recalibration": recalibration_table(means["recalibration"]),
    }
    if published is not None:
        compared = compare(means["reference"], published)
        write_csv(folder / "agreement.csv", compared)
        parts["agreement"] = agreement_table(compared)
        parts["disagreements"] = disagreement_table(compared)
    write_figures(means, folder)
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    for name, table in parts.items():
        text = fill(text, name, table)
    write_text(readme, text)


def records(table: pd.DataFrame) -> list[Row]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def compare(means: Sequence[Row], path: Path) -> list[Row]:
    """Fold means of the reference protocol beside the published ones, with the folds' standard error."""
    folds: dict[tuple[Any, ...], list[float]] = {}
    commits: dict[tuple[Any, ...], str] = {}
    for row in pd.read_csv(path, dtype={"commit": str}).to_dict("records"):
        notion = NOTIONS.get((row["notion"], row["weighting"]))
        discrepancy = "l1" if notion == "full-rank" else DISCREPANCIES[row["discrepancy"]]
        # The strong notion does not depend on the discrepancy; its rows are there for each.
        if notion is None or (notion == "full-rank" and row["discrepancy"] != "abs") or row["ece"] < 0:
            continue
        key = (row["dataset"], MODELS[row["model"]], row["family"], notion, int(row["k"]), discrepancy)
        folds.setdefault(key, []).append(float(row["ece"]))
        commits[key] = row["commit"]
    names = ("dataset", "learner", "family", "notion", "k", "discrepancy")
    result = []
    for mine in means:
        key = tuple(mine[name] for name in names)
        if mine["protocol"] != "reference" or len(folds.get(key, [])) != mine["folds"]:
            continue
        theirs = np.array(folds[key])
        se = float(theirs.std(ddof=1) / math.sqrt(len(theirs)))
        gap = mine["mean"] - float(theirs.mean())
        result.append(
            dict(zip(names, key, strict=True))
            | {
                "ours": float(f"{mine['mean']:.6g}"),
                "published": float(f"{theirs.mean():.6g}"),
                "difference": float(f"{gap:.3g}"),
                "standard_error": float(f"{se:.3g}"),
                "standard_errors_apart": round(abs(gap) / se, 3) if se > 0 else None,
                "commit": commits[key],
            }
        )
    return result


def agreement_table(compared: Sequence[Row]) -> str:
    """How many published fold means are within three standard errors, and how far off the worst is."""
    lines = []
    for dataset in dict.fromkeys(row["dataset"] for row in compared):
        for learner in REPEATABLE:
            rows = [row for row in compared if (row["dataset"], row["learner"]) == (dataset, learner)]
            if not rows:
                continue
            near = [row for row in rows if agrees(row)]
            lines.append(
                [
                    dataset,
                    learner,
                    f"{len(near)} of {len(rows)}",
                    f"{np.median([abs(row['difference']) for row in rows]):.1e}",
                    f"{max(abs(row['difference']) for row in rows):.1e}",
                    f"{max(row['standard_errors_apart'] or 0 for row in rows):.2f}",
                ]
            )
    head = ["data set", "learner", "within 3 SE", "median difference", "largest difference", "largest, in SE"]
    return markdown(head, lines)


def disagreement_table(compared: Sequence[Row]) -> str:
    """Every case of PL, Mallows and RC that is further off than three standard errors."""
    lines = [
        [
            row["dataset"],
            row["learner"],
            f"{row['family']}-{row['k']}",
            row["notion"],
            row["discrepancy"],
            f"{row['ours']:.4f}",
            f"{row['published']:.4f}",
            f"{row['standard_errors_apart']:.1f}",
            row["commit"],
        ]
        for row in compared
        if row["learner"] in REPEATABLE and not agrees(row)
    ]
    head = [
        "data set",
        "learner",
        "events",
        "notion",
        "discrepancy",
        "ours",
        "published",
        "SE apart",
        "commit",
    ]
    return markdown(head, lines) if lines else "None."


def agrees(row: Row) -> bool:
    """Three standard errors of the folds, or rounding where the folds do not differ."""
    return abs(row["difference"]) <= max(3 * row["standard_error"], 1e-6)


def same_fits_table(means: Sequence[Row]) -> str:
    """Sub-2 error of the same fits, by the public code's computation and by the definition."""
    lines = []
    for dataset in dict.fromkeys(row["dataset"] for row in means):
        for learner in LEARNERS:
            cells = []
            for protocol, notion in (
                ("reference", "rankwise"),
                ("reference", "rankwise-95"),
                ("exact", "rankwise"),
                ("exact", "rankwise-95"),
            ):
                cells.append(number(means, dataset, learner, "sub", 2, notion, protocol))
            lines.append([dataset, learner, *cells])
    head = ["data set", "learner", "reference", "reference, 95% filter", "exact", "exact, 95% of occurrences"]
    return markdown(head, lines)


def control_table(means: Sequence[Row]) -> str:
    """What both protocols report of forecasts that are calibrated by construction."""
    lines = []
    for dataset in dict.fromkeys(row["dataset"] for row in means):
        for learner in ("pl", "mallows", "rc", "pl-rpc"):
            for family, k in (("sub", 2), ("top", 1)):
                exact = find(means, dataset, learner, family, k, "rankwise", "exact")
                lines.append(
                    [
                        dataset,
                        learner,
                        f"{family}-{k}",
                        f"{exact['mean']:.3f}",
                        f"{exact['null_mean']:.3f}",
                        number(means, dataset, learner, family, k, "rankwise", "reference"),
                        number(means, dataset, learner, family, k, "rankwise-95", "reference"),
                    ]
                )
    head = ["data set", "learner", "events", "exact", "its null mean", "reference", "reference, 95% filter"]
    return markdown(head, lines)


def rejection_table(rows: Sequence[Row]) -> str:
    """Share of folds in which calibration is rejected at 5% although it holds: it should be about 5%."""
    lines = []
    for family, k in (("sub", 2), ("sub", 3), ("top", 1), ("top", 2), ("top", 3)):
        p = [row["p_value"] for row in rows if is_measure(row, family, k, "rankwise", "exact")]
        rejected = sum(value < 0.05 for value in p)
        if p:
            lines.append([f"{family}-{k}", str(len(p)), str(rejected), f"{rejected / len(p):.1%}"])
    return markdown(["events", "tests", "p < 0.05", "fraction"], lines)


def exact_table(means: Sequence[Row]) -> str:
    """Learners trained and measured as the paper says: error, and in brackets what chance would show."""
    lines = []
    for dataset in dict.fromkeys(row["dataset"] for row in means):
        for learner in LEARNERS:
            cells = []
            for family, k in (("sub", 2), ("sub", 3), ("top", 1), ("top", 2), ("top", 3)):
                row = find(means, dataset, learner, family, k, "rankwise", "exact")
                null = "" if not row or math.isnan(row["null_mean"]) else f" ({row['null_mean']:.3f})"
                cells.append(f"{row['mean']:.3f}{null}" if row else "")
            tau = next(
                row
                for row in means
                if (row["dataset"], row["learner"], row["notion"]) == (dataset, learner, "kendall_tau")
            )
            lines.append([dataset, learner, f"{tau['mean']:.3f}", *cells])
    return markdown(["data set", "learner", "tau", "sub-2", "sub-3", "top-1", "top-2", "top-3"], lines)


def full_rank_table(means: Sequence[Row]) -> str:
    """Excess of the strong notions over their null means, and in how many folds calibration is rejected."""
    lines = []
    strong = [row for row in means if row["notion"] == "full-rank" and not math.isnan(row["null_mean"])]
    for dataset in dict.fromkeys(row["dataset"] for row in strong):
        for learner in LEARNERS:
            cells = []
            for family, k in (("sub", 2), ("sub", 3), ("top", 1), ("top", 2)):
                wanted = (dataset, learner, family, k)
                keys = ("dataset", "learner", "family", "k")
                row = next((row for row in strong if tuple(row[key] for key in keys) == wanted), None)
                cells.append(
                    f"{row['excess']:+.3f} ({row['null_mean']:.3f}, {row['rejected']:.0%})" if row else ""
                )
            if any(cells):
                lines.append([dataset, learner, *cells])
    return markdown(["data set", "learner", "sub-2", "sub-3", "top-1", "top-2"], lines)


def recalibration_table(means: Sequence[Row]) -> str:
    """The same fits before and after a temperature fitted on held-out training rows."""
    lines = []
    for dataset in dict.fromkeys(row["dataset"] for row in means):
        for learner in ("pl", "mallows", "rc", "pl-rpc"):
            cells = []
            for family, k in (("sub", 2), ("sub", 3), ("top", 1), ("top", 2), ("top", 3)):
                before = number(means, dataset, learner, family, k, "rankwise", "exact")
                after = number(means, dataset, f"{learner}+t", family, k, "rankwise", "exact")
                cells.append(f"{before} → {after}" if before else "")
            losses = [
                next(
                    f"{row['mean']:.2f}"
                    for row in means
                    if (row["dataset"], row["learner"], row["notion"]) == (dataset, name, "log_loss")
                )
                for name in (learner, f"{learner}+t")
            ]
            lines.append([dataset, learner, " → ".join(losses), *cells])
    return markdown(["data set", "learner", "log loss", "sub-2", "sub-3", "top-1", "top-2", "top-3"], lines)


def write_figures(means: dict[str, list[Row]], folder: Path) -> None:
    """Draw everything that results/README.md shows."""
    exact, reference, control = means["exact"], means["reference"], means["control"]
    chosen = [row for row in exact if (row["notion"], row["discrepancy"]) == ("rankwise", "abs")]
    for dataset in ("political", "movies"):
        own = [row for row in chosen if row["dataset"] == dataset]
        if own:
            save(
                folder / f"errors_{dataset}.png",
                errors_by_k(pd.DataFrame(own), title=f"{dataset}: rankwise error, exact"),
            )
    weak = [row for row in reference if row["discrepancy"] == "abs" and row["notion"] == "rankwise-95"]
    panels = [
        (
            f"{dataset}, {'as published' if protocol == 'reference' else 'exact marginals'}",
            {"dataset": dataset, "protocol": protocol},
        )
        for protocol in ("reference", "exact")
        for dataset in ("political", "movies")
    ]
    save(
        folder / "same_fits.png",
        grouped_bars(pd.DataFrame(weak), panels=panels, title="The same fits, measured two ways"),
    )
    pairs = paired_points(
        pd.DataFrame([row for row in exact if row["notion"] == "rankwise"]),
        {"discrepancy": "abs"},
        {"discrepancy": "jeffreys_unit"},
    )
    figure = scatter(
        pairs,
        x_label="rankwise error, |f − c|",
        y_label="rankwise error, Jeffreys mapped to [0, 1)",
        title="Absolute difference against Jeffreys divergence",
    )
    save(folder / "abs_jeffreys.png", figure)
    tau = {(row["dataset"], row["learner"]): row["mean"] for row in exact if row["notion"] == "kendall_tau"}
    points = [
        {"learner": row["learner"], "x": tau[row["dataset"], row["learner"]], "y": row["mean"]}
        for row in chosen
        if (row["family"], row["k"]) == ("sub", 2)
    ]
    figure = scatter(
        pd.DataFrame(points),
        x_label="Kendall's tau of the predicted ranking",
        y_label="sub-2 error",
        title="Accuracy against calibration, one point per data set",
    )
    save(folder / "tau_error.png", figure)
    points = [
        {
            "dataset": row["dataset"],
            "learner": row["learner"],
            "x": find(control, row["dataset"], row["learner"], "sub", 2, "rankwise-95", "reference")["mean"],
            "y": row["mean"],
            "null": row["null_mean"],
        }
        for row in control
        if is_measure(row, "sub", 2, "rankwise", "exact")
    ]
    title = "Forecasts that are calibrated by construction: what each protocol reports (sub-2)"
    save(
        folder / "control.png",
        paired_bars(pd.DataFrame(points), x_name="reference, 95% filter", y_name="exact", title=title),
    )
    after = means["recalibration"]
    points = [
        {
            "dataset": row["dataset"],
            "learner": row["learner"],
            "x": row["mean"],
            "y": find(after, row["dataset"], f"{row['learner']}+t", "sub", 2, "rankwise", "exact")["mean"],
            "null": find(after, row["dataset"], f"{row['learner']}+t", "sub", 2, "rankwise", "exact")[
                "null_mean"
            ],
        }
        for row in after
        if is_measure(row, "sub", 2, "rankwise", "exact") and not row["learner"].endswith("+t")
    ]
    title = "Sub-2 error before and after a temperature fitted on held-out training rows"
    bars = paired_bars(pd.DataFrame(points), x_name="before", y_name="after", title=title)
    save(folder / "recalibration.png", bars)


def save(path: Path, figure: Any) -> None:
    write_file(path, partial(figure.savefig, format="png", metadata={"Software": None}))


def is_measure(row: Row, family: str, k: int, notion: str, protocol: str) -> bool:
    wanted = (family, k, notion, protocol, "abs")
    return tuple(row[name] for name in ("family", "k", "notion", "protocol", "discrepancy")) == wanted


def find(
    means: Sequence[Row], dataset: str, learner: str, family: str, k: int, notion: str, protocol: str
) -> Row:
    for row in means:
        if (row["dataset"], row["learner"]) == (dataset, learner) and is_measure(
            row, family, k, notion, protocol
        ):
            return row
    return {}


def number(
    means: Sequence[Row], dataset: str, learner: str, family: str, k: int, notion: str, protocol: str
) -> str:
    row = find(means, dataset, learner, family, k, notion, protocol)
    return f"{row['mean']:.3f}" if row else ""


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(markdown_table(head, lines, escape=False))


def fill(text: str, name: str, table: str) -> str:
    """Put a table between its markers, or at the end where there are none yet."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if start not in text:
        text += f"\n{start}\n{end}\n"
    before, rest = text.split(start, 1)
    after = rest.split(end, 1)[1]
    return f"{before}{start}\n{table}\n{end}{after}"


__all__ = ["write_report"]
