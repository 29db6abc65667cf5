"""Load a judge from a name, a function or an object: the one door to all kinds of judges.

`KINDS` lists the kinds that are loaded by name. To add a kind, add a row. Installed packages can add judges
with the entry point group `rmcalib.judges`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from rmcalib._util.arrays import check_choice
from rmcalib._util.display import count
from rmcalib._util.texts import typed
from rmcalib.judges import _settings
from rmcalib.judges._files import check_model_name
from rmcalib.judges._generative import GenerativeJudge
from rmcalib.judges._judge import Judge, ScoredItem, is_judge
from rmcalib.judges._model import RewardModel
from rmcalib.judges._policy import PolicyJudge
from rmcalib.judges._registry import check_names
from rmcalib.judges._scoring import Classifier
from rmcalib.judges._served import EndpointJudge
from rmcalib.scores._meaning import SCALES
from rmcalib.scores.scale import Scale

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from rmcalib.benchmarks import Item

ENTRY_POINTS = "rmcalib.judges"


@dataclass(frozen=True)
class Kind:
    """A kind of judge that is loaded by name.

    The class `judge` takes the name and the `settings`. A setting in `chosen_by` selects the kind.
    """

    judge: Callable[[str, Any], Judge]
    settings: type[Any]
    chosen_by: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "classifier": Kind(Classifier, _settings.LoadOptions),
    "endpoint": Kind(EndpointJudge, _settings.ServedSettings, ("endpoint",)),
    "generative": Kind(GenerativeJudge, _settings.LanguageModelSettings, ("judging",)),
    "policy": Kind(PolicyJudge, _settings.PolicySettings, ("reference", "reference_free", "beta")),
}
"""Kinds by name. Without a setting that selects another kind, a name is that of a `classifier`."""

_OF_VLLM = ("python", "tensor_parallel", "vllm_options")


def load_judge(
    model: str | Judge | RewardModel | Callable[..., Any],
    *,
    kind: str | None = None,
    endpoint: str | None = None,
    backend: str | None = None,
    **settings: Any,
) -> Judge:
    """Return a judge.

    Parameters
    ----------
    model : str | Judge | RewardModel | Callable[..., Any]
        A Hub id (`org/name`), a folder, `"demo"`, the name of a judge that an installed package registers, a
        function `f(prompt, responses) -> numbers`, a loaded `RewardModel`, or a judge, which is returned as
        it is.
    kind : str, optional
        Kind of a judge that is given by name; `KINDS` has them all. Default: chosen by the settings.
    endpoint : str, optional
        Address of a server that has the model, such as `http://localhost:8000`. Default: the model is loaded.
    backend : str, optional
        What runs a model on this machine: `transformers` (the default), or `vllm`, whose server is started
        when the judge is first used and stopped with it.
    **settings
        Settings of the kind of judge: the fields of `LoadOptions` (classifiers), `ServedSettings` (reward
        models behind a server), `LanguageModelSettings` (language models that judge: give `judging`),
        `PolicySettings` (DPO policies: give `reference`, `reference_free` or `beta`), or `FunctionSettings`.
        Judges of installed packages have their own. None is the default of each.

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
    'reward'
    """
    settings = {"endpoint": endpoint, "backend": backend, **settings}
    settings = {key: value for key, value in settings.items() if value is not None}
    if not isinstance(model, str):
        if kind is not None:
            raise ValueError(f"kind: only judges that are given by name have a kind, got kind={kind!r}")
        return _from_object(model, settings)
    registered = registered_judges().get(model)
    if registered is not None and kind is None:
        return _from_entry_point(registered, settings)
    chosen = KINDS[judge_kind(kind, settings)]
    _check_place(settings)
    checked = _settings.checked_settings(chosen.settings, settings)
    if getattr(checked, "backend", None) == "vllm":
        from rmcalib.judges._vllm import VllmJudge

        return VllmJudge(model, checked, chosen.judge)
    return chosen.judge(model, checked)


def judge_kind(kind: str | None, settings: Mapping[str, Any]) -> str:
    """Return the kind of judge that settings stand for: one of `KINDS`.

    >>> judge_kind(None, {"device": "cpu"}), judge_kind(None, {"endpoint": "http://localhost:8000"})
    ('classifier', 'endpoint')
    >>> judge_kind(None, {"endpoint": "http://localhost:8000", "judging": "letter"})
    'generative'
    """
    if kind is not None:
        check_names([kind], KINDS, "kind of judge")
        return kind
    given = {setting for setting, value in settings.items() if value is not None}
    chosen = {name: given & {*each.chosen_by} for name, each in KINDS.items() if given & {*each.chosen_by}}
    if len(chosen) > 1:
        chosen.pop("endpoint", None)  # any kind may be served
    if len(chosen) > 1:
        said = " and ".join(f"{', '.join(sorted(names))} (of {kind})" for kind, names in chosen.items())
        raise ValueError(f"{said} are settings of different kinds of judges: give only one of them")
    return next(iter(chosen), "classifier")


def judge_settings(kind: str | None, given: Mapping[str, Any]) -> type[Any]:
    """Return the dataclass with the settings of a kind of judge; None: the kind that `given` stands for.

    >>> judge_settings(None, {"beta": 0.1}).__name__
    'PolicySettings'
    """
    return KINDS[judge_kind(kind, given)].settings


def check_judge_name(name: str) -> str:
    """Return the name of a judge if it is a registered judge, a folder, `"demo"`, or can be a Hub id.

    >>> check_judge_name("org/name")
    'org/name'
    """
    return name if name in registered_judges() else check_model_name(name)


def registered_judges() -> dict[str, EntryPoint]:
    """Return the judges of installed packages by name: entry points of the group `rmcalib.judges`.

    An entry point is a class of judges, or a function that takes the settings and returns a judge or a
    function `f(prompt, responses)`. The judge's name must be that of the entry point.
    """
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


class FunctionJudge:
    """A function that rewards responses, as a judge.

    Parameters
    ----------
    function : Callable[[Any, Any], Any]
        `f(prompt, responses) -> numbers`. `prompt` is a text, or a tuple of chat messages if the benchmark
        has conversations. `responses` is a list of texts. The result is one number per response.
    settings : FunctionSettings
        Its name, the scale of its numbers, and how it is called.

    Examples
    --------
    >>> from rmcalib.benchmarks import Item
    >>> settings = _settings.FunctionSettings(name="shortest")
    >>> judge = FunctionJudge(lambda prompt, responses: [-len(text) for text in responses], settings)
    >>> list(judge.score([Item("a", "Math", "2+2?", ("4", "five"), 1)]))[0][0].rewards
    (-1.0, -4.0)
    """

    def __init__(self, function: Callable[[Any, Any], Any], settings: _settings.FunctionSettings) -> None:
        """Check the settings; the function is not called yet."""
        name = settings.name if settings.name is not None else getattr(function, "__name__", "")
        if not name.strip() or (settings.name is None and not name.isidentifier()):  # a lambda, an object
            raise ValueError("name: this function has no name; give one, such as name='mine'")
        try:
            json.dumps(settings.identity, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"identity: must be JSON (numbers, texts, lists, mappings): {error}") from error
        self.name, self.scale = name, settings.scale
        self._function, self._settings = function, settings

    def identity(self) -> dict[str, Any]:
        """Return the name, and the given identity or a hash of the function's source."""
        given = self._settings.identity
        version = {"source_sha256": _source_hash(self._function)} if given is None else {"identity": given}
        return {"kind": "function", "function": self.name, **version}

    def score(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        """Call the function for each prompt, or once per chunk if it is batched."""
        size = self._settings.batch_size
        for start in range(0, len(items), size):
            chunk = items[start : start + size]
            prompts, responses = [item.prompt for item in chunk], [list(item.responses) for item in chunk]
            if self._settings.batched:
                answers = list(self._function(prompts, responses))
            else:
                answers = list(map(self._function, prompts, responses))
            if len(answers) != len(chunk):
                raise ValueError(
                    f"{self.name}: prompts {chunk[0].id!r} to {chunk[-1].id!r}: the function returned "
                    f"{count(len(answers), 'list')} for {count(len(chunk), 'prompt')}"
                )
            scored = []
            for item, answer in zip(chunk, answers, strict=True):
                try:  # a list, an array or a tensor
                    scored.append(ScoredItem(item.id, tuple(float(value) for value in answer)))
                except (TypeError, ValueError) as error:
                    where = f"{self.name}: prompt {item.id!r}"
                    raise ValueError(
                        f"{where}: the function must return one number per response: {error}"
                    ) from error
            yield scored


def _check_place(settings: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for a setting that has no effect where the judge runs: here, or behind a server."""
    served, vllm = "endpoint" in settings, settings.get("backend") == "vllm"
    default, field_types = _settings.LoadOptions(), _settings.field_types
    of_loading = {*field_types(_settings.LoadOptions)} - {*field_types(_settings.TextOptions)}
    of_servers = {*field_types(_settings.ServerOptions), "reference_endpoint", "reference_served_name"}
    if vllm:  # our own server is asked, too
        of_servers -= {"concurrency", "timeout"}
    for name, value in settings.items():
        changed = value != getattr(default, name, None)
        if name in _OF_VLLM and changed and not vllm:
            raise ValueError(f"{name}: has no effect without the backend vllm")
        if name in ("device", "token_budget") and changed and vllm:
            raise ValueError(f"{name}: has no effect with the backend vllm, which decides itself")
        if name in of_loading and served:
            raise ValueError(f"{name}: has no effect on a served model: the server decides")
        if name in of_servers and not served:
            raise ValueError(f"{name}: has no effect without an endpoint")


def _from_object(judge: Any, settings: Mapping[str, Any]) -> Judge:
    if isinstance(judge, type):
        raise TypeError(f"judge: {judge.__name__} is a class; give an instance of it")
    is_model = isinstance(judge, RewardModel)
    if is_model or is_judge(judge):
        for name in settings:
            if not (is_model and name == "token_budget"):
                raise ValueError(f"{name}: has no effect on a judge that exists already ({judge.name})")
    if is_model:
        return Classifier(judge, _settings.checked_settings(_settings.LoadOptions, settings))
    if is_judge(judge):
        if not isinstance(judge.scale, Scale):
            check_choice(judge.scale, f"{judge.name}: scale", SCALES)
        return cast("Judge", judge)
    if not callable(judge):
        raise TypeError(
            "judge: expected a name, a function, or an object with name, scale, identity and score, "
            f"got {type(judge).__name__}"
        )
    return FunctionJudge(judge, _settings.checked_settings(_settings.FunctionSettings, settings))


def _from_entry_point(point: EntryPoint, settings: Mapping[str, Any]) -> Judge:
    where = f"entry point {point.name!r} ({point.value})"
    try:
        make = point.load()
        takes = inspect.signature(make, eval_str=True).parameters
        if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in takes.values()):
            check_names(settings, takes)
        judge = make(**{name: _converted(name, value, takes.get(name)) for name, value in settings.items()})
    except Exception as error:
        raise ValueError(f"{where} failed: {type(error).__name__}: {error}") from error
    if isinstance(judge, str) or not (is_judge(judge) or callable(judge)):
        raise ValueError(f"{where} returned {type(judge).__name__}, not a judge or a function")
    if not is_judge(judge):
        identity = {"settings": dict(settings), "source_sha256": _source_hash(judge)} if settings else None
        return FunctionJudge(judge, _settings.FunctionSettings(name=point.name, identity=identity))
    if judge.name != point.name:  # run folders are found by the name that users give
        raise ValueError(f"{where} returned a judge called {judge.name!r}: its name must be {point.name!r}")
    return _from_object(judge, {})


def _converted(name: str, value: Any, parameter: inspect.Parameter | None) -> Any:
    """Return a setting that was given as a text as what the parameter's annotation says."""
    if parameter is None or parameter.annotation is parameter.empty or not isinstance(value, str):
        return value
    return typed(parameter.annotation, value, name)


def _source_hash(function: Callable[..., Any]) -> str | None:
    """Return the SHA-256 of a function's source, so that an edited function does not resume an old run."""
    try:
        source = inspect.getsource(function if inspect.isroutine(function) else type(function))
    except (OSError, TypeError):  # defined in an interpreter, or compiled
        return None
    return hashlib.sha256(source.encode()).hexdigest()
