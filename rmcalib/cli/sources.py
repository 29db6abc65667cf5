"""Where scores come from: a judge that is run, or a file. Names are checked before any network is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rmcalib._util.texts import nearest
from rmcalib.cli.screen import Screen

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.cli.options import Judged
    from rmcalib.repair import Calibrator
    from rmcalib.scores import Scores


def check_name(name: str, names: Iterable[str], what: str) -> None:
    """Raise a ValueError if a name is a misspelling of a known one. Other names may be on the Hub.

    >>> check_name("dmeo", ["demo", "rm-bench"], "benchmark")
    Traceback (most recent call last):
    ValueError: dmeo: unknown benchmark (did you mean 'demo'?)
    >>> check_name("org/rm-3B", ["org/rm-8B"], "model")
    """
    have = list(names)
    if name in have:
        return
    # A model of somebody may be called almost like another one, and differ in its size or version.
    owned = "/" in name
    near = nearest(name, have, cutoff=0.93 if owned else 0.75)
    if near and not (owned and re.findall(r"\d+", near[0]) != re.findall(r"\d+", name)):
        raise ValueError(f"{name}: unknown {what} (did you mean {near[0]!r}?)")


def model_names(judged: Judged, recipes: Sequence[Any] = ()) -> list[str]:
    """Return the models to run, checked; default the demo model."""
    from rmcalib._util.files import kind_on_disk
    from rmcalib.judges import registry
    from rmcalib.judges._files import registered_id
    from rmcalib.judges._load import check_judge_name, registered_judges

    names = list(judged.model) or ["demo"]
    models = ["demo", *registered_judges(), *registry(recipes)]
    for place, name in enumerate(names):
        if judged.endpoint is None and kind_on_disk(name) is None:
            names[place] = registered_id(name, models)
            check_name(names[place], models, "model")
    if len(names) == 1:  # one of several is reported as a failure of that model
        check_judge_name(names[0])
    return names


def setting_names() -> dict[str, str]:
    """Return the settings of judges that are loaded by name, and a kind of judge that has each."""
    from rmcalib.judges._load import KINDS
    from rmcalib.judges._settings import field_types

    # The first kind that has a setting is named.
    return {name: label for label, kind in reversed([*KINDS.items()]) for name in field_types(kind.settings)}


def judge_options(judge: Sequence[str], model: str = "", **places: str | None) -> dict[str, Any]:
    """Return the settings of -J as `load_judge` takes them: checked against the kind of judge.

    ``places`` are the options --endpoint and --backend.

    >>> judge_options(["max_length=512"])
    {'max_length': 512}
    >>> judge_options(["devise=cpu"])
    Traceback (most recent call last):
    ValueError: -J devise: unknown setting (did you mean 'device'?)
    """
    from rmcalib.judges._load import judge_settings, registered_judges
    from rmcalib.judges._registry import check_names
    from rmcalib.judges._settings import field_types, parsed_settings

    given: dict[str, str] = {}
    for text in judge:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise ValueError(f"-J {text}: expected key=value, such as device=cuda")
        given[key.strip().replace("-", "_")] = value.strip()
    kind = given.pop("kind", None)
    where = {name: value for name, value in places.items() if value is not None}
    chosen = {} if kind is None else {"kind": kind}
    if model in registered_judges() and kind is None:
        return {**where, **given}  # a judge of another package has its own settings
    try:
        settings = judge_settings(kind, {**where, **given})
        every, of_kind = setting_names(), field_types(settings)
        check_names(given, every, have=of_kind)
        for name in given:
            if name not in of_kind:
                raise ValueError(
                    f"{name}: a setting of the kind of judge {every[name]!r} (`rmcalib list judges`)"
                )
        return {**where, **chosen, **parsed_settings(settings, given)}
    except ValueError as error:
        raise ValueError(f"-J {error}") from None


def run_options(judged: Judged, model: str) -> dict[str, Any]:
    """Return how a model is run: the settings of -J, and where."""
    return judge_options(judged.judge, model, endpoint=judged.endpoint, backend=judged.backend)


def default_benchmark(models: Sequence[str]) -> tuple[str, ...]:
    """Return the benchmark if none is given: the demo's own, or RewardBench 2."""
    return ("demo",) if list(models) == ["demo"] else ("reward-bench-2",)


def load_prompts(name: str, judged: Judged, screen: Screen) -> Benchmark:
    """Load a benchmark, `name` or `name@revision`; a misspelt name is answered before the Hub is asked."""
    from rmcalib._util.files import kind_on_disk
    from rmcalib.benchmarks import benchmarks, load_benchmark

    revision = None
    if kind_on_disk(name) is None:
        name, _, given = name.partition("@")
        revision = given or None
        names: list[str] = []
        for entry in benchmarks().values():
            names += [entry.name, *(source.id for source in entry.hub)]
        check_name(name, names, "benchmark")
    benchmark = load_benchmark(
        name, format=judged.format, revision=revision, part=judged.part, limit=judged.limit
    )
    for note in benchmark.notes:
        screen.say(f"warning: {note}")
    return benchmark


def run_judge(name: str, benchmark: Benchmark, judged: Judged, screen: Screen) -> Scores:
    """Score a benchmark with a judge, with a progress bar; say what was scored before."""
    from rmcalib._util.processes import process_rank
    from rmcalib.runs import score

    all_responses, begun = benchmark.n_responses, False
    options = run_options(judged, name)
    with screen.progress(name) as draw:

        def on_progress(done: int, total: int, tokens: int) -> None:
            nonlocal begun
            # One of several processes scores only its share.
            if not begun and total < all_responses and process_rank()[1] == 1:
                before = all_responses - total
                screen.say(
                    f"{name}: {before:,} of {all_responses:,} responses were scored before; continuing"
                )
            begun = True
            draw(done, total, tokens)

        scores = score(
            name, benchmark, output=judged.output, fresh=judged.fresh, on_progress=on_progress, **options
        )
    if not begun:
        screen.say(f"{name}: all responses were scored before (--fresh scores them again)")
    return scores


def say_if_it_holds(calibrator: Calibrator, scores: Scores, screen: Screen) -> None:
    """Say whether the calibrator's temperature holds for these scores."""
    from rmcalib.report.calibrations import check_words

    screen.say(f"{scores.name}: {check_words(calibrator, calibrator.check(scores))}")
