"""The registry of recipes: how each known reward model is loaded, and the scale of its rewards.

`leaderboard.yaml` has the classifiers of RewardBench 2. Users add entries with a YAML file in the same
format, packages with the entry point group `rmcalib.models`. Later entries replace earlier ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict, StrictBool, StrictInt

from rmcalib._util.display import shortened
from rmcalib._util.storage import read_input
from rmcalib._util.texts import did_you_mean, parse_yaml, repeated, typed
from rmcalib.scores import Scores
from rmcalib.scores.scale import Kind, Scale, scale_by_loss

LEADERBOARD = Path(__file__).parent / "leaderboard.yaml"
ENTRY_POINTS = "rmcalib.models"


def _said(value: Any) -> Any:
    """Return what YAML read without quotes: `yes` and `no` are truth values there."""
    return {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Filled = Annotated[str, Field(pattern=r"\S")]
Status = Literal["plain", "recipe", "rebuilt", "own-code", "unsupported"]
BradleyTerry = Annotated[Literal["yes", "modified", "no", "unknown"], BeforeValidator(_said)]
Dtype = Literal["float32", "bfloat16", "float16"]
Attention = Literal["eager", "sdpa", "flash_attention_2"]
Pooling = Literal["checkpoint", "last_token"]
Billions = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
OwnFile = Annotated[str, Field(pattern=r"^[^/\\]*$")]
Marks = dict[str, Annotated[tuple[str, ...], BeforeValidator(_listed)]]
# Fields that describe a model, and do not change its scores.
ABOUT = ("status", "reason", "loss", "evidence", "bradley_terry", "parameters", "note")


@dataclass(frozen=True)
class Recipe:
    """How to load a model, beyond what its files say. The defaults fit any classifier with one label.

    Parameters
    ----------
    model : str
        Hub id, or path of a folder.
    status : str
        `plain` (no settings needed), `recipe` (needs some of the settings below), `rebuilt` (the head is
        rebuilt from the checkpoint's tensors), `own-code` (runs the model's own code, which needs
        `trust_remote_code`) or `unsupported`.
    reason : str
        Why the model is unsupported.
    template : str, optional
        Name of a built-in chat template. None: the tokenizer's own.
    dtype : str, optional
        Dtype on accelerators. None: that of the checkpoint.
    attention : str, optional
        `eager`, `sdpa` or `flash_attention_2`. None: what transformers chooses.
    max_length : int, optional
        The longest text that the model can read, in tokens. None: as in its configuration.
    trust_remote_code : bool
        Whether the model needs its own Python code.
    column : int, optional
        Index of the output that is the reward, if there are several.
    sign : float
        -1 for cost models.
    head : str
        `auto` (the stock head), `own-code` (the model's own code), or the prefix of the head's tensors.
    head_file : str, optional
        File with the head's tensors. None: the checkpoint.
    gate_file : str, optional
        File with the tensors of a gate. The head is then a mixture of label distributions
        (`rmcalib.judges._weights.LabelDistributions`).
    backbone_prefix : str, optional
        Prefix of the transformer's tensors, if it is unusual.
    architecture : str, optional
        Transformers' model type, if the checkpoint names it differently.
    output : str
        For `head="own-code"`, the field of the output with the rewards.
    pooling : str
        The token whose hidden state gives the reward: `checkpoint` (by the configuration's padding token) or
        `last_token`.
    append_token_id : int, optional
        Id of a token that every text has to end with: it is appended where it is missing.
    tokenizer : str, optional
        Another repository to load the tokenizer from.
    loss, evidence : str
        The training loss, and how it is known.
    bradley_terry : str
        Whether the reward is a log-utility: `yes`, `modified`, `no` or `unknown`.
    parameters : float, optional
        Number of parameters in billions.
    note : str
        Anything else that reports should show.
    family : str, optional
        Name of a group of related models, such as those with the same base. None: the organisation.
    scale : str, optional
        What the rewards are (the kinds of `rmcalib.scores.Scale`). None: it follows from `bradley_terry`.
    recognised_by : dict[str, tuple[str, ...]]
        What the files of such a model have, so that a folder with another name is recognised: values of
        fields of `config.json`, one of several. `class` is a class that `architectures` or `auto_map` names,
        and `tensor` the name of a tensor.

    Examples
    --------
    >>> Recipe("me/my-rm", head="v_head.summary", pooling="last_token").status
    'plain'
    """

    model: Filled
    status: Status = "plain"
    reason: str = ""
    template: str | None = None
    dtype: Dtype | None = None
    attention: Attention | None = None
    max_length: StrictInt | None = None
    trust_remote_code: StrictBool = False
    column: StrictInt | None = None
    sign: Annotated[float, Strict()] = 1.0
    head: str = "auto"
    head_file: OwnFile | None = None
    gate_file: OwnFile | None = None
    backbone_prefix: str | None = None
    architecture: str | None = None
    output: str = "logits"
    pooling: Pooling = "checkpoint"
    append_token_id: StrictInt | None = None
    tokenizer: str | None = None
    loss: str = "unknown"
    evidence: str = ""
    bradley_terry: BradleyTerry = "unknown"
    parameters: Billions | None = None
    note: str = ""
    family: str | None = None
    scale: Kind | None = None
    recognised_by: Marks = dataclasses.field(default_factory=dict)


def registry(files: Iterable[str | Path] = ()) -> dict[str, Recipe]:
    """Return all known recipes.

    Parameters
    ----------
    files : Iterable[str | Path]
        YAML files with more recipes.

    Returns
    -------
    dict of str to Recipe
        Recipes by model: those of the leaderboard, of installed packages (entry point group
        `rmcalib.models`) and of `files`. Later ones replace earlier ones of the same model.

    Examples
    --------
    >>> registry()["Skywork/Skywork-Reward-V2-Llama-3.1-8B"].bradley_terry
    'yes'
    """
    recipes = {recipe.model: recipe for recipe in read_recipes(LEADERBOARD)}
    recipes |= {recipe.model: recipe for recipe in _from_entry_points()}
    for file in files:
        recipes |= {recipe.model: recipe for recipe in read_recipes(Path(file))}
    return recipes


def read_recipes(path: Path) -> list[Recipe]:
    """Read the recipes of a YAML file (see `read_entries`)."""
    return [recipe_from(entry, where) for where, entry in read_entries(path)]


def read_entries(path: str | Path | None = None) -> list[tuple[str, Any]]:
    """Read the entries of a YAML file with models, without checking their fields.

    Parameters
    ----------
    path : str | Path, optional
        A file with a list of entries, or with such a list under `models`. An id alone is an entry, too.
        Default: the models of RewardBench 2's leaderboard.

    Returns
    -------
    list of (str, entry)
        Where each entry is in the file, for messages, and the entry as YAML gives it.

    Examples
    --------
    >>> where, entry = read_entries()[0]
    >>> entry["model"]
    'Skywork/Skywork-Reward-V2-Llama-3.1-8B'
    """
    path = LEADERBOARD if path is None else Path(path)
    content = parse_yaml(read_input(path), str(path))
    entries = content.get("models") if isinstance(content, Mapping) else content
    if not isinstance(entries, list):
        raise ValueError(f"{path}: expected a list of entries under 'models'")
    entries = [{"model": entry} if isinstance(entry, str) else entry for entry in entries]
    names = [entry.get("model") for entry in entries if isinstance(entry, Mapping)]
    if twice := repeated(name for name in names if isinstance(name, str)):
        raise ValueError(f"{path}: {twice!r} is listed twice")
    return [(f"{path}, entry {i}", entry) for i, entry in enumerate(entries, start=1)]


def recipe_from(entry: Any, where: str) -> Recipe:
    """Turn an entry of a file into a recipe.

    Parameters
    ----------
    entry : Any
        A mapping with fields of `Recipe`, or a `Recipe`.
    where : str
        Where the entry comes from, for messages.

    Returns
    -------
    Recipe
        The recipe, whose fields have been checked.

    Examples
    --------
    >>> recipe_from({"model": "me/rm", "column": 1}, "mine.yaml, entry 1").column
    1
    >>> recipe_from({"model": "me/rm", "colunm": 1}, "mine.yaml, entry 1")
    Traceback (most recent call last):
    ValueError: mine.yaml, entry 1 (me/rm): colunm: unknown field (did you mean 'column'?)
    """
    if isinstance(entry, Recipe):
        entry = dataclasses.asdict(entry)
    if not isinstance(entry, Mapping) or not isinstance(entry.get("model"), str):
        raise ValueError(f"{where}: an entry needs `model: org/name`")
    where = f"{where} ({shortened(entry['model'], 100)})"
    try:
        check_names(entry, [field.name for field in dataclasses.fields(Recipe)], "field")
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    recipe = typed(Recipe, {key: value for key, value in entry.items() if value is not None}, where)
    if recipe.status == "unsupported" and not recipe.reason:
        raise ValueError(f"{where}: 'unsupported' needs a `reason`")
    if recipe.head == "own-code" and not recipe.trust_remote_code:
        raise ValueError(
            f"{where}: `head: own-code` runs the model's own code and needs `trust_remote_code: true`"
        )
    return recipe


def scale_of(recipe: Recipe) -> Scale | str:
    """Return what a model's rewards are: its recipe's `scale`, or what follows from how it was trained.

    >>> scale_of(Recipe("org/rm", bradley_terry="yes")).kind, scale_of(Recipe("org/rm")).assumed
    ('utility', True)
    """
    if recipe.scale == "probability":
        return "probability"  # they are turned into log-odds
    return scale_by_loss(recipe.loss, recipe.bradley_terry, recipe.scale)


def scaled_by(scores: Scores, recipe: Recipe) -> Scores:
    """Return scores that know what their rewards are by a recipe, unless they are not the model's rewards."""
    scale = scale_of(recipe)
    if "score_kind" in scores.manifest or not isinstance(scale, Scale) or scale.assumed:
        return scores
    return scores.with_scale(scale)


def hashed_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return the fields of a recipe that change scores."""
    left_out = (*ABOUT, "model", "scale", "family", "recognised_by")
    return {name: value for name, value in dataclasses.asdict(recipe).items() if name not in left_out}


def check_names(
    given: Iterable[Any], allowed: Iterable[str], what: str = "setting", *, have: Iterable[str] | None = None
) -> None:
    """Raise a `ValueError` for the first name that is not known, with the nearest one that is.

    If none is near, all known names are listed, or those in `have`.
    """
    names = list(allowed)
    for name in given:
        if name not in names:
            otherwise = "" if have is None else f"have: {', '.join(have) or 'none'}"
            raise ValueError(f"{name}: unknown {what} ({did_you_mean(name, names, otherwise)})")


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
