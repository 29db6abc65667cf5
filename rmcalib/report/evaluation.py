"""The evaluation of one model on one benchmark: everything is computed here, and drawn elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from rmcalib import __version__
from rmcalib._util.arrays import check_choice
from rmcalib._util.display import clean_line
from rmcalib._util.files import json_hash, write_bytes, write_csv, write_json, write_text
from rmcalib._util.secrets import masked
from rmcalib._util.storage import as_path, remove_file
from rmcalib._util.texts import did_you_mean
from rmcalib.benchmarks import Benchmark, load_benchmark, official_score
from rmcalib.calibration.estimates import difference_of
from rmcalib.metrics import table as tables
from rmcalib.metrics.audit import audit, check_groupings
from rmcalib.metrics.catalogue import PLAIN, Metric, catalogue, chosen_metrics, shown_metric
from rmcalib.metrics.comparison import smallest_gap
from rmcalib.metrics.conditions import holds
from rmcalib.metrics.labelled import labelled_facts
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.results import Shown, data_frame
from rmcalib.metrics.statements import corrected, shown_statements, statement_tests
from rmcalib.metrics.table import OVERALL, Row
from rmcalib.metrics.views import FEWEST, TIES, Part, Ties, whole_part
from rmcalib.repair.calibration import Calibration
from rmcalib.repair.calibrator import Calibrator, CalibratorCheck, as_calibrator
from rmcalib.repair.decisions import Decisions, decide
from rmcalib.report.calibrations import check_words
from rmcalib.report.document import to_html
from rmcalib.report.figures import figure_bytes, reliability_figure
from rmcalib.report.notes import score_notes
from rmcalib.report.sentences import UNNAMED, evaluation_sentences
from rmcalib.scores import Scores, load_scores
from rmcalib.scores._label_texts import TEXT_COLUMNS
from rmcalib.scores._labels import could_be_labels

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

Curve = Literal["bins", "isotonic"]


@dataclass(frozen=True)
class Evaluation(Shown):
    """The evaluation of one model on one benchmark. It computes nothing further.

    Attributes
    ----------
    model, benchmark : str
        Their names.
    table : DataFrame
        One row per category and metric: category, metric, value, low, high, n, note. ``rows`` has the same as dicts.
    groups : DataFrame
        The gap of each category and of the groups of ``group_by``: group_by, group, n, says, right, gap, low, high,
        pooled, p_value, p_adjusted, flagged.
    first_choice : DataFrame
        The bins of the page's first diagram: how sure the model is against how often it is right.
    reliability, isotonic : DataFrame
        The bins, and the isotonic curves, of the diagrams of all responses.
    facts : dict
        What the sentences need besides the metrics: view ("top_1": one response is the best; "pointwise": each is
        correct or not), by_majority (the best response is what most of several people prefer), prompts, responses,
        clusters, chance (accuracy of a random
        choice), smallest_gap (that these prompts can show), gain (of a temperature on other prompts, with its
        interval), tests (the p-value of each statement against the model: gap, cancels, groups, scale, check),
        shown (those statements that hold after the correction for all of them).
    decisions : Decisions, optional
        When the first choice can be accepted; None if there are no probabilities.
    notes : list of str
        Warnings and remarks.
    settings : Settings
        How the metrics were computed.
    manifest : dict
        How the scores were made.
    made_from : str
        A hash of all inputs.
    scores, texts : Scores, Benchmark or None
        What was evaluated.

    Examples
    --------
    >>> report = evaluate(Scores.from_arrays([[2.0, 0.0], [0.0, 2.0]]), model="org/rm", resamples=20)
    >>> report.value("right"), report.content()["model"], report.holds("abs(gap) > 0.9")
    (0.5, 'org/rm', False)
    """

    model: str
    benchmark: str
    rows: list[Row]
    group_rows: list[Row]
    facts: dict[str, Any]
    first_choice_rows: list[Row]
    reliability_rows: list[Row]
    isotonic_rows: list[Row]
    decisions: Decisions | None
    notes: list[str]
    settings: Settings
    manifest: dict[str, Any]
    made_from: str
    scores: Scores = field(repr=False)
    texts: Benchmark | None = field(default=None, repr=False)

    @property
    def groups(self) -> pandas.DataFrame:
        """The gaps by group."""
        return data_frame(self.group_rows)

    @property
    def first_choice(self) -> pandas.DataFrame:
        """The bins of the page's first diagram."""
        return data_frame(self.first_choice_rows)

    @property
    def reliability(self) -> pandas.DataFrame:
        """The bins of the diagrams of all responses."""
        return data_frame(self.reliability_rows)

    @property
    def isotonic(self) -> pandas.DataFrame:
        """The isotonic curves of the diagrams of all responses."""
        return data_frame(self.isotonic_rows)

    @property
    def summary(self) -> str:
        """The result in a few sentences."""
        return " ".join(evaluation_sentences(self))

    def value(self, metric: str, category: str = OVERALL) -> float | None:
        """Return the value of one metric, such as "gap"; None if it is not available (the row's note says why)."""
        name = metric if metric in catalogue() else shown_metric(metric, self.facts["view"])
        row = tables.find_value(self.rows, name, category)
        categories = dict.fromkeys(each["category"] for each in self.rows)
        if row is None and category not in categories:
            raise ValueError(f"category {category!r}: unknown (have: {', '.join(categories)})")
        if row is None:
            near = did_you_mean(metric, dict.fromkeys([*PLAIN, *(each["metric"] for each in self.rows)]))
            raise ValueError(
                f"metric {metric!r} of category {category!r}: not measured ({near}; .table has all)"
            )
        value: float | None = row["value"]
        return value

    def holds(self, condition: str) -> bool:
        """Return whether a condition such as ``"gap.low > 0.05"`` holds: a gate for scripts and tests.

        A condition compares a metric with a number. ``gap[Math]`` is about a category, ``gap.low`` and ``gap.high``
        are the ends of the interval, ``abs(gap)`` is its size; the command line has the same as ``--fail-if``.
        """
        return holds(condition, self.rows, self.facts["view"])

    def content(self) -> dict[str, Any]:
        """Return all numbers, ready for JSON."""
        changed = ("rows", "group_rows", "settings", "decisions", "scores", "texts")
        return {
            **{
                each.name.removesuffix("_rows"): getattr(self, each.name)
                for each in fields(self)
                if each.name not in changed
            },
            **asdict(self.settings),
            "summary": self.summary,
            "protocol": "exact",
            "metrics": self.rows,
            "groups": self.group_rows,
            "decisions": self.decisions and self.decisions.content(),
        }

    def document(self, source: str = "SCORES", labelled: str = "") -> Any:
        """Return the document of the page; its commands name the ``source`` of the scores.

        ``labelled`` is how `rmcalib label` reads the scores with their labels, if not from the source.
        """
        from rmcalib.report.pages import evaluation_document

        return evaluation_document(self, source, labelled)

    def to_json(self, path: str | Path) -> Path:
        """Write all numbers as JSON."""
        return write_json(path, self.content())

    def to_csv(self, path: str | Path) -> Path:
        """Write the metrics as CSV, with the names of model and benchmark in each row."""
        about = {"model": self.model, "benchmark": self.benchmark}
        return write_csv(path, [about | row for row in self.rows])

    def write(self, folder: str | Path, *, source: str | Path | None = None, labelled: str = "") -> Path:
        """Write report.html, metrics.csv, metrics.json and reliability.png to a folder or URL; return the page.

        ``source`` is where the scores are, if not there: the page names it in commands, as ``labelled`` in `document`.
        """
        out = as_path(folder)
        page = to_html(self.document(masked(str(source or folder)), labelled))  # before files are written
        self.to_csv(out / "metrics.csv")
        if self.reliability_rows:
            write_bytes(out / "reliability.png", figure_bytes(self.diagrams(), "png"))
        else:
            remove_file(out / "reliability.png")  # left by an earlier evaluation
        written = write_text(out / "report.html", page)
        self.to_json(out / "metrics.json")  # last: a batch takes it as the sign that all files are written
        return written

    def diagrams(self) -> Figure:
        """Return the reliability diagrams of all responses, overall and by category, as a matplotlib figure."""
        return reliability_figure(self.reliability_rows, self.isotonic_rows)

    def __repr__(self) -> str:
        """Return the result in a few lines."""
        lines = "\n".join(f"  {sentence}" for sentence in evaluation_sentences(self)[:8])
        where = "" if self.benchmark == UNNAMED else f" on {self.benchmark}"
        return f"Evaluation of {self.model}{where}\n{lines}"


