"""Load a judge from a name, a function or an object.

`KINDS` lists the kinds of judges that are loaded by name. To add a kind, add a row. Installed packages can
add judges with the entry point group `rmcalib.judges`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from rmcalib.judges._classifier import Classifier
from rmcalib.judges._function import FunctionJudge
from rmcalib.judges._judge import Judge, is_judge
from rmcalib.judges._model_files import check_model_name
from rmcalib.judges._options import LoadOptions, check_options
from rmcalib.judges._reward_model import RewardModel

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["KINDS", "Kind", "check_judge_name", "judge_kind", "load_judge", "registered_judges"]

ENTRY_POINTS = "rmcalib.judges"
_FUNCTION_OPTIONS = ("scale", "identity", "batched", "batch_size")


@dataclass(frozen=True)
class Kind:
    """A kind of judge that is loaded by name.

    Parameters
    ----------
    loader : str
        `"module:function"`. The function takes the name and the options, and returns a `Judge`. The module is
        imported only when a judge of this kind is loaded.
    chosen_by : tuple[str, ...]
        Options that select this kind.
    also : tuple[str, ...]
        Options that this kind takes too, but that select another kind if they are given alone.
    """

    loader: str
    chosen_by: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "classifier": Kind("rmcalib.judges._resolve:_load_classifier"),
    "endpoint": Kind("rmcalib.judges._served.judge:load_endpoint", chosen_by=("endpoint",)),
    "generative": Kind(
        "rmcalib.judges._generative.loading:load_generative", chosen_by=("judging",), also=("endpoint",)
    ),
    "policy": Kind(
        "rmcalib.judges._policies.judge:load_policy",
        chosen_by=("reference", "reference_free", "beta"),
        also=("endpoint",),
    ),
}
"""Kinds by name. Without an option that selects another kind, a name is that of a `classifier`."""


def load_judge(
    judge: str | Judge | RewardModel | Callable[..., Any],
    *,
    kind: str | None = None,
    name: str | None = None,
    **options: Any,
) -> Judge:
    """Return a judge.

    Parameters
    ----------
    judge : str | Judge | RewardModel | Callable[..., Any]
        A Hub id (`org/name`), a folder, `"demo"`, the name of a judge that an installed package registers, a
        function `f(prompt, responses) -> numbers`, a loaded `RewardModel`, or a judge, which is returned as
        it is.
    kind : str, optional
        Kind of a judge that is given by name: `classifier`, `endpoint`, `generative` or `policy`. Default:
        chosen by the options.
    name : str, optional
        Name of the judge, if it is a function. Default: the function's name.
    **options
        Options of the kind of judge. The page *Judges* of the documentation explains them.

        - Hugging Face models: the fields of `LoadOptions`.
        - Served reward models: `endpoint`, `endpoint_kind`, `served_name`, `api_key_env`, `concurrency`,
          `timeout`, `tokenize_here`, `max_length`, `recipe`, `recipes`.
        - DPO policies: `reference`, `reference_free`, `beta`, and the fields of `LoadOptions`; behind a
          server, `endpoint`, `reference_endpoint`, `served_name`, `reference_served_name`, `api_key_env`,
          `concurrency`, `timeout`.
        - Language models that judge: `judging` (`letter`, `yes-no`, `rating`, `votes` or `rewardbench2`),
          `judge_prompt`, `votes`, `placements`, `judge_seed`, `max_characters`, and the fields of
          `LoadOptions`; behind a server, `endpoint`, `served_name`, `api_key_env`, `concurrency`, `timeout`.
        - Functions: `scale`, `identity`, `batched`, `batch_size`.
        - Judges of installed packages have their own.

    Returns
    -------
    Judge
        The judge. A model is loaded, or its server is asked, when the judge is first used.

    Examples
    --------
    >>> load_judge("demo", device="cpu").name
    'demo'
    >>> load_judge("org/name", endpoint="http://localhost:8000").name
    'org/name'
    >>> load_judge(lambda prompt, responses: [len(text) for text in responses], name="longest").scale
    'unknown'
    """
    if not isinstance(judge, str):
        if kind is not None:
            raise ValueError(f"kind: only judges that are given by name have a kind, got kind={kind!r}")
        return _from_object(judge, name, options)
    if name is not None:
        raise ValueError(f"name: {judge!r} has a name already; only functions need one")
    registered = registered_judges().get(judge)
    if registered is not None and kind is None:
        return _from_entry_point(registered, options)
    module, _, function = KINDS[judge_kind(kind, options)].loader.partition(":")
    loaded: Judge = getattr(importlib.import_module(module), function)(judge, **options)
    return loaded


def judge_kind(kind: str | None, options: Mapping[str, Any]) -> str:
    """Return the kind of judge that a name and options stand for.

    Parameters
    ----------
    kind : str, optional
        The kind, if the user gave one.
    options : Mapping[str, Any]
        The options, by name. `endpoint`, `judging`, `reference`, `reference_free` and `beta` select a kind.
        Options of different kinds are an error, except that `judging` and `reference` can be combined with
        `endpoint`.

    Returns
    -------
    str
        `classifier`, `endpoint`, `generative` or `policy`.

    Examples
    --------
    >>> judge_kind(None, {"device": "cpu"}), judge_kind(None, {"endpoint": "http://localhost:8000"})
    ('classifier', 'endpoint')
    >>> judge_kind(None, {"endpoint": "http://localhost:8000", "judging": "letter"})
    'generative'
    """
    if kind is not None:
        if kind not in KINDS:
            raise ValueError(f"kind: unknown {kind!r} (have: {', '.join(KINDS)})")
        return kind
    chosen = {
        option: name
        for name, each in KINDS.items()
        for option in each.chosen_by
        if options.get(option) is not None
    }
    fitting = [name for name in chosen.values() if {*chosen} <= {*KINDS[name].chosen_by, *KINDS[name].also}]
    if chosen and not fitting:
        said = " and ".join(f"{option} (of {name})" for option, name in chosen.items())
        raise ValueError(f"{said} are options of different kinds of judges: give only one of them")
    return fitting[0] if fitting else "classifier"


def check_judge_name(name: str) -> str:
    """Check the name of a judge; nothing is loaded or downloaded.

    Parameters
    ----------
    name : str
        The name of a registered judge, a folder, `"demo"`, or a Hub id.

    Returns
    -------
    str
        The name.

    Raises
    ------
    ValueError
        If it can be none of these.

    Examples
    --------
    >>> check_judge_name("org/name")
    'org/name'
    """
    return name if name in registered_judges() else check_model_name(name)


def registered_judges() -> dict[str, EntryPoint]:
    """Return the judges of installed packages by name: entry points of the group `rmcalib.judges`.

    An entry point is a class of judges, or a function that takes the options and returns a judge or a
    function `f(prompt, responses)`. The judge's name must be that of the entry point.
    """
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _from_object(judge: Any, name: str | None, options: Mapping[str, Any]) -> Judge:
    if isinstance(judge, type):
        raise TypeError(f"judge: {judge.__name__} is a class; give an instance of it")
    if isinstance(judge, RewardModel) or is_judge(judge):
        if name is not None:
            raise ValueError(f"name: the judge has a name already ({judge.name!r}); only functions need one")
        own = ("token_budget",) if isinstance(judge, RewardModel) else ()
        for option in options:
            if option not in own:
                raise ValueError(f"{option}: has no effect on a judge that exists already ({judge.name})")
        return Classifier(judge, LoadOptions(**options)) if isinstance(judge, RewardModel) else judge
    if not callable(judge):
        raise TypeError(
            "judge: expected a name, a function, or an object with the methods score and identity, "
            f"got {type(judge).__name__}"
        )
    check_options(options, _FUNCTION_OPTIONS)
    return FunctionJudge(judge, name=name, **options)


def _from_entry_point(point: EntryPoint, options: Mapping[str, Any]) -> Judge:
    where = f"entry point {point.name!r} ({point.value})"
    try:
        judge = point.load()(**options)
    except Exception as error:
        raise ValueError(f"{where} failed: {type(error).__name__}: {error}") from error
    if isinstance(judge, str) or not (is_judge(judge) or callable(judge)):
        raise ValueError(f"{where} returned {type(judge).__name__}, not a judge or a function")
    if not is_judge(judge):
        return FunctionJudge(judge, name=point.name)
    if judge.name != point.name:  # run folders are found by the name that users give
        raise ValueError(f"{where} returned a judge called {judge.name!r}: its name must be {point.name!r}")
    return cast("Judge", judge)


def _load_classifier(name: str, **options: Any) -> Judge:
    return Classifier(name, LoadOptions.of(**options))
