"""Cross-validated experiments: data sets × learners × folds, in parallel and resumable."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib import __version__
from rmcalib._util.arrays import check_integer
from rmcalib._util.files import write_csv, write_text
from rmcalib._util.interrupts import end_with_parent, spared
from rmcalib._util.terminal import count
from rmcalib.runs import RunFolder
from rmcalib.tabular._datasets import Dataset
from rmcalib.tabular._folds import Job, fold_rows
from rmcalib.tabular._learners import LearnerFactory
from rmcalib.tabular._plan import Plan
from rmcalib.tabular._tables import read_results

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["run_experiment"]

_FILES = ("results.csv", "parts/*__*__fold-*.csv")

Done = Callable[[str], None]


def run_experiment(
    datasets: Sequence[Dataset],
    plan: Plan,
    output: str | Path,
    *,
    learners: Mapping[str, LearnerFactory] | None = None,
    processes: int = 1,
    fresh: bool = False,
    on_done: Done = lambda label: None,  # noqa: ARG005 (for a progress bar)
) -> "pd.DataFrame":
    """Run every data set, learner and fold, write ``results.csv`` and return it as a table.

    ``learners`` replace those of the plan. Finished folds are kept in ``parts/``: running the same experiment
    again continues where it stopped. The number of processes does not change the numbers. Another plan or
    other data in the same folder is refused unless ``fresh``. ``on_done`` is called with the label of each
    fold, whether it was finished now or earlier.
    """
    import pandas as pd

    check_integer(processes, "processes", 1)
    if not datasets:
        raise ValueError("dataset: none given")
    for data in datasets:
        if len(data) < 2 * plan.folds:
            raise ValueError(
                f"{data.name}: {count(len(data), 'row')} {'is' if len(data) == 1 else 'are'} too few for "
                f"{plan.folds} folds of at least two rows; use fewer folds or more rows"
            )
    factories: dict[str, LearnerFactory | None] = (
        dict.fromkeys(plan.learners) if learners is None else _own_learners(learners, plan, processes)
    )
    jobs = [
        Job(data, name, fold, plan, factory)
        for data in datasets
        for name, factory in factories.items()
        for fold in range(plan.folds)
    ]
    with RunFolder(output, _inputs(datasets, plan, factories), _FILES, fresh=fresh) as run:
        parts = {job.label: run.folder / "parts" / f"{job.label}.csv" for job in jobs}
        waiting = []
        for job in jobs:
            if parts[job.label].is_file():
                on_done(job.label)
            else:
                waiting.append(job)
        _run(waiting, parts, processes, on_done)
        table = pd.concat([read_results(parts[job.label]) for job in jobs], ignore_index=True)
        write_text(run.folder / "results.csv", table.to_csv(index=False))
        run.finish()
    return table


def _own_learners(
    learners: Mapping[str, LearnerFactory], plan: Plan, processes: int
) -> dict[str, LearnerFactory | None]:
    """Check the user's own learners and return them."""
    if not learners:
        raise ValueError("learners: none given")
    if plan.training == "reference":
        raise ValueError("training: 'reference' cannot train other learners; use training='exact'")
    for name, factory in learners.items():
        if not name or not all(c.isalnum() or c in "-_.+" for c in name) or "__" in name:
            raise ValueError(
                f"learners: bad name {name!r}; use letters, digits, '-', '_', '.' and '+', and no '__'"
            )
        if not callable(factory):
            raise ValueError(
                f"learners: {name!r} is {factory!r}, expected a function from a seed to a learner"
            )
        if processes > 1:
            try:
                pickle.dumps(factory)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise ValueError(
                    f"learners: {name!r} cannot be sent to another process ({error}); "
                    "use processes=1, or a function or class of a module"
                ) from error
    return dict(learners)


def _inputs(
    datasets: Sequence[Dataset], plan: Plan, factories: Mapping[str, LearnerFactory | None]
) -> dict[str, Any]:
    """Return everything that the results depend on."""
    content: dict[str, Any] = {
        "rmcalib": __version__,
        "datasets": {data.name: data.fingerprint for data in datasets},
        "plan": asdict(plan) | {"learners": list(factories)},
    }
    own = {
        name: f"{getattr(factory, '__module__', '')}.{getattr(factory, '__qualname__', factory)}"
        for name, factory in factories.items()
        if factory is not None
    }
    return content | ({"learners": own} if own else {})


def _run(jobs: list[Job], parts: dict[str, Path], processes: int, on_done: Done) -> None:
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            write_csv(parts[job.label], fold_rows(job))
            on_done(job.label)
        return
    # Spawned, not forked: torch and BLAS threads do not survive a fork.
    spawn, size = get_context("spawn"), min(processes, len(jobs))
    with ProcessPoolExecutor(size, mp_context=spawn, initializer=end_with_parent) as pool:
        try:
            with spared():
                futures = {pool.submit(fold_rows, job): job for job in jobs}
            for future in as_completed(futures):
                label = futures[future].label
                write_csv(parts[label], future.result())
                on_done(label)
        except BaseException:
            for process in list(pool._processes.values()):  # a fold may take minutes; do not wait for it
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise
