"""The label-ranking experiment from Python: ``run_prolr`` and its result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rmcalib._util.files import write_file, write_text
from rmcalib._util.storage import as_path
from rmcalib.tabular._datasets import Dataset, load_dataset
from rmcalib.tabular._experiment import run_experiment
from rmcalib.tabular._figures import errors_by_k
from rmcalib.tabular._learners import LearnerFactory
from rmcalib.tabular._plan import Plan
from rmcalib.tabular._tables import fold_means, stagewise_verdicts

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["ProlrResult", "run_prolr"]

_SHOWN = ("abs", "l2-squared", "l1")  # one discrepancy per notion; the last two are for full-rank


def run_prolr(
    data: str | Dataset | Sequence[str | Dataset] = "iris",
    plan: Plan | None = None,
    *,
    learners: Mapping[str, LearnerFactory] | None = None,
    folder: str | Path | None = None,
    processes: int = 1,
    fresh: bool = False,
    on_done: Callable[[str], None] = lambda label: None,  # noqa: ARG005 (for a progress bar)
) -> "ProlrResult":
    """Train label-ranking learners by cross-validation and measure the calibration of their forecasts.

    Parameters
    ----------
    data : str, Dataset, or a sequence of them
        Names of public data sets (``DATASETS``), or your own from :func:`read_csv`.
    plan : Plan, optional
        Learners, folds, seed, and what to measure. ``Plan()`` by default.
    learners : mapping of str to callable, optional
        Your own learners, which replace those of the plan. Each value is a function that takes a seed and
        returns a :class:`Learner`. ``LEARNERS`` holds the built-in ones.
    folder : str or Path, optional
        Where finished folds are kept. Running the same experiment again continues where it stopped. By
        default, nothing is kept.
    processes : int
        Number of folds that are trained at the same time. With more than one, your own learners must be
        functions or classes of a module.
    fresh : bool
        Start over, even if ``folder`` holds another run.
    on_done : callable
        Called with the label of each finished fold.

    Returns
    -------
    ProlrResult
        The results are in ``table``, their means over folds in ``summary``.

    Examples
    --------
    >>> from rmcalib.tabular import MallowsLearner, Questions
    >>> plan = Plan(folds=2, questions=Questions(sub=(2,), top=(), resamples=0))
    >>> result = run_prolr("iris", plan, learners={"my-mallows": lambda seed: MallowsLearner()})
    >>> result.summary[["learner", "notion", "folds"]].values.tolist()[0]
    ['my-mallows', 'kendall_tau', 2]
    """
    given = [data] if isinstance(data, str | Dataset) else list(data)
    datasets = tuple(load_dataset(one) if isinstance(one, str) else one for one in given)
    names = [one.name for one in datasets]
    if len(set(names)) < len(names):
        raise ValueError(f"data: two data sets are called {max(names, key=names.count)!r}")
    chosen = Plan() if plan is None else plan

    def run(where: str | Path) -> "ProlrResult":
        table = run_experiment(
            datasets, chosen, where, learners=learners, processes=processes, fresh=fresh, on_done=on_done
        )
        return ProlrResult(datasets, chosen, table)

    if folder is not None:
        return run(folder)
    with TemporaryDirectory() as temporary:
        return run(temporary)


@dataclass(frozen=True, eq=False)
class ProlrResult:
    """The results of :func:`run_prolr`.

    Attributes
    ----------
    datasets : tuple of Dataset
        The data.
    plan : Plan
        The plan of the experiment.
    table : pandas DataFrame
        One row per measure, learner and fold, with the columns of ``results.csv``.

    Examples
    --------
    >>> from rmcalib.tabular import Questions
    >>> plan = Plan(learners=("mallows",), folds=2, questions=Questions(sub=(2,), top=(), resamples=0))
    >>> result = run_prolr("wine", plan)
    >>> result.table[["dataset", "learner", "notion"]].values.tolist()[0]
    ['wine', 'mallows', 'kendall_tau']
    """

    datasets: tuple[Dataset, ...]
    plan: Plan
    table: "pd.DataFrame"

    @cached_property
    def summary(self) -> "pd.DataFrame":
        """Means over folds: one row per data set, learner and measure, as in ``summary.csv``."""
        return fold_means(self.table)

    @property
    def verdicts(self) -> list[str]:
        """One sentence per data set and learner: the first k for which its error is too large."""
        return stagewise_verdicts(self.table)

    def figure(self, name: str) -> "Figure":
        """Draw the error against k for the data set ``name``, with the plan's first notion and protocol.

        Error bars are one standard deviation over folds. Dotted lines are null means: the expected error of a
        calibrated forecast. The full-rank error is drawn as excess over its null mean if it has one.
        """
        rows = self._drawn(name)
        if rows.empty:
            known = ", ".join(one.name for one in self.datasets if not self._drawn(one.name).empty)
            raise ValueError(f"name: no errors to draw for {name!r} (have: {known or 'none'})")
        questions = self.plan.questions
        title = f"{name}: {questions.notions[0]} error, {questions.protocols[0]} protocol"
        if questions.notions[0] == "full-rank" and rows["excess"].notna().any():
            excess = rows.assign(mean=rows["excess"], null_mean=rows["null_mean"] * 0)
            return errors_by_k(excess, title=title, label="excess over the null mean")
        return errors_by_k(rows, title=title)

    def write(self, folder: str | Path) -> list[Path]:
        """Write results.csv, summary.csv and a figure per data set; return their paths."""
        out = as_path(folder)
        paths = [
            write_text(out / "results.csv", self.table.to_csv(index=False)),
            write_text(out / "summary.csv", self.summary.to_csv(index=False)),
        ]
        for data in self.datasets:
            if not self._drawn(data.name).empty:
                # The file does not name matplotlib's version, so the same figure has the same bytes.
                save = partial(self.figure(data.name).savefig, format="png", metadata={"Software": None})
                paths.append(write_file(out / f"{data.name}.png", save))
        return paths

    def _drawn(self, name: str) -> "pd.DataFrame":
        means, questions = self.summary, self.plan.questions
        return means[
            (means["dataset"] == name)
            & (means["notion"] == questions.notions[0])
            & (means["protocol"] == questions.protocols[0])
            & means["discrepancy"].isin(_SHOWN)
        ]
