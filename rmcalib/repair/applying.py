"""`apply`: the probabilities of rewards, row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib._util.display import clean_line
from rmcalib.calibration.intervals import first_and_next
from rmcalib.metrics.results import Shown
from rmcalib.repair.calibrator import Calibrator, as_calibrator
from rmcalib.scores import Scores

if TYPE_CHECKING:
    from rmcalib.repair.calibration import Calibration
    from rmcalib.repair.decisions import Decisions


@dataclass(frozen=True, repr=False)
class Applied(Shown):
    """The result of `apply`: the input's rows with their probabilities.

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
        The fraction of prompts whose first choice is accepted; None if the calibrator has no rule.
    n_outside, n_other_sizes : int
        How many rewards are beyond the range of the fit, and how many prompts have fewer or more responses than
        those that the rule was tested on.
    other_model : str
        The model of the rewards, if the calibrator was fitted on those of another one; otherwise empty.
    """

    calibrator: Calibrator
    added: dict[str, Any]
    given: dict[str, Any]
    n: int
    accepted: float | None = None
    n_outside: int = 0
    n_other_sizes: int = 0
    other_model: str = ""

    @property
    def table(self) -> Any:
        """The input's rows and columns in their order, and the new columns: a pandas table."""
        import pandas

        return pandas.DataFrame({name: list(values) for name, values in {**self.given, **self.added}.items()})

    def document(self) -> Any:
        """Return the document of the page."""
        from rmcalib.report.applied import applied_document

        return applied_document(self)

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
    calibrator: Calibrator | Calibration | Decisions | str | Path,
    *,
    columns: str | Mapping[str, Any] | None = None,
    scale: str | None = None,
) -> Applied:
    """Say what rewards mean: probabilities, percentiles, and what to accept. Labels are not needed.

    Parameters
    ----------
    scores : Scores, DataFrame or path
        The rewards; see `load_scores`. For the calibrator of a panel (`combine`): a sequence with the scores of
        all its judges in their order, or a mapping from their names; the rows of the first are returned.
    calibrator : Calibrator, Calibration, Decisions or path
        The result of `calibrate` or `decide`, or its file.
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
        - ``decision``, if the calibrator has a rule (`decide`): "accept" on a response that is accepted, "ask"
          on the first choice of every other prompt, empty elsewhere. A prompt with a reward beyond the range of
          the calibrator's fit is not accepted.

        Where a row of the input has several responses (chosen and rejected), each new column has a suffix:
        ``probability_0``, ``probability_1``, ...

    Examples
    --------
    >>> import pandas as pd
    >>> from rmcalib.repair.calibrator import AcceptRule
    >>> rule = AcceptRule("best", 0.7, 0.1, 0.95, n=400, accepted=0.5, wrong=0.05, responses=(2, 2))
    >>> calibrator = Calibrator(2 / np.log(3), 1.5, 2.5, reference=(0.0, 1.0, 2.0), rule=rule)
    >>> table = pd.DataFrame({"prompt": ["a", "b", "a"], "score": [2.0, 1.0, 0.0]})
    >>> found = apply(table, calibrator)
    >>> found.table["probability"].round(3).tolist(), found.table["decision"].tolist()
    ([0.75, 1.0, 0.25], ['accept', 'ask', ''])
    """
    from rmcalib.scores._load import load_with_rows

    used = as_calibrator(calibrator, panel=True)
    loaded = [load_with_rows(source, columns, scale=scale) for source in _sources(scores, used)]
    names, takes = [source.scores.name for source in loaded], [judge.name for judge in used.inputs]
    if any(name != judge and name in takes for name, judge in zip(names, takes, strict=False)):
        raise ValueError(
            f"scores: these are of {', '.join(map(clean_line, names))}; the panel takes its judges in the order "
            f"{', '.join(map(clean_line, takes))}"
        )
    joint = used.one_table([source.scores for source in loaded])
    prompt, sizes = np.repeat(np.arange(joint.n_items), np.diff(joint.offsets)), np.diff(joint.offsets)
    raw = np.stack([source.scores.reward for source in loaded], axis=-1) if used.inputs else joint.reward
    new: dict[str, Any] = {"probability": used.p_best(raw, prompt)}
    if used.threshold is not None:
        new["p_correct"] = used.p_correct(raw)
    new["percentile"] = used.percentile(joint.reward)
    new["beats_typical"] = _beats_typical(joint, used)
    accepted, other_sizes = None, 0
    if used.rule is not None:
        accept = used.accept(raw, prompt)
        new["decision"] = np.full(len(joint), "", dtype=object)
        new["decision"][first_and_next(joint.reward, sizes)[0]] = "ask"
        new["decision"][accept] = "accept"
        accepted = float(accept.sum() / joint.n_items)
        fewest, most = used.rule.responses
        other_sizes = int(((sizes < fewest) | (sizes > most)).sum())
    table = loaded[0].table
    added = _by_input_row(new, loaded[0].row, joint.response, len(table))
    twice = [name for name in added if name in table.columns]
    if twice:
        raise ValueError(f"{table.source}: has a column {twice[0]!r} already; rename or remove it")
    outside = int(used.outside(raw).sum())
    other = _other_model(loaded[0].scores, used)
    return Applied(used, added, dict(table.columns), joint.n_items, accepted, outside, other_sizes, other)


