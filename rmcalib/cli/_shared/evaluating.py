"""The jobs of ``rmcalib eval``: one model on one benchmark, from its scores to the files of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rmcalib.cli._shared.calibrators import calibrated
from rmcalib.cli._shared.conditions import Condition, check_categories
from rmcalib.cli._shared.progress import working
from rmcalib.cli._shared.sources import Failure, for_each_model, given_scores, run_model

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.cli._shared.scoring_options import Scoring
    from rmcalib.metrics import Settings
    from rmcalib.repair import Calibrator
    from rmcalib.report import Evaluation
    from rmcalib.scores import Scores

__all__ = ["Done", "Given", "Job", "Reporting", "run_jobs"]


@dataclass(frozen=True)
class Given:
    """Scores that were made elsewhere: where they are, and the scores of each model of a file."""

    source: str
    models: dict[str, Scores]


@dataclass(frozen=True)
class Reporting:
    """What all reports of one command share."""

    settings: Settings
    conditions: Sequence[Condition]
    examples: int
    curve: Literal["bins", "isotonic"]
    calibrator: Calibrator | None
    export: Path | None
    quiet: bool


@dataclass(frozen=True)
class Done:
    """One evaluated model: the result, its folder, the scores, and the conditions of --fail-if that hold."""

    result: Evaluation
    folder: Path
    scores: Scores
    met: tuple[Condition, ...]


@dataclass(frozen=True)
class Job:
    """Evaluate models on one benchmark."""

    scoring: Scoring
    given: Given | None
    benchmark: Benchmark | None
    group_by: Sequence[str]
    report: Reporting

    def run(self, name: str | None) -> Done | None:
        """Get one model's scores, evaluate them and write the report.

        Of several processes, only the main one evaluates; the others return None.
        """
        from rmcalib._util.processes import is_main_process
        from rmcalib.judges import recipe_of_run, registry, remember_model
        from rmcalib.report import evaluate, write_evaluation
        from rmcalib.runs import keep_scores

        report = self.report
        scores, name, folder = self._scores(name)
        if not is_main_process():
            return None
        recipe = recipe_of_run(name, scores.manifest, registry(self.scoring.recipes or ()))
        used = calibrated(scores, report.calibrator, name, quiet=report.quiet)
        with working(f"evaluating {name}", quiet=report.quiet):
            result = evaluate(
                used,
                benchmark=self.benchmark,
                model=name,
                recipe=recipe,
                resamples=report.settings.resamples,
                seed=report.settings.seed,
                ties=report.settings.ties,
                n_examples=report.examples,
                group_by=self.group_by,
                curve=report.curve,
            )
            if report.export is not None:
                named = replace(scores, manifest={**scores.manifest, "model": name})
                named.to_rewardbench_json(report.export)
            if self.given is not None:
                keep_scores(folder, remember_model(scores, recipe), fresh=self.scoring.fresh)
            if report.calibrator is not None:
                folder = folder / "calibrated"
            elif self._would_lose_texts(folder, scores):
                folder = folder / "without-texts"
            write_evaluation(result, folder)
        met = tuple(one for one in report.conditions if one.met(result.metrics))
        return Done(result, folder, used, met)

    def _would_lose_texts(self, folder: Path, scores: Scores) -> bool:
        """Return whether the folder has the page of the run that the scores are from, which has the texts."""
        from rmcalib.runs import is_own_run

        if self.given is None or self.benchmark is not None or not (folder / "report.html").is_file():
            return False
        return is_own_run(folder, scores)

    def _scores(self, name: str | None) -> tuple[Scores, str, Path]:
        """Return the scores, the model's name and the run folder."""
        from rmcalib.runs import run_folder

        bench = self.benchmark
        if self.given is None:
            assert name is not None and bench is not None  # noqa: PT018 (both follow from having no scores)
            check_categories(self.report.conditions, bench.categories)
            scores, label = run_model(name, bench, self.scoring, quiet=self.report.quiet), bench.name
        else:
            scores, name, label = given_scores(self.given.source, name, bench, self.given.models)
            check_categories(self.report.conditions, dict.fromkeys(scores.category.tolist()))
        return scores, name, run_folder(self.scoring.output, name, label)


def run_jobs(names: Sequence[str | None], jobs: Sequence[Job]) -> tuple[list[Done], list[Failure]]:
    """Run every model on every benchmark; return what was evaluated, and the models that failed."""
    done: list[Done | None] = []
    failed: list[Failure] = []
    alone = len(names) * len(jobs) == 1
    for name in names:
        for job in jobs:
            one, errors = for_each_model([name], job.run, alone=alone)
            done += one
            failed += errors
    return [one for one in done if one is not None], failed