def evaluate(
    scores: Any,
    *,
    benchmark: str | Benchmark | None = None,
    model: str | None = None,
    metrics: Iterable[str | Metric] | None = None,
    group_by: Iterable[str] = (),
    cluster: str | None = None,
    calibrator: Calibrator | Calibration | str | Path | None = None,
    ties: Ties = "drop",
    curve: Curve = "bins",
    bins: int = 10,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Evaluation:
    """Evaluate a reward model from its scores: calibration with intervals, overall and by category.

    Parameters
    ----------
    scores : Scores, DataFrame or path
        The rewards; see `load_scores`.
    benchmark : str or Benchmark, optional
        Where the texts come from. It is needed for reading prompts on the page and for lengths in characters,
        not for the other metrics.
    model : str, optional
        The name of the model; default the one in the scores.
    metrics : names or Metric objects, optional
        What to compute; default everything.
    group_by : names
        Report the gap by category (always), length, responses, or columns of the benchmark.
    cluster : str, optional
        A column that says which prompts belong together.
    calibrator : Calibrator, Calibration or path, optional
        Divide the rewards by its temperature first.
    ties : {"drop", "davidson"}
        How people's votes for "equally good" are counted.
    curve : {"bins", "isotonic"}
        "isotonic" adds a reliability curve that needs no bins (CORP).
    bins, resamples, level, seed
        Bins of the ECE; resamples, level and seed of the intervals.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> report = evaluate(Scores.from_arrays([[3.0, 0.0], [0.0, 3.0]], category="Math"), resamples=50)
    >>> report.value("accuracy"), round(report.value("overconfidence", "Math"), 3)
    (0.5, 0.453)
    """
    check_choice(curve, "curve", get_args(Curve))
    check_choice(ties, "ties", TIES)
    settings = Settings(bins, resamples, level, seed)
    given = load_scores(scores, cluster=cluster)
    if model is not None:
        given = replace(given, manifest={**given.manifest, "model": model})
    if given.labels is None:
        raise ValueError(f"{given.name}: {no_labels(given)}")
    check: CalibratorCheck | None = None
    used = None if calibrator is None else as_calibrator(calibrator)
    if used is not None:
        given, check = _calibrated(given, used)
    texts = load_benchmark(benchmark) if isinstance(benchmark, str) else benchmark
    name = clean_line(given.manifest.get("model") or "unknown model")
    reason = given.refusal()
    wanted, groupings = chosen_metrics(metrics), list(dict.fromkeys(["category", *group_by]))
    columns = _columns(given, texts)
    check_groupings(groupings, columns)
    lengths = tables.response_lengths(given, texts)
    whole = whole_part(
        given, lengths=lengths, official=tuple(official_score(given, texts)), ties=ties, seed=seed
    )
    view = given.view
    single = None if reason else whole.prompts("one")
    drawn = whole.prompts("labelled")
    is_weighted = drawn is not None and drawn.weight is not None  # then there are means and decisions
    plain = None if is_weighted or whole.by_majority else single
    if group_by and (single is None or whole.by_majority):
        raise ValueError(f"group by: {reason or 'no prompts with one correct response, so there is no gap'}")
    named = None if metrics is None else [metric.name for metric in wanted]
    rows = tables.metric_rows(whole, wanted, settings)
    groups = [] if plain is None else audit(plain, groupings, columns, level=level)
    sample = labelled_facts(whole)
    # Labelled prompts that are unlike the others allow no statement about all.
    unlike = sample is not None and sample["unlike"]
    tests = {} if unlike else statement_tests(whole, single, rows, groups, settings)
    shown = shown_statements(tests, level)
    return Evaluation(
        model=name,
        benchmark=texts.name if texts is not None else str(given.manifest.get("benchmark") or UNNAMED),
        rows=rows,
        group_rows=_flagged(groups, tests, level),
        facts=_facts(whole, single, settings, reason, len(tests))
        | {
            "by_majority": whole.by_majority,
            "sample": sample,
            "in_fit": 0 if check is None else check.used,
            "view": view,
            "tests": tests,
            "shown": shown,
        },
        first_choice_rows=[] if reason or is_weighted else _first_choice(whole, plain, settings),
        reliability_rows=[] if reason or is_weighted else tables.reliability_rows(whole, settings, view),
        isotonic_rows=tables.isotonic_rows(whole) if curve == "isotonic" and plain is not None else [],
        decisions=None
        if single is None or unlike or metrics is not None
        else _decisions(single, used, check, level, seed),
        notes=[*_check_notes(used, check, {*tests} - {*shown}), *score_notes(given, texts, whole)],
        settings=settings,
        manifest=given.manifest,
        made_from=made_from(given, texts, settings, named, groupings[1:], curve, ties),
        scores=given,
        texts=texts,
    )


def _flagged(groups: list[Row], tests: Mapping[str, float], level: float) -> list[Row]:
    """Return groups that are flagged after the correction for all groups, and for the other statements of a page."""
    if "groups" not in tests:
        return [row | {"flagged": False} for row in groups]
    smallest = tests["groups"]  # 0 if a gap is beyond all chance
    factor = corrected(tests)["groups"] / smallest if smallest else float(len(tests))
    for row in groups:
        if row["p_adjusted"] is not None:
            row["p_adjusted"] = min(factor * row["p_adjusted"], 1.0)
            row["flagged"] = row["p_adjusted"] <= 1 - level + 1e-9
    return groups


def made_from(
    scores: Scores,
    benchmark: Benchmark | None,
    settings: Settings,
    metrics: list[str] | None = None,
    group_by: Sequence[str] = (),
    curve: Curve = "bins",
    ties: Ties = "drop",
) -> str:
    """Return a hash of the inputs of an evaluation. If it has not changed, the evaluation is up to date."""
    return json_hash(
        {
            "scores": [scores.manifest.get("hash"), scores.content_hash()],
            "facts": [asdict(scores.scale), scores.labels],
            "texts": None if benchmark is None else [benchmark.name, benchmark.revision, len(benchmark)],
            "settings": [asdict(settings), metrics, list(group_by), curve, ties],
            "metrics": sorted(catalogue()),
            "rmcalib": __version__,
        }
    )


def no_labels(scores: Scores, source: str = "SCORES") -> str:
    """Return what to do about scores without labels; it names the columns that nothing used, except texts."""
    unused = ", ".join(clean_line(name) for name in scores.extra if name not in TEXT_COLUMNS)
    name = clean_line(next(iter(could_be_labels(scores.extra)), "NAME"))
    column = (
        f' Columns that nothing used: {unused}; name the labels: columns="label={name}".' if unused else ""
    )
    draw = f"rmcalib label {quote(source)} --output labels"
    return (
        f"no labels, so nothing can be measured.{column} Without labels, draw some prompts to label: `{draw}`"
    )


def _first_choice(whole: Part, single: Part | None, settings: Settings) -> list[Row]:
    """Return the bins of the first screen: of first choices, of responses if each is correct or not, or of votes."""
    if whole.scores.view == "pointwise":
        labelled = whole.prompts("labelled")
        return [] if labelled is None else tables.bin_rows(labelled.pointwise, settings, band=True)
    if whole.by_majority:
        voted = whole.prompts("votes")
        votes = None if voted is None else voted.votes
        return [] if votes is None else tables.bin_rows(votes, settings, band=True)
    return [] if single is None else tables.bin_rows(single.first_choice, settings, band=True)


def _decisions(
    part: Part, used: Calibrator | None, check: CalibratorCheck | None, level: float, seed: int
) -> Decisions:
    """Return when to accept a first choice; the rule belongs to the calibrator that made these rewards."""
    decisions = decide(part, level=level, seed=seed)
    rule = decisions.calibrator.rule
    if used is None or rule is None:
        return decisions
    rule = replace(rule, in_fit=0 if check is None else check.used)
    return replace(decisions, calibrator=replace(used, rule=rule))


def _calibrated(scores: Scores, used: Calibrator) -> tuple[Scores, CalibratorCheck | None]:
    """Return calibrated scores, and whether the calibrator holds on them; None if they are too few to tell."""
    try:
        check = used.check(scores)
    except ValueError:
        check = None
    return used.apply(scores), check


def _check_notes(
    used: Calibrator | None, check: CalibratorCheck | None, not_shown: Collection[str]
) -> list[str]:
    """Return whether a calibrator holds, and which of its prompts are here."""
    if used is None or check is None:
        return []
    if check.used:
        return [
            check_words(used, check),
            f"Its numbers here are of all prompts, with the {check.used:,} of the fit.",
        ]
    if "scale" in not_shown and check.holds is False:  # its interval alone, without the page's correction
        check = replace(check, holds=True)
    return [check_words(used, check)]


def _columns(scores: Scores, texts: Benchmark | None) -> Mapping[str, Mapping[str, str]]:
    """Return the group of each prompt by further columns of its scores and of its benchmark."""
    first, sizes = scores.offsets[:-1], np.diff(scores.offsets)
    columns: dict[str, dict[str, str]] = {}
    for name, values in scores.extra.items():
        stated = values == values  # not NaN
        if (stated & (values != np.repeat(values[first], sizes))).any():
            continue  # it differs between the responses of a prompt
        pairs = zip(scores.item_id[first].tolist(), values[first].tolist(), stated[first], strict=True)
        columns[name] = {prompt: str(value) for prompt, value, is_known in pairs if is_known}
    if texts is not None:
        for name in texts.columns:
            columns[name] = {item.id: item.columns[name] for item in texts.items if name in item.columns}
    return columns


def _facts(
    whole: Part, part: Part | None, settings: Settings, reason: str | None, statements: int
) -> dict[str, Any]:
    scores = whole.scores
    facts: dict[str, Any] = {
        "scale": asdict(scores.scale),
        "labels": scores.manifest["labels"],
        "prompts": len(whole),
        "labelled": len(whole.prompts("labelled") or ()),
        "tied": whole.n_tied,
        "responses": len(scores),
        "clusters": None if whole.cluster is None else int(whole.cluster.max()) + 1,
        "one_answer": 0 if (single := whole.prompts("one")) is None else len(single),
        "chance": None if single is None else float((1 / single.sizes).mean()),
        "undecided": len(scores) > len(whole)  # a single response is judged on its own
        and bool(
            (scores.reward == np.repeat(scores.reward[scores.offsets[:-1]], np.diff(scores.offsets))).all()
        ),
        "no_calibration": reason,
        "smallest_gap": None,
        "gain": None,
    }
    if part is None or len(part) < FEWEST or whole.by_majority:
        return facts
    # A gap is shown if its test passes the correction for all statements.
    facts["smallest_gap"] = smallest_gap(part, level=1 - (1 - settings.level) / max(statements, 1))
    before, after = (
        tables.estimate_of(catalogue()[name], whole, settings) for name in ("nll_at_temperature", "nll")
    )
    gain = None if before is None or after is None else difference_of(before, after, settings.level)
    if gain is not None:
        facts["gain"] = {"value": gain.value, "low": gain.low, "high": gain.high}
    return facts