def _other_model(scores: Scores, calibrator: Calibrator) -> str:
    """Return the model of a run if the calibrator was fitted on the run of another one; files name no model."""
    are_runs = not calibrator.inputs and bool(
        scores.manifest.get("kind") and calibrator.fitted_on.get("judge")
    )
    return scores.name if are_runs and scores.name != calibrator.model else ""


def _sources(scores: Any, calibrator: Calibrator) -> Sequence[Any]:
    """Return the scores of each of the calibrator's judges, in their order."""
    names = [judge.name for judge in calibrator.inputs]
    if not names:
        return [scores]
    if isinstance(scores, Mapping):
        missing = [name for name in names if name not in scores]
        if missing:
            raise ValueError(f"scores: there are none of {clean_line(missing[0])}, a judge of the panel")
        return [scores[name] for name in names]
    if isinstance(scores, list | tuple) and len(scores) == len(names):
        return scores
    listed = ", ".join(clean_line(name) for name in names)
    raise ValueError(
        f"scores: the calibrator is of a panel; give the scores of its judges, in order: {listed}"
    )


def _beats_typical(scores: Scores, calibrator: Calibrator) -> FloatArray:
    """Return the mean of σ((r − r_j)/T) over the other responses of a prompt, or the reference rewards: (N,)."""
    from scipy.special import expit

    sizes, result = np.diff(scores.offsets), np.empty(len(scores))
    for m in np.unique(sizes).tolist():
        rows = np.flatnonzero(np.repeat(sizes == m, sizes))
        scaled = scores.reward[rows].reshape(-1, m) / calibrator.temperature
        if m == 1:
            others = np.asarray(calibrator.reference, dtype=np.float64) / calibrator.temperature
            wins = sum((expit(scaled - other) for other in others), np.zeros(scaled.shape))
            result[rows] = (wins / (len(others) or np.nan)).ravel()
        else:
            wins = sum((expit(scaled - scaled[:, [j]]) for j in range(m)), np.zeros(scaled.shape))
            result[rows] = ((wins - 0.5) / (m - 1)).ravel()  # without itself
    return result


def _by_input_row(columns: Mapping[str, Any], row: IntArray, response: IntArray, n: int) -> dict[str, Any]:
    """Put columns (N,) into the order of the input's rows, one column per response if a row has several."""
    import pandas

    several = len(np.unique(row)) < len(row)
    result: dict[str, Any] = {}
    for name, values in columns.items():
        for number in np.unique(response).tolist() if several else [None]:
            mine = slice(None) if number is None else response == number
            column = pandas.Series(values[mine], index=row[mine]).reindex(range(n))
            if name == "decision":
                column = column.fillna("")  # a row without such a response
            result[name if number is None else f"{name}_{number}"] = column.to_numpy()
    return result
