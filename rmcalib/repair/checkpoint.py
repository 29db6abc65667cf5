"""Write a model whose rewards are divided by a calibrator's temperature, check it, and publish it."""

from __future__ import annotations

import glob
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.display import bracketed, clean_line
from rmcalib._util.files import write_json, write_text
from rmcalib._util.hub import check_repo_id, explain
from rmcalib._util.processes import may_draw
from rmcalib.benchmarks import load_benchmark
from rmcalib.judges import LoadOptions, Recipe
from rmcalib.judges._files import identify, is_local
from rmcalib.judges._scoring import Classifier
from rmcalib.metrics.catalogue import catalogue
from rmcalib.repair.calibration import METRICS, Calibration
from rmcalib.repair.calibrator import Calibrator, as_calibrator

if TYPE_CHECKING:
    from rmcalib._util.arrays import FloatArray

N_CHECKED = 8
"""How many prompts of the built-in benchmark are used to check a checkpoint."""
TOLERANCE = 1e-5
"""The largest accepted difference from r / T, relative to the largest |r / T|."""
_NOT_LINEAR = ("policy", "generative", "function")  # kinds of judges without a linear head


@dataclass(frozen=True)
class Checkpoint:
    """A calibrated model that :func:`write_checkpoint` has written.

    Attributes
    ----------
    folder : Path
        The folder of the new model.
    model, revision : str
        The original model, and its commit or hash.
    temperature : float
        The number that its rewards were divided by.
    tensors : tuple[str, ...]
        Names of the tensors that were divided.
    difference : float
        The largest difference from r / T on the prompts of the check, relative to the largest |r / T|.
    recipe_file : Path, optional
        A file for `-J recipes=...` if the model needs a recipe to be loaded; else None.
    """

    folder: Path
    model: str
    revision: str
    temperature: float
    tensors: tuple[str, ...]
    difference: float
    recipe_file: Path | None


def write_checkpoint(
    calibration: Calibration | Calibrator,
    folder: str | Path,
    *,
    model: str | None = None,
    repo_id: str | None = None,
    options: LoadOptions | None = None,
) -> Checkpoint:
    """Write a copy of a model whose rewards r are divided by the temperature T, and check the copy.

    Only the last linear layer changes. Then both models score the same prompts. The folder is created only
    if the rewards of the new model are r / T.

    Parameters
    ----------
    calibration : Calibration | Calibrator
        The result of `calibrate`, or a calibrator.
    folder : str | Path
        The folder to write; must not exist, or be empty.
    model : str, optional
        A Hub id, a local folder or ``"demo"``; default the model that the calibrator was fitted for.
    repo_id : str, optional
        The name of the new model on the Hub, for its recipe and model card.
    options : LoadOptions, optional
        How to load the model.

    Returns
    -------
    Checkpoint

    Raises
    ------
    ValueError
        If the folder is in use; if the rewards do not come from a linear layer; or if the model has changed
        since the calibrator was fitted.

    Examples
    --------
    >>> import tempfile
    >>> calibrator = Calibrator(0.5, 0.4, 0.6, model="demo")
    >>> with tempfile.TemporaryDirectory() as place:
    ...     made = write_checkpoint(calibrator, f"{place}/demo-calibrated", options=LoadOptions(device="cpu"))
    ...     made.tensors, made.difference < 1e-5
    (('score.weight',), True)
    """
    from rmcalib.judges._weights import write_rescaled

    calibrator = as_calibrator(calibration)
    rows = [] if isinstance(calibration, Calibrator) else calibration.rows
    target, name = check_destination(folder), model or calibrator.model
    if not name:
        raise ValueError("model: the scores do not name the model; give its name")
    if calibrator.fitted_on.get("judge") in _NOT_LINEAR or calibrator.threshold is not None:
        raise ValueError(
            f"{name}: a checkpoint divides the rewards of a linear layer by T. This judge has none, or the calibrator "
            "also has a threshold b: use the calibrator itself instead"
        )
    options = _at_revision(name, calibrator, options or LoadOptions())
    with _written_whole(target) as draft:
        done = write_rescaled(name, calibrator.temperature, draft, options)
        _note_in_config(draft, calibrator, name, done.revision)
        replace(calibrator, model=_public(name)).save(draft / "calibrator.json")
        has_recipe = _write_recipe(draft, done.recipe, [str(folder), *([repo_id] if repo_id else [])])
        about = {"model": _public(name), "revision": done.revision, "tensors": done.tensors}
        card = _model_card(calibrator, rows, name=clean_line(repo_id or target.name), **about)
        write_text(draft / "README.md", card)
        difference = _check(name, draft, calibrator.temperature, options, done.recipe)
    return Checkpoint(
        folder=target,
        model=name,
        revision=done.revision,
        temperature=calibrator.temperature,
        tensors=done.tensors,
        difference=difference,
        recipe_file=target / "recipe.yaml" if has_recipe else None,
    )


def check_destination(folder: str | Path, repo_id: str | None = None) -> Path:
    """Raise a ValueError if a checkpoint cannot be written to a folder, or uploaded to a repository of the Hub."""
    path = Path(folder)
    if path.is_symlink() or (path.exists() and not (path.is_dir() and not any(path.iterdir()))):
        raise ValueError(f"{folder}: exists; give a new folder for the checkpoint")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder}: cannot be written: {error.strerror}") from error
    if repo_id is not None:
        from huggingface_hub import constants, get_token

        if "/" not in check_repo_id(repo_id):
            raise ValueError(f"{repo_id}: name the owner of the repository, too, such as me/{repo_id}")
        if constants.HF_HUB_OFFLINE:
            raise ValueError(f"{repo_id}: HF_HUB_OFFLINE is set, so nothing can be uploaded")
        if get_token() is None:
            raise ValueError(f"{repo_id}: log in first (`hf auth login`), or set HF_TOKEN")
    return path


def push_checkpoint(folder: str | Path, repo_id: str) -> str:
    """Upload a checkpoint to the Hub, with the login of `hf auth login` or HF_TOKEN.

    The repository is created if it does not exist. It is used like this::

        checkpoint = write_checkpoint(calibration, "rm-calibrated", repo_id="me/rm-calibrated")
        push_checkpoint(checkpoint.folder, "me/rm-calibrated")

    Parameters
    ----------
    folder : str | Path
        The folder that `write_checkpoint` has written.
    repo_id : str
        The model repository, `owner/name`.

    Returns
    -------
    str
        The address of the repository.

    Raises
    ------
    HubError
        If the Hub refuses the upload; the message says why in one line.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not may_draw():
        disable_progress_bars()
    api, message = HfApi(), "Add a model calibrated by rmcalib"
    try:
        address = api.create_repo(repo_id, repo_type="model", exist_ok=True)
        api.upload_folder(repo_id=repo_id, folder_path=str(folder), commit_message=message)
    except Exception as error:
        raise explain(error, repo_id) from error
    return str(address)


def _at_revision(name: str, calibrator: Calibrator, options: LoadOptions) -> LoadOptions:
    """Return options with the revision that was calibrated; refuse a local model that has changed."""
    fitted = calibrator.fitted_on.get("model_revision")
    if not fitted or name != calibrator.model:
        return options
    if not is_local(name):
        return options if options.revision else replace(options, revision=str(fitted))
    if identify(name) != fitted:
        raise ValueError(f"{name}: its files have changed since they were scored: score them again")
    return options


@contextmanager
def _written_whole(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target`; it is renamed to `target` on success, and removed otherwise.

    Folders that killed processes have left are removed, too.
    """
    import psutil

    for left in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        made_by = left.name.split(".")[-2]
        if made_by.isdigit() and not psutil.pid_exists(int(made_by)):
            shutil.rmtree(left, ignore_errors=True)
    draft = target.parent / f".{target.name}.{os.getpid()}.tmp"
    try:
        draft.mkdir()
        yield draft
        draft.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _note_in_config(folder: Path, calibrator: Calibrator, model: str, revision: str) -> None:
    """Describe the calibration in config.json; a PEFT adapter has no such file."""
    path = folder / "config.json"
    if path.is_file():
        content = json.loads(path.read_text(encoding="utf-8"))
        note = {
            "temperature": calibrator.temperature,
            "fitted_on": dict(calibrator.fitted_on),
            "base_model": _public(model),
            "base_revision": revision,
        }
        write_json(path, {**content, "rmcalib_calibration": note})


