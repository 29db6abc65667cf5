"""The evaluation of one model on one benchmark: metrics, figures, examples, page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib import __version__
from rmcalib._util.arrays import check_choice
from rmcalib._util.files import write_bytes, write_csv, write_json, write_text
from rmcalib._util.storage import as_path
from rmcalib._util.terminal import clean_line
from rmcalib.benchmarks import Benchmark, load_benchmark, official_score
from rmcalib.judges import Recipe, recipe_of_run, registry, scale_note, why_no_calibration
from rmcalib.metrics import (
    OVERALL,
    Example,
    Forecasts,
    Settings,
    Ties,
    answer_rows,
    audit,
    catalogue,
    chosen_metrics,
    find_value,
    forecast,
    isotonic_panels,
    margin_panels,
    metric_rows,
    reliability_panels,
    response_lengths,
    select_prompts,
    top_1_prompts,
    worst_examples,
)
from rmcalib.repair import Decisions, decide_forecasts
from rmcalib.report._drawing import figure_png
from rmcalib.report._headline import crowded_bin
from rmcalib.report._reliability import CURVES, Curve, reliability_figure
from rmcalib.report.evaluation._answers import answer_notes
from rmcalib.report.evaluation._notes import score_notes, undecided_notes
from rmcalib.report.evaluation._votes import has_votes, tie_note
from rmcalib.report.evaluation._words import beta_notes, plain_words, temperature_notes, values_in_words
from rmcalib.runs import content_hash, inputs_hash
from rmcalib.scores import Scores

if TYPE_CHECKING:
    import pandas

__all__ = ["Evaluation", "evaluate", "made_from", "write_evaluation"]

UNNAMED = "unnamed-benchmark"
"""The name of the benchmark if the scores do not have one."""


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of one model on one benchmark.

    Attributes
    ----------
    model, benchmark : str
        Their names.
    metrics : list[dict[str, Any]]
        Tidy rows (model, benchmark, category, metric, value, low, high, n, note).
    reliability, margins : list[dict[str, Any]]
        The tables that the figures are drawn from.
    examples : list[Example]
        The prompts with the worst forecasts.
    notes : list[str]
        Warnings and remarks for readers.
    summary : str
        The result in a few sentences.
    manifest : dict[str, Any]
        How the scores were made.
    settings : Settings
        Bins, resamples, level, seed and ties.
    made_from : str
        A hash of all inputs of the result.
    groups : list[dict[str, Any]]
        Rows of an audit by group (group_by, group, n, says, right, gap, low, high, p_adjusted, flagged);
        empty without ``group_by``.
    decisions : Decisions, optional
        How well the probabilities work for decisions; None if there are none, or if only some metrics were
        computed.
    isotonic : list[dict[str, Any]]
        Rows (panel, probability, frequency) of the isotonic reliability curves; empty unless ``curve`` is
        "isotonic".
    answers : list[dict[str, Any]]
        Rows about the answers of a language model (name, value, low, high, n, meaning); empty for other
        judges.

    Examples
    --------
    >>> report = evaluate(Scores.from_arrays([[2.0, 0.0], [0.0, 2.0]]), model="org/rm", resamples=20)
    >>> report.value("accuracy"), report.content()["model"]
    (0.5, 'org/rm')
    """

    model: str
    benchmark: str
    metrics: list[dict[str, Any]]
    reliability: list[dict[str, Any]]
    margins: list[dict[str, Any]]
    examples: list[Example]
    notes: list[str]
    summary: str
    manifest: dict[str, Any]
    settings: Settings
    made_from: str
    groups: list[dict[str, Any]] = field(default_factory=list)
    decisions: Decisions | None = None
    isotonic: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def __repr__(self) -> str:
        """Return the names of model and benchmark, and the summary."""
        return f"Evaluation({self.model!r} on {self.benchmark!r}: {self.summary})"

    @property
    def table(self) -> pandas.DataFrame:
        """The metrics as a pandas table, one row per category and metric."""
        import pandas

        return pandas.DataFrame(self.metrics)

    def value(self, metric: str, category: str = OVERALL) -> float | None:
        """Return the value of one metric; None if it is not available (the row's note says why)."""
        row = find_value(self.metrics, metric, category)
        if row is None:
            raise ValueError(f"metric {metric!r} of category {category!r}: no such row (see .table)")
        value: float | None = row["value"]
        return value

    def content(self) -> dict[str, Any]:
        """Return everything except the texts of the examples, ready for JSON."""
        settings = self.settings
        return {
            "model": self.model,
            "benchmark": self.benchmark,
            "protocol": "exact",
            "bins": settings.bins,
            "resamples": settings.resamples,
            "level": settings.level,
            "seed": settings.seed,
            "made_from": self.made_from,
            "summary": self.summary,
            "notes": self.notes,
            "metrics": self.metrics,
            "reliability": self.reliability,
            "margins": self.margins,
            **({"groups": self.groups} if self.groups else {}),
            **({"decisions": self.decisions.content()} if self.decisions else {}),
            **({"isotonic": self.isotonic} if self.isotonic else {}),
            **({"answers": self.answers} if self.answers else {}),
            "worst": [example.item_id for example in self.examples],
            "manifest": self.manifest,
        }

    def to_html(self, path: str | Path) -> Path:
        """Write the page: one self-contained file."""
        from rmcalib.report.evaluation._page import evaluation_page

        return write_text(path, evaluation_page(self))

    def to_json(self, path: str | Path) -> Path:
        """Write all numbers as JSON."""
        return write_json(path, self.content())

    def to_csv(self, path: str | Path) -> Path:
        """Write the metrics as CSV."""
        return write_csv(path, self.metrics)

    def to_png(self, path: str | Path) -> Path:
        """Write the reliability diagrams."""
        return write_bytes(path, figure_png(reliability_figure(self.reliability, self.isotonic)))


