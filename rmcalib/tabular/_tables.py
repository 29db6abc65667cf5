"""Tables of results: reading them, means over folds, and stagewise verdicts."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.storage import as_path, read_file

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["fold_means", "paired_points", "read_results", "rows_where", "stagewise_verdicts"]

_KEYS = ("dataset", "learner", "family", "notion", "k", "protocol", "discrepancy", "training", "truth")
_WHOLE = ("fold", "k", "n")
_NUMBERS = ("value", "low", "high", "null_mean", "null_high", "p_value")


def read_results(path: str | Path) -> "pd.DataFrame":
    """Read ``results.csv`` or one of its parts exactly as it was written; empty cells become NaN.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a.csv").write_text("learner,k,family,value,low\\npl,2,,0.1,\\n")
    ...     read_results(Path(folder) / "a.csv").to_dict("records")
    [{'learner': 'pl', 'k': 2, 'family': '', 'value': 0.1, 'low': nan}]
    """
    import pandas as pd

    table = pd.read_csv(BytesIO(read_file(as_path(path))), dtype=str, keep_default_na=False)
    for name in table.columns.intersection(list(_NUMBERS)):
        # Python's float returns exactly what was written; pandas may differ in the last bit.
        table[name] = [float(text or "nan") for text in table[name]]
    for name in table.columns.intersection(list(_WHOLE)):
        table[name] = table[name].astype("int64")
    if "n_events" in table:
        table["n_events"] = pd.array(
            [int(text) if text else None for text in table["n_events"]], dtype="Int64"
        )
    return table


def fold_means(table: "pd.DataFrame") -> "pd.DataFrame":
    """Return means over folds: one row per data set, learner and measure.

    Columns: ``mean``, ``sd`` and ``se`` of the value over ``folds``; ``null_mean``, the expected value for a
    calibrated forecast, averaged over folds; ``rejected``, the fraction of folds with p < 0.05; ``excess``,
    the mean of value − null_mean. The last three are NaN if there is no null distribution.

    >>> import pandas as pd
    >>> row = dict.fromkeys(_KEYS, "x") | {"value": 0.1, "null_mean": 0.05, "p_value": 0.01}
    >>> fold_means(pd.DataFrame([row, row | {"value": 0.3}]))[["mean", "excess", "rejected"]].values.tolist()
    [[0.2, 0.15, 1.0]]
    """
    import pandas as pd

    rows = []
    for key, group in table.groupby(list(_KEYS), sort=False, dropna=False):
        values = group["value"].to_numpy()
        sd = float(values.std(ddof=1)) if len(values) > 1 else np.nan
        nulls, p_values = group["null_mean"].dropna().to_numpy(), group["p_value"].dropna().to_numpy()
        mean, null = float(values.mean()), float(nulls.mean()) if len(nulls) else np.nan
        numbers = {
            "mean": round(mean, 12),
            "sd": sd,
            "se": sd / np.sqrt(len(values)),
            "folds": len(values),
            "null_mean": null,
            "rejected": float((p_values < 0.05).mean()) if len(p_values) else np.nan,
            "excess": round(mean - null, 12),
        }
        rows.append(dict(zip(_KEYS, key, strict=True)) | numbers)
    return pd.DataFrame(rows)


def rows_where(table: "pd.DataFrame", **wanted: object) -> "pd.DataFrame":
    """Return the rows that have all these values.

    >>> import pandas as pd
    >>> rows_where(pd.DataFrame({"k": [1, 2], "learner": ["pl", "pl"]}), learner="pl", k=2).index.tolist()
    [1]
    """
    keep = np.ones(len(table), dtype=bool)
    for name, value in wanted.items():
        keep &= (table[name] == value).to_numpy()
    return table[keep]


def paired_points(
    means: "pd.DataFrame", x: Mapping[str, Any], y: Mapping[str, Any], keys: Sequence[str] = _KEYS
) -> "pd.DataFrame":
    """Return two measures of the same fits as columns "x" and "y", for figures that compare them.

    ``x`` and ``y`` select the rows, such as {"discrepancy": "abs"}. Rows are joined on all other keys.

    >>> import pandas as pd
    >>> means = pd.DataFrame({"learner": ["pl", "pl"], "discrepancy": ["abs", "kl"], "mean": [0.1, 0.2]})
    >>> paired_points(means, {"discrepancy": "abs"}, {"discrepancy": "kl"}, ["learner", "discrepancy"])
      learner    x    y
    0      pl  0.1  0.2
    """
    rest = [key for key in keys if key not in x and key not in y]
    left, right = (rows_where(means, **wanted)[[*rest, "mean"]] for wanted in (x, y))
    return left.rename(columns={"mean": "x"}).merge(right.rename(columns={"mean": "y"}), on=rest)


def stagewise_verdicts(table: "pd.DataFrame", *, alpha: float = 0.05) -> list[str]:
    """Return a sentence per data set and learner: the first k whose sub-k error is too large.

    Each fold stops at the first k with too large an error. The p-values of the folds, which are not
    independent, are combined to twice their mean (Vovk and Wang 2020).

    >>> import pandas as pd
    >>> row = {"dataset": "d", "learner": "pl", "family": "sub", "notion": "rankwise", "protocol": "exact"}
    >>> row |= {"discrepancy": "abs", "value": 0.2}
    >>> stagewise_verdicts(pd.DataFrame([row | {"k": 2, "p_value": 0.01}]))
    ['d, pl: miscalibrated at k = 2 (mean sub-2 error 0.200, p = 0.02)']
    >>> found = [(2, 0.01), (2, 0.4), (3, 0.3)]  # two folds; the first stops at k = 2
    >>> stagewise_verdicts(pd.DataFrame([row | {"k": k, "p_value": p} for k, p in found]))
    ['d, pl: no sub-k error is too large up to k = 3 (1 of 2 folds reached it)']
    """
    own = rows_where(table, family="sub", notion="rankwise", protocol="exact", discrepancy="abs")
    verdicts = []
    for (dataset, learner), group in own.groupby(["dataset", "learner"], sort=False):
        by_k = {k: group[group["k"] == k] for k in sorted(map(int, group["k"].unique()))}
        p_values = {k: float(min(1.0, 2 * part["p_value"].astype(float).mean())) for k, part in by_k.items()}
        if all(np.isnan(p) for p in p_values.values()):
            verdicts.append(f"{dataset}, {learner}: no test, because it forecasts pairs only")
            continue
        worst = next((k for k, p in p_values.items() if p <= alpha), None)
        k = max(by_k) if worst is None else worst
        reached, folds = len(by_k[k]), max(map(len, by_k.values()))
        some = "" if reached == folds else f"{reached} of {folds} folds reached it"
        if worst is None:
            verdict = f"no sub-k error is too large up to k = {k}" + (f" ({some})" if some else "")
        else:
            error = f"mean sub-{k} error {by_k[k]['value'].mean():.3f}, p = {p_values[k]:.2g}"
            verdict = f"miscalibrated at k = {k} ({error}" + (f"; {some})" if some else ")")
        verdicts.append(f"{dataset}, {learner}: {verdict}")
    return verdicts