def _public(model: str) -> str:
    """Return a model's name without its parent folders, which should not be published."""
    return Path(model).resolve().name if is_local(model) and model != "demo" else model


def _write_recipe(folder: Path, recipe: Recipe, names: list[str]) -> bool:
    """Write a recipe for the model under its new names, if it needs one; return whether it does."""
    defaults = asdict(Recipe(recipe.model))
    values = {key: value for key, value in asdict(recipe).items() if value != defaults[key]}
    if not values:
        return False
    import yaml

    entries = [{"model": name, **values} for name in dict.fromkeys(names)]
    write_text(folder / "recipe.yaml", yaml.safe_dump({"models": entries}, sort_keys=False))
    return True


def _check(model: str, folder: Path, temperature: float, options: LoadOptions, recipe: Recipe) -> float:
    """Score some prompts with both models; return the largest difference from r / T, or raise."""
    original = Classifier(model, options)
    if original.model.kind != "causal" or "base" in original.model.sources:
        # The head is computed in the dtype of the model, which may round it.
        options = replace(options, dtype="float32")
        original = Classifier(model, options)
    expected = _rewards(original) / temperature
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # they would name the draft's folder, and came for the original already
        after = _rewards(Classifier(str(folder), replace(options, revision=None, recipe=recipe)))
    largest = float(np.abs(expected).max()) or 1.0
    difference = float(np.abs(after - expected).max()) / largest
    if not difference <= TOLERANCE:
        raise ValueError(
            f"{model}: its rewards are not linear in its last layer: the rewards of the scaled model differ "
            f"from r / T by {difference:.2g} of the largest (at most {TOLERANCE:g} is accepted). Nothing was "
            "written; use the calibrator itself instead"
        )
    return difference


def _rewards(judge: Classifier) -> FloatArray:
    items = load_benchmark("demo", limit=N_CHECKED).items
    scored: list[Any] = [item for chunk in judge.score(items) for item in chunk]
    return np.array([reward for item in scored for reward in item.rewards], dtype=float)


def _model_card(calibrator: Calibrator, rows: Sequence[Mapping[str, Any]], **about: Any) -> str:
    """Return a model card in Markdown: what was changed in the model, and which prompts were used."""
    from jinja2 import Environment, PackageLoader

    templates = Environment(loader=PackageLoader("rmcalib.repair", "."), trim_blocks=True)
    templates.filters["code"] = _code
    by_stage = {(row["stage"], row["metric"]): row for row in rows if row["category"] == "overall"}
    table = [
        (catalogue()[metric].label, *(bracketed(by_stage[stage, metric]) for stage in ("before", "after")))
        for metric in METRICS["top_1"]
        if ("before", metric) in by_stage and ("after", metric) in by_stage
    ]
    card = templates.get_template("checkpoint.md.jinja")
    return (
        f"{card.render(calibrator=calibrator, fitted=calibrator.fitted_on, table=table, **about).rstrip()}\n"
    )


def _code(text: Any) -> str:
    """Return text as inline code: a name cannot add markup or lines."""
    return f"`{clean_line(str(text)).replace('`', chr(39))}`"