def evaluate(
    scores: Scores,
    *,
    benchmark: str | Benchmark | None = None,
    model: str | None = None,
    recipe: Recipe | None = None,
    recipes: Iterable[str | Path] = (),
    bins: int = 10,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    n_examples: int = 10,
    metrics: Iterable[str] | None = None,
    group_by: Iterable[str] = (),
    ties: Ties = "drop",
    curve: Curve = "bins",
) -> Evaluation:
    """Evaluate a reward model from its scores: calibration with intervals, overall and by category.

    Parameters
    ----------
    scores : Scores
        The result of :func:`rmcalib.score` or :func:`rmcalib.load_scores`.
    benchmark : str | Benchmark, optional
        Where the texts come from: a benchmark, or what :func:`rmcalib.load_benchmark` accepts. It is needed
        for the texts of examples and for lengths in characters, not for the other metrics.
    model : str, optional
        The name of the model; by default the name in the scores' manifest.
    recipe, recipes
        How the model was trained; by default the entry in the registry (or in these YAML files), or what was
        known when it was scored.
    bins, resamples, level, seed
        Bins of the ECE; resamples, level and seed of the intervals.
    n_examples : int
        Number of examples with the worst forecasts.
    metrics : Iterable[str], optional
        Names of the metrics to compute (see docs/metrics.md); by default all.
    group_by : Iterable[str]
        Groupings to report the gap by: category, length, responses, or a column of the benchmark.
    ties : Ties
        How votes for "equally good" are counted: "split" them among the responses, "drop" them, or give ties
        a separate probability ("davidson", "rao-kupper").
    curve : Curve
        "isotonic" adds the isotonic (CORP) curve, which needs no bins, to the reliability diagrams.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> columns = {"item_id": ["a"] * 2 + ["b"] * 2, "category": ["Math"] * 4, "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [3.0, 0.0, 0.0, 3.0]}
    >>> report = evaluate(Scores.from_columns(columns), model="org/rm", resamples=50)
    >>> report.value("accuracy"), round(report.value("overconfidence"), 3)
    (0.5, 0.453)
    """
    if not isinstance(scores, Scores):
        raise TypeError(
            f"scores: expected the result of rmcalib.score or load_scores, got {type(scores).__name__} "
            "(rmcalib.Scores.from_columns makes scores from columns)"
        )
    check_choice(curve, "curve", CURVES)
    if isinstance(benchmark, str):
        benchmark = load_benchmark(benchmark)
    every, scores = scores, scores.decided()
    name = clean_line(model or scores.manifest.get("model") or "unknown model")
    on = benchmark.name if benchmark is not None else str(scores.manifest.get("benchmark") or UNNAMED)
    recipe = recipe or recipe_of_run(name, scores.manifest, registry(recipes))
    reason = why_no_calibration(recipe)
    settings = Settings(bins, resamples, level, seed, ties)
    lengths = response_lengths(every, benchmark)
    grouped = list(group_by)
    wanted = None if metrics is None else [metric.name for metric in chosen_metrics(metrics)]
    rows = metric_rows(
        every,
        model=name,
        benchmark=on,
        lengths=lengths,
        no_calibration=reason,
        settings=settings,
        metrics=wanted,
        official=official_score(every, benchmark),
    )
    everything = forecast(scores)
    reliability = [] if reason else reliability_panels(everything, settings)
    crowded = crowded_bin([row for row in reliability if row["panel"] == OVERALL])
    return Evaluation(
        model=name,
        benchmark=on,
        metrics=rows,
        reliability=reliability,
        margins=margin_panels(everything),
        examples=[] if reason else worst_examples(scores, everything, benchmark, n_examples),
        notes=[
            *undecided_notes(every.n_items - scores.n_items, voted=has_votes(rows)),
            *tie_note(rows, ties),
            *([crowded] if crowded else []),
            *answer_notes(scores),
            *score_notes(scores, benchmark, recipe, in_characters=lengths is not None),
            *([] if reason else temperature_notes(rows)),
            *([] if reason else beta_notes(rows, scores.manifest)),
        ],
        summary=plain_words(rows, p_floor=1 / (resamples + 1)) if wanted is None else values_in_words(rows),
        manifest=scores.manifest,
        settings=settings,
        made_from=made_from(every, recipe, benchmark, settings, wanted, grouped, curve),
        groups=audit(scores, benchmark=benchmark, group_by=grouped, level=level).rows
        if grouped and not reason
        else [],
        isotonic=isotonic_panels(everything) if curve == "isotonic" and not reason else [],
        answers=answer_rows(scores, settings),
        decisions=None if reason or wanted is not None else _decisions(everything, settings),
    )


