"""The catalogue of metrics: a view, a measure, and how it is shown. The entries are in ``catalogue.yaml``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import numpy as np

from rmcalib._util.arrays import check_choice
from rmcalib._util.texts import did_you_mean, parse_yaml, typed
from rmcalib.calibration.binning import ErrorOptions
from rmcalib.calibration.estimates import Estimate
from rmcalib.metrics import measures
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.views import Missing, Part, ViewName, enough

ENTRY_POINTS = "rmcalib.metrics"
"""The entry point group by which other packages add metrics."""
TRAINING_METRICS = (
    "mean_confidence",
    "accuracy",
    "overconfidence",
    "kept_information",
    "lost_information",
    "temperature",
    "ece",
    "ece_null_mean",
    "ece_p_value",
)
"""The metrics that are logged during training, and shown in the table of training steps."""
_FILE = Path(__file__).with_suffix(".yaml")
Measure = Callable[[Part, Settings], Estimate]
Need = Literal["probabilities", "pairs", "fit"]
Better = Literal["low", "high", "zero"]
Prompts = Literal["one", "several", "all", "votes", "labelled"]


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes
    ----------
    name, meaning : str
        Its name in tables, and what it is in one sentence.
    measure : function
        From a `Part` (some prompts of a model's scores, with their views) and `Settings` to an `Estimate`.
    better : {"low", "high", "zero"}, optional
        Which values are better. Numbers that are not proper scores have no better side.
    unit, label : str
        How it is shown.
    group : str
        Where it is shown; one of `metric_groups`.
    prompts : {"one", "several", "all", "votes", "labelled"}
        Which prompts it uses; see `Part.prompts`.
    needs : {"probabilities", "pairs", "fit"}, optional
        What rewards must stand for: probabilities, those of pairs, or something that a scale can be fitted to.
    compared : bool
        Whether `compare` shows it.
    ranked : {"everywhere", "overall", "nowhere"}
        Whether a leaderboard computes it: by category, for all prompts, or not.
    depends_on_m : bool
        Whether models with other numbers of responses cannot be compared by it.
    weighted : bool
        Whether it supports prompts that were drawn with unequal probabilities; otherwise it is left out for them.
    source : str
        The package that adds it; empty for those of rmcalib.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    name: str
    meaning: str
    measure: Measure
    better: Better | None = None
    unit: str = ""
    label: str = ""
    group: str = "other"
    prompts: Prompts = "one"
    needs: Need | None = "probabilities"
    compared: bool = True
    ranked: Literal["everywhere", "overall", "nowhere"] = "nowhere"
    depends_on_m: bool = False
    weighted: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        """Check the name and the group, and set the label if it is not given."""
        if not self.name.isidentifier():
            raise ValueError(f"metric {self.name!r}: expected a name of letters, digits and underscores")
        check_choice(self.group, f"metric {self.name}: group", tuple(metric_groups()))
        object.__setattr__(self, "label", self.label or self.name.replace("_", " "))

    def badness(self, value: float) -> float:
        """Return a number that is smaller for better values."""
        return {"high": -value, "low": value, "zero": abs(value)}[self.better or "low"]


def metric(name: str, meaning: str, **shown: Any) -> Callable[[Callable[..., Any]], Metric]:
    """Make a metric of a function: a decorator.

    The function takes a `Part` and returns one number or truth value per prompt (n,), whose mean is the value,
    or one number, or an `Estimate`. Truth values have an exact interval, even if all are equal.

    Parameters
    ----------
    name, meaning : str
        Its name, and what it is in one sentence.
    **shown
        Other fields of `Metric`.

    Returns
    -------
    function

    Examples
    --------
    >>> @metric("bold", "how often the first choice has a probability above 0.9", unit="fraction of prompts")
    ... def bold(part):
    ...     return part.first_choice.p > 0.9
    >>> bold.label
    'bold'
    """

    def make(function: Callable[..., Any]) -> Metric:
        def measure(part: Part, _: Settings) -> Estimate:
            result = function(part)
            if isinstance(result, Estimate):
                return result
            values = np.asarray(result, dtype=np.float64)
            if values.ndim == 0:
                return Estimate.constant(float(values), len(part))
            if values.shape != (len(part),):
                raise ValueError(
                    f"metric {name}: {values.shape} numbers for {len(part)} prompts; expected one each"
                )
            if np.asarray(result).dtype == bool:
                return Estimate.proportion(values, cluster=part.cluster)
            return Estimate.mean(values, cluster=part.cluster)

        fields = {"name": name, "meaning": meaning, "measure": measure, **shown}
        return typed(Metric, fields, f"metric {name}")

    return make


PLAIN = {
    name: {"top_1": first, "pointwise": f"pointwise_{last}"}
    for first, short, last in (
        ("mean_confidence", "says", "confidence"),
        ("accuracy", "right", "accuracy"),
        ("overconfidence", "gap", "gap"),
    )
    for name in (short, first)
}
"""The words of pages for metrics, and the metric that a page shows under them, by view."""


def shown_metric(name: str, view: str) -> str:
    """Return the metric that the page of a view shows under a name, such as `gap`.

    >>> shown_metric("gap", "top_1"), shown_metric("overconfidence", "pointwise"), shown_metric("ece", "top_1")
    ('overconfidence', 'pointwise_gap', 'ece')
    """
    return PLAIN.get(name, {}).get(view, name)


def chosen_metrics(wanted: Iterable[str | Metric] | None = None) -> tuple[Metric, ...]:
    """Return the metrics with some names, in the order of the catalogue, and given ones as they are."""
    have = catalogue()
    if wanted is None:
        return tuple(have.values())
    given = [wanted] if isinstance(wanted, str | Metric) else list(wanted)
    for name in given:
        if not isinstance(name, Metric) and name not in have and name not in PLAIN:
            raise ValueError(f"metrics: unknown {name!r} ({did_you_mean(name, [*have, *PLAIN])})")
    names = [each for each in given if isinstance(each, str)]
    meant = {name for each in names for name in ((each,) if each in have else PLAIN[each].values())}
    named = tuple(each for name, each in have.items() if name in meant)
    return (*named, *(each for each in given if isinstance(each, Metric)))


@lru_cache(maxsize=1)
def _file() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = parse_yaml(_FILE.read_bytes(), _FILE.name)
    return groups


def metric_groups() -> dict[str, str]:
    """Return the groups of metrics with their headings, in the order of pages and documents."""
    return {group["group"]: group["title"] for group in _file()}


def _own() -> Iterator[Metric]:
    """Yield the metrics of ``catalogue.yaml``."""
    for group in _file():
        shared = {name: value for name, value in group.items() if name not in ("title", "metrics")}
        for entry in group["metrics"]:
            fields = shared | entry
            null_of, at_temperature = fields.pop("null_of", ""), fields.pop("at_temperature", False)
            where = f"{_FILE.name}: metric {fields.get('name')}"
            fields["measure"] = _measure(where, fields.get("measure"), at_temperature)
            made = typed(Metric, fields, where)
            yield made
            if null_of:
                yield from _nulls(made, null_of)


@lru_cache(maxsize=1)
def _measures() -> dict[str, Callable[..., Any]]:
    """Return the functions of `measures` that return an estimate, by name."""
    functions = inspect.getmembers(measures, inspect.isfunction)
    return {name: each for name, each in functions if each.__annotations__.get("return") == "Estimate"}


def _measure(where: str, entry: Any, at_temperature: bool) -> Measure:
    """Return the measure with a name, or with a list of name, arguments and options."""
    name, *arguments = entry if isinstance(entry, list) else [entry]
    options = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
    functions = _measures()
    if name not in functions:
        raise ValueError(f"{where}: unknown measure {name!r} ({did_you_mean(name, functions)})")
    function = functions[name]
    try:
        given = inspect.signature(function).bind(None, None, *arguments, **options).arguments
        ErrorOptions(**given.get("options", {}))  # the only further ones
    except TypeError as error:
        raise ValueError(f"{where}: measure {name}: {error}") from None
    if "view" in given:
        views = tuple(view for view in get_args(ViewName) if hasattr(Part, view))
        check_choice(given["view"], f"{where}: view (ViewName in views.py)", views)
    for argument, kind in get_type_hints(function).items():
        if argument in given and get_origin(kind) is Literal:
            check_choice(given[argument], f"{where}: measure {name}: {argument}", get_args(kind))

    def measure(part: Part, settings: Settings) -> Estimate:
        try:
            used = enough(part).at_temperature if at_temperature else part
            estimate: Estimate = function(used, settings, *arguments, **options)
        except Missing as why:
            return Estimate.missing(len(part), str(why))
        return estimate

    return measure


def _nulls(error: Metric, what: str) -> Iterator[Metric]:
    """Yield the mean, the 95% point and the p-value of the null test of an error."""
    for suffix, field, meaning in (
        ("null_mean", "mean", f"mean {what} of a calibrated model on as many prompts"),
        ("null_95", "high", f"95th percentile of the {what} of a calibrated model"),
        ("p_value", "p_value", f"probability that the {what} of a calibrated model is at least as large"),
    ):
        name = f"{error.name}_{suffix}"
        yield replace(
            error,
            name=name,
            meaning=meaning,
            measure=_null(error.measure, field),
            better=None,
            label=f"p-value of {error.label}" if suffix == "p_value" else name,
            compared=False,
            ranked="nowhere" if error.ranked == "nowhere" else "overall",
        )


def _null(error: Measure, field: str) -> Measure:
    """The null test of an error: what a calibrated model would show."""

    def measure(part: Part, settings: Settings) -> Estimate:
        estimate = error(part, settings)
        test = estimate.test()
        if test is None:
            return Estimate.missing(
                estimate.n,
                estimate.note
                or estimate.why_no_interval
                or "these pairs come from separate questions, so no null can be simulated",
            )
        return Estimate.constant(getattr(test, field), estimate.n)

    return measure


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Metric]:
    """Return all metrics by name: those of rmcalib, then those of other installed packages."""
    by_name: dict[str, Metric] = {}
    for metric in (*_own(), *_plugged()):
        if metric.name in by_name:
            homes = " and ".join(each.source or "rmcalib" for each in (by_name[metric.name], metric))
            raise ValueError(f"two metrics are called {metric.name!r}: of {homes}")
        by_name[metric.name] = metric
    return by_name


def _plugged() -> Iterator[Metric]:
    """Yield the metrics of other installed packages."""
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name):
        home = point.dist.name if point.dist is not None else "an unknown distribution"
        try:
            loaded: Any = point.load()
            given = loaded if isinstance(loaded, list | tuple) else [loaded]
            metrics = [replace(each, source=home) for each in given]
        except Exception as error:
            where = f"entry point {point.name!r} ({ENTRY_POINTS}) of {home}"
            raise ValueError(f"{where}: {type(error).__name__}: {error}") from error
        yield from metrics
