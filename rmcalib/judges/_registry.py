"""The registry: how to read each known reward model, and how users add theirs.

`leaderboard.yaml` lists the classifiers of RewardBench 2. Users add entries with a YAML file of the same
form, and packages with the entry point group `rmcalib.models`. Later entries replace earlier ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmcalib._util.texts import parse_yaml
from rmcalib.judges._inference.devices import DTYPES
from rmcalib.judges._inference.pooling import POOLINGS
from rmcalib.judges._judge import SCALES

LEADERBOARD = Path(__file__).parent / "leaderboard.yaml"
ENTRY_POINTS = "rmcalib.models"
STATUSES = ("plain", "recipe", "rebuilt", "own-code", "unsupported")
_FORMER = {
    "status": {"adapter": "rebuilt", "remote": "own-code"},
    "head": {"remote": "own-code"},
}  # still read
BRADLEY_TERRY = ("yes", "modified", "no", "unknown")
ATTENTIONS = ("eager", "sdpa", "flash_attention_2")


@dataclass(frozen=True)
class Recipe:
    """How to read one model: what its files do not say. The defaults fit any one-label classifier.

    `status` is `plain` (works by name), `recipe` (needs some of the fields below), `rebuilt` (its head is
    rebuilt from the checkpoint's tensors), `own-code` (runs its own code, with `trust_remote_code`) or
    `unsupported` (`reason` says why).
    """

    model: str
    status: str = "plain"
    reason: str = ""
    template: str | None = None  # a built-in template; None: the tokenizer's own chat template
    dtype: str | None = None  # None: the checkpoint's own
    attention: str | None = None  # None: what transformers picks for the architecture
    max_length: int | None = None
    trust_remote_code: bool = False
    column: int | None = None  # which output, where there are several
    sign: float = 1.0  # -1 for cost models
    head: str = (
        "auto"  # "auto": the stock head; "own-code": the model's code; "ldl"; else the prefix of the tensors
    )
    head_file: str | None = None  # a file of the repository that holds the head's tensors
    backbone_prefix: str | None = (
        None  # the prefix of the transformer's tensors, where it is not the usual one
    )
    architecture: str | None = None  # the transformers model type, where the checkpoint names one of its own
    output: str = "logits"  # with head: own-code, the field of the output that holds the rewards
    pooling: str = "checkpoint"  # by the config's pad token; or "last_token", "before_first_pad"
    append_token_id: int | None = None  # a token put after the rendered text
    tokenizer: str | None = None  # another repository's tokenizer
    loss: str = "unknown"
    evidence: str = ""  # where the loss is said
    bradley_terry: str = "unknown"  # is the reward a log-utility? "yes", "modified", "no" or "unknown"
    parameters: float | None = None  # billions
    note: str = ""
    family: str | None = None  # models that are not independent: same maker or base; None: the organisation
    scale: str | None = None  # what the rewards are (`Scale`); None: as `bradley_terry` says


def registry(files: Iterable[str | Path] = ()) -> dict[str, Recipe]:
    """Return all known recipes by model id: of the leaderboard, then of entry points, then of `files`.

    >>> registry()["Skywork/Skywork-Reward-V2-Llama-3.1-8B"].bradley_terry
    'yes'
    """
    recipes = {recipe.model: recipe for recipe in read_recipes(LEADERBOARD)}
    recipes |= {recipe.model: recipe for recipe in _from_entry_points()}
    for file in files:
        recipes |= {recipe.model: recipe for recipe in read_recipes(Path(file))}
    return recipes


def recipe_for(name: str, files: Iterable[str | Path] = ()) -> Recipe:
    """Return the recipe of a model; without one, a model is read as a plain one-label classifier."""
    return registry(files).get(name) or Recipe(model=name)


def read_recipes(path: Path) -> list[Recipe]:
    """Read the recipes of a YAML file: a list of entries, or a mapping with such a list under `models`."""
    return [recipe_from(entry, where) for where, entry in read_entries(path)]


def read_entries(path: Path) -> list[tuple[str, Any]]:
    """Read the entries of a YAML file as they are, each with its place in the file for messages."""
    try:
        content = parse_yaml(path.read_bytes(), str(path))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error
    entries = content.get("models") if isinstance(content, Mapping) else content
    if not isinstance(entries, list):
        raise ValueError(f"{path}: expected a list of entries under 'models'")
    names = [entry.get("model") for entry in entries if isinstance(entry, Mapping)]
    for name in names:
        if isinstance(name, str) and names.count(name) > 1:
            raise ValueError(f"{path}: {name!r} is listed twice")
    return [(f"{path}, entry {i}", entry) for i, entry in enumerate(entries, start=1)]


def recipe_from(entry: Any, where: str) -> Recipe:
    """Check one entry (a mapping of `Recipe`'s fields) and make it a recipe.

    >>> recipe_from({"model": "me/rm", "colunm": 1}, "mine.yaml, entry 1")
    Traceback (most recent call last):
    ValueError: mine.yaml, entry 1 (me/rm): unknown field 'colunm' (did you mean 'column'?)
    """
    if isinstance(entry, Recipe):
        return _checked(entry, f"{where} ({entry.model})")
    if not isinstance(entry, Mapping) or not isinstance(entry.get("model"), str):
        raise ValueError(f"{where}: an entry needs `model: org/name`")
    where = f"{where} ({entry['model']})"
    fields = {field.name: field for field in dataclasses.fields(Recipe)}
    values: dict[str, Any] = {}
    for key, value in entry.items():
        if key not in fields:
            raise ValueError(f"{where}: unknown field {key!r}{_suggest(str(key), fields)}")
        if value is not None:
            values[key] = _typed(str(fields[key].type), key, value, where)
    return _checked(Recipe(**values), where)


def _checked(recipe: Recipe, where: str) -> Recipe:
    if not recipe.model.strip():
        raise ValueError(f"{where}: an entry needs `model: org/name`")
    if recipe.parameters is not None and not 0 < recipe.parameters < math.inf:
        raise ValueError(f"{where}: parameters: {recipe.parameters:g} is not a number of billions, such as 8")
    _choice(recipe.status, STATUSES, "status", where)
    _choice(recipe.bradley_terry, BRADLEY_TERRY, "bradley_terry", where)
    if recipe.scale is not None:
        _choice(recipe.scale, SCALES, "scale", where)
    _choice(recipe.pooling, POOLINGS, "pooling", where)
    if recipe.dtype is not None:
        _choice(recipe.dtype, DTYPES, "dtype", where)
    if recipe.attention is not None:
        _choice(recipe.attention, ATTENTIONS, "attention", where)
    if recipe.status == "unsupported" and not recipe.reason:
        raise ValueError(f"{where}: 'unsupported' needs a `reason`")
    if recipe.head == "own-code" and not recipe.trust_remote_code:
        raise ValueError(
            f"{where}: `head: own-code` runs the model's own code and needs `trust_remote_code: true`"
        )
    if "/" in (recipe.head_file or "") or "\\" in (recipe.head_file or ""):
        raise ValueError(f"{where}: head_file: must be a file beside config.json, not in a subfolder")
    return recipe


def _typed(kind: str, key: str, value: Any, where: str) -> Any:
    """Check `value` against the annotation of a field; YAML reads a bare yes or no as a boolean."""
    if key == "bradley_terry" and isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        value = _FORMER.get(key, {}).get(value, value)
    base = kind.removesuffix(" | None")
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    right = {
        "str": isinstance(value, str),
        "bool": isinstance(value, bool),
        "int": number and math.isfinite(value) and int(value) == value,
        "float": number,
    }[base]
    if not right:
        raise ValueError(f"{where}: {key} must be {base}, not {value!r}")
    return float(value) if base == "float" else value


def _choice(value: str, allowed: tuple[str, ...], key: str, where: str) -> None:
    if value not in allowed:
        raise ValueError(f"{where}: {key}: unknown {value!r} (have: {', '.join(allowed)})")


def _suggest(key: str, fields: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(key, list(fields), n=1)
    return f" (did you mean {near[0]!r}?)" if near else f" (have: {', '.join(fields)})"


def _from_entry_points() -> list[Recipe]:
    """Collect recipes of installed packages: each entry point is a function that returns entries."""
    from importlib.metadata import entry_points

    recipes: list[Recipe] = []
    for point in entry_points(group=ENTRY_POINTS):
        where = f"entry point {point.name!r} ({point.value})"
        try:
            entries = list(point.load()())
        except Exception as error:
            raise ValueError(f"{where} failed: {type(error).__name__}: {error}") from error
        recipes += [recipe_from(entry, f"{where}, entry {i}") for i, entry in enumerate(entries, start=1)]
    return recipes