def _decisions(forecasts: Forecasts, settings: Settings) -> Decisions | None:
    members = top_1_prompts(forecasts)
    if not members.any():
        return None
    return decide_forecasts(select_prompts(forecasts, members), level=settings.level, seed=settings.seed)


def made_from(
    scores: Scores,
    recipe: Recipe,
    benchmark: Benchmark | None,
    settings: Settings,
    metrics: Sequence[str] | None = None,
    group_by: Sequence[str] = (),
    curve: Curve = "bins",
) -> str:
    """Return a hash of the inputs of an evaluation. If it has not changed, the evaluation is up to date.

    It is stored in `metrics.json`. Only the scale of the recipe and the texts of the benchmark matter.

    Parameters
    ----------
    scores, benchmark, metrics, group_by, curve
        As for :func:`evaluate`.
    recipe : Recipe
        How the model was trained.
    settings : Settings
        Bins, resamples, level, seed and ties.

    Returns
    -------
    str

    Examples
    --------
    >>> scores, recipe = Scores.from_arrays([[2.0, 0.0]]), Recipe("org/rm")
    >>> made_from(scores, recipe, None, Settings()) == made_from(scores, recipe, None, Settings(seed=1))
    False
    """
    return inputs_hash(
        {
            "scores": [scores.manifest.get("hash"), content_hash(scores)],
            "scale": [why_no_calibration(recipe), scale_note(recipe)],
            "texts": None if benchmark is None else [benchmark.name, benchmark.revision, len(benchmark)],
            "settings": {k: v for k, v in asdict(settings).items() if k != "ties" or scores.has_votes},
            "rmcalib": __version__,
            **({} if metrics is None else {"metrics": list(metrics)}),
            **({"group_by": list(group_by)} if group_by else {}),
            **({} if curve == "bins" else {"curve": curve}),
            **({"more": added} if (added := _added_metrics()) else {}),
        }
    )


def _added_metrics() -> list[str]:
    """Return the names of the metrics that other packages add."""
    return sorted(name for name, metric in catalogue().items() if metric.source)


def write_evaluation(evaluation: Evaluation, folder: str | Path) -> Path:
    """Write metrics.csv, reliability.png, report.html and metrics.json.

    Parameters
    ----------
    evaluation : Evaluation
        The result of :func:`evaluate`.
    folder : str | Path
        A folder or URL; files of an earlier evaluation are replaced.

    Returns
    -------
    Path
        The path of the page.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> report = evaluate(Scores.from_arrays([[2.0, 0.0], [0.0, 2.0]]), model="org/rm", resamples=20)
    >>> with TemporaryDirectory() as folder:
    ...     write_evaluation(report, folder).name
    'report.html'
    """
    out = as_path(folder)
    evaluation.to_csv(out / "metrics.csv")
    if evaluation.groups:
        write_csv(out / "groups.csv", evaluation.groups)
    else:
        (out / "groups.csv").unlink(missing_ok=True)  # left by an earlier evaluation
    if evaluation.reliability:
        evaluation.to_png(out / "reliability.png")
    else:
        (out / "reliability.png").unlink(missing_ok=True)  # left by an earlier evaluation
    page = evaluation.to_html(out / "report.html")
    evaluation.to_json(out / "metrics.json")  # last: for a batch it means that all files are written
    return page
