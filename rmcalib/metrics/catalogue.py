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
from rmcalib.metrics.measures import Missing, Settings
from rmcalib.metrics.views import Part, ViewName

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
        Whether it knows prompts that were drawn with unequal probabilities; otherwise it is left out there.
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
            found = function(part)
            if isinstance(found, Estimate):
                return found
            values = np.asarray(found, dtype=np.float64)
            if values.ndim == 0:
                return Estimate.constant(float(values), len(part))
            if values.shape != (len(part),):
                raise ValueError(
                    f"metric {name}: {values.shape} numbers for {len(part)} prompts; expected one each"
                )
            if np.asarray(found).dtype == bool:
                return Estimate.proportion(values, cluster=part.cluster)
            return Estimate.mean(values, cluster=part.cluster)

        fields = {"name": name, "meaning": meaning, "measure": measure, **shown}
        return typed(Metric, fields, f"metric {name}")

    return make


def chosen_metrics(wanted: Iterable[str | Metric] | None = None) -> tuple[Metric, ...]:
    """Return the metrics with some names, in the order of the catalogue, and given ones as they are."""
    have = catalogue()
    if wanted is None:
        return tuple(have.values())
    given = [wanted] if isinstance(wanted, str | Metric) else list(wanted)
    for name in given:
        if not isinstance(name, Metric) and name not in have:
            raise ValueError(f"metrics: unknown {name!r} ({did_you_mean(name, have)})")
    named = tuple(one for name, one in have.items() if name in given)
    return (*named, *(one for one in given if isinstance(one, Metric)))


@lru_cache(maxsize=1)
def _file() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parse_yaml(_FILE.read_bytes(), _FILE.name)
    return found


def metric_groups() -> dict[str, str]:
    """Return the groups of metrics with their headings, in the order of pages and documents."""
    return {one["group"]: one["title"] for one in _file()}


def _own() -> Iterator[Metric]:
    """Yield the metrics of ``catalogue.yaml``."""
    for group in _file():
        shared = {name: value for name, value in group.items() if name not in ("title", "metrics")}
        for entry in group["metrics"]:
            fields = shared | entry
            null_of, at_temperature = fields.pop("null_of", ""), fields.pop("at_temperature", False)
            where = f"{_FILE.name}: metric {fields.get('name')}"
            fields["measure"] = _measure(where, fields.get("measure"), at_temperature)
            one = typed(Metric, fields, where)
            yield one
            if null_of:
                yield from _nulls(one, null_of)


@lru_cache(maxsize=1)
def _measures() -> dict[str, Callable[..., Any]]:
    """Return the functions of `measures` that return an estimate, by name."""
    functions = inspect.getmembers(measures, inspect.isfunction)
    return {name: each for name, each in functions if each.__annotations__.get("return") == "Estimate"}


def _measure(where: str, entry: Any, at_temperature: bool) -> Measure:
    """Return the measure with a name, or with a list of name, arguments and options."""
    name, *arguments = entry if isinstance(entry, list) else [entry]
    options = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
    known = _measures()
    if name not in known:
        raise ValueError(f"{where}: unknown measure {name!r} ({did_you_mean(name, known)})")
    function = known[name]
    try:
        given = inspect.signature(function).bind(None, None, *arguments, **options).arguments
        ErrorOptions(**given.get("options", {}))  # the only further ones
    except TypeError as error:
        raise ValueError(f"{where}: measure {name}: {error}") from None
    if "view" in given:
        views = tuple(one for one in get_args(ViewName) if hasattr(Part, one))
        check_choice(given["view"], f"{where}: view (ViewName in views.py)", views)
    for argument, kind in get_type_hints(function).items():
        if argument in given and get_origin(kind) is Literal:
            check_choice(given[argument], f"{where}: measure {name}: {argument}", get_args(kind))

    def measure(part: Part, settings: Settings) -> Estimate:
        try:
            own = measures.enough(part).at_temperature if at_temperature else part
            found: Estimate = function(own, settings, *arguments, **options)
        except Missing as why:
            return Estimate.missing(len(part), str(why))
        return found

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
        found = error(part, settings)
        test = found.test()
        if test is None:
            return Estimate.missing(
                found.n,
                found.note
                or found.why_no_interval
                or "there is no null test: these pairs have no joint worlds",
            )
        return Estimate.constant(getattr(test, field), found.n)

    return measure


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Metric]:
    """Return all metrics by name: those of rmcalib, then those of other installed packages."""
    found: dict[str, Metric] = {}
    for one in (*_own(), *_plugged()):
        if one.name in found:
            homes = " and ".join(each.source or "rmcalib" for each in (found[one.name], one))
            raise ValueError(f"two metrics are called {one.name!r}: of {homes}")
        found[one.name] = one
    return found


def _plugged() -> Iterator[Metric]:
    """Yield the metrics of other installed packages."""
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: one.name):
        home = point.dist.name if point.dist is not None else "an unknown distribution"
        try:
            loaded: Any = point.load()
            given = loaded if isinstance(loaded, list | tuple) else [loaded]
            metrics = [replace(one, source=home) for one in given]
        except Exception as error:
            where = f"entry point {point.name!r} ({ENTRY_POINTS}) of {home}"
            raise ValueError(f"{where}: {type(error).__name__}: {error}") from error
        yield from metrics
