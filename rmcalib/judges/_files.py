"""Find the files of a model, and check them before anything is built from them.

A model is a Hub id, a local folder, a PEFT adapter with its base, or the demo. Its files may be damaged, or
hostile. No code of a model runs without the user's permission. What is left is data that takes forever, fills
the memory, or ends the process: a configuration with a million layers, a tokenizer that aborts. Each of these
is refused in one line.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import subprocess
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmcalib._util import hub
from rmcalib._util.files import kind_on_disk, read_object
from rmcalib._util.hub import HubError
from rmcalib._util.processes import isolated
from rmcalib.judges._recognise import registered_name
from rmcalib.judges._registry import Recipe, hashed_recipe, registry
from rmcalib.judges._settings import LoadOptions

DEMO = Path(__file__).parents[1] / "demo" / "model"
_LARGEST_JSON = 256 * 2**20  # bytes of a configuration
_TRIAL_SECONDS = 6.0  # of CPU time, without imports
_LAYERS = re.compile(r"n(um)?_(hidden_)?layers?")
_SIZES = re.compile(
    r"\w*(hidden|intermediate|vocab)_size|n_embd|d_model|ffn_dim|head_dim|num_labels|n_head|n(um)?_\w*(heads|experts)"
)
_FEW_LAYERS = 1_000  # quick to build, whatever the weights are
_SMALL = 4_096  # a size that needs little memory, whatever the weights are
# Settings that do not change a reward, or that another machine may have otherwise.
_NOT_ASKED = (
    *("token_budget", "recipe", "recipes", "python", "tensor_parallel"),
    *("concurrency", "timeout", "api_key_env", "judge_prompt"),
)


@dataclass(frozen=True)
class ModelFiles:
    """A model that is to be loaded, and where its files are.

    Attributes
    ----------
    name, recipe, options
        What the user asked for.
    commit : str
        The model's commit, or the SHA-256 of a local folder's files.
    weights, tokenizer : Path
        Folders with the weights (of an adapter: those of its base) and the tokenizer.
    adapter : Path, optional
        Folder of a PEFT adapter; None for other models.
    base : tuple[str, str], optional
        Name and commit of the adapter's base model.
    code_commit : str, optional
        Commit of code in another repository.
    sources : dict[str, str]
        Other repositories that were used, for the manifest.
    """

    name: str
    recipe: Recipe
    options: LoadOptions
    commit: str
    weights: Path
    tokenizer: Path
    adapter: Path | None
    base: tuple[str, str] | None
    code_commit: str | None
    sources: dict[str, str]

    @property
    def is_rebuilt(self) -> bool:
        """Whether a stock transformer and a rebuilt head replace the model's own code."""
        return self.recipe.head not in ("auto", "own-code")

    def code(self, *, model: bool = True) -> dict[str, Any]:
        """Return the options of `from_pretrained` for own code: of the model, or only of its tokenizer."""
        trusted = self.options.trust_remote_code and not (model and self.is_rebuilt)
        return {"trust_remote_code": trusted, "code_revision": self.code_commit}


def find_files(name: str, options: LoadOptions, *, small_files_only: bool = False) -> ModelFiles:
    """Find the files of a model, of an adapter's base, and of the tokenizer that its recipe names."""
    name = name if is_local(name) else registered_id(name)
    match = options.find_recipe(name)
    recipe = match.recipe
    if match.source:
        warnings.warn(f"{name}: read with {match.source} (recipe=... names another)", stacklevel=2)
    if recipe.status == "unsupported":
        raise HubError(f"{name}: not supported: {recipe.reason}")
    if recipe.trust_remote_code and not options.trust_remote_code:
        raise HubError(f"{name}: {hub.OWN_CODE}")
    if any(not file.endswith(".safetensors") for file in _head_files(recipe)) and not (
        small_files_only or options.allow_pickle
    ):
        raise HubError(
            f"{name}: the head is in pickle files ({', '.join(_head_files(recipe))}), {hub.PICKLE}"
        )
    folder, commit = locate(name, options, small_files_only=small_files_only)
    sources: dict[str, str] = {}
    adapter, base = None, None
    if (folder / "adapter_config.json").is_file():
        adapter = folder
        pickled = (adapter / "adapter_model.bin").is_file() and not hub.has_safe_weights(adapter)
        if pickled and not (small_files_only or options.allow_pickle):
            raise HubError(f"{name}: {hub.PICKLE_ONLY}")
        base_name, branch = _base_of(name, adapter, options)
        try:
            asked = dataclasses.replace(options, revision=branch)
            folder, at = locate(base_name, asked, small_files_only=small_files_only)
        except HubError as error:
            raise HubError(f"{name}: its base model cannot be loaded: {error}") from error
        base, sources["base"] = (base_name, at), f"{base_name}@{at}"
        if branch is not None:
            sources["base_asked"] = branch
    tokenizer = adapter if adapter and (adapter / "tokenizer_config.json").is_file() else folder
    if (other_tokenizer := _other_tokenizer(name, recipe)) is not None:
        try:
            tokenizer, at = locate(other_tokenizer, LoadOptions(), small_files_only=True)
        except HubError as error:
            raise HubError(
                f"{name}: needs another tokenizer, in its folder or from the Hub: {error}"
            ) from error
        sources["tokenizer"] = f"{other_tokenizer}@{at}"
    code_commit = None
    if options.trust_remote_code and (other := _other_code(name, folder, tokenizer)) is not None:
        code_commit = commit
        if other != name:
            code_commit = hub.resolve_commit(other)
            sources["code"] = f"{other}@{code_commit}"
    return ModelFiles(name, recipe, options, commit, folder, tokenizer, adapter, base, code_commit, sources)


def _other_tokenizer(name: str, recipe: Recipe) -> str | None:
    """Return the repository with the tokenizer of a model; None if it is the model's own.

    A folder with a tokenizer needs no other one: it may be on a machine that cannot reach the Hub.
    """
    files = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")
    has_own = is_local(name) and any((Path(name) / file).is_file() for file in files)
    return None if has_own else recipe.tokenizer


def _head_files(recipe: Recipe) -> tuple[str, ...]:
    return tuple(file for file in (recipe.head_file, recipe.gate_file) if file is not None)


def locate(name: str, options: LoadOptions, *, small_files_only: bool = False) -> tuple[Path, str]:
    """Return the folder with a model's files, downloaded if needed, and its commit or SHA-256."""
    commit = identify(name, options.revision)
    if is_local(name):
        return DEMO if name == "demo" else Path(name), commit
    folder = hub.fetch_model(
        name,
        commit,
        revision=options.revision,
        trust_remote_code=options.trust_remote_code,
        allow_pickle=options.allow_pickle,
        extra_files=_head_files(options.recipe_for(name)),
        small_files_only=small_files_only,
    )
    return folder, commit


def identify(name: str, revision: str | None = None) -> str:
    """Return the commit of a Hub model, or the SHA-256 of a local model's files. Nothing is downloaded.

    >>> len(identify("demo"))
    64
    """
    if not is_local(name):
        return hub.resolve_commit(check_model_name(name), revision=revision)
    if revision is not None:
        raise HubError(f"revision: {name} is a folder; only models of the Hub have revisions")
    folder, total = DEMO if name == "demo" else Path(name), hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise HubError(f"{name}: {path.name} is not a file (a pipe, a socket or a device): remove it")
        if path.name.startswith(".") or not path.is_file():
            continue
        with path.open("rb") as file:
            total.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def asked_for(name: str, options: LoadOptions, *others: str | None) -> dict[str, Any]:
    """Return what determines the rewards of a model, as far as it is known without its weights.

    These are its commit and those of the `others` (a base, a reference), the settings, and the recipe.
    Settings that depend on the machine stay `auto`, because another machine may do the scoring.

    >>> asked_for("demo", LoadOptions(device="cpu"))["dtype"]
    'auto'
    """
    recipe = options.recipe_for(name)
    settings = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    return {
        **{key: value for key, value in settings.items() if key not in _NOT_ASKED},
        # `auto` depends on the type of the device, and on nothing else of it
        "device": options.device.partition(":")[0] if options.dtype == "auto" else None,
        "revision": identify(name, options.revision),
        "others": [
            other and identify(other) for other in (options.base, _other_tokenizer(name, recipe), *others)
        ],
        "recipe": hashed_recipe(recipe),
    }


def is_local(name: str) -> bool:
    """Return whether a model is on this machine: `"demo"`, or a folder.

    >>> is_local("demo"), is_local("org/name")
    (True, False)
    """
    return name == "demo" or kind_on_disk(name) == "folder"


def model_from(name: str) -> str:
    """Return where a model is taken from, for manifests: `demo`, `folder` or `hub`."""
    return "demo" if name == "demo" else "folder" if is_local(name) else "hub"


def check_model_name(name: str) -> str:
    """Return `name` if it is a local model or can be a Hub id; otherwise raise a `HubError`.

    A folder that is named like a Hub id is used, and a registered id in another case is taken as it is
    registered, both with a warning.
    """
    if not is_local(name):
        if kind_on_disk(name) == "file":
            raise HubError(f"{name}: is a file; give its folder: {Path(name).parent}")
        return hub.check_repo_id(registered_id(name))
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", name):
        used = f"{name}: the folder of this name is used, not the Hub's model (write ./{name} to say so)"
        warnings.warn(used, stacklevel=2)
    return name


def registered_id(name: str, names: Iterable[str] | None = None) -> str:
    """Return the registered id that differs from a name only in upper and lower case, with a warning."""
    model = registered_name(name, registry() if names is None else names)
    if model != name:
        warnings.warn(f"{name}: taken as {model}, as it is registered", stacklevel=3)
    return model


def read_json(name: str, path: Path) -> dict[str, Any]:
    """Read a JSON object of a model; raise a `HubError` if it is not one."""
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise ValueError(f"it has more than {_LARGEST_JSON:,} bytes")
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("not a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise HubError(f"{name}: {path.name} cannot be read: {' '.join(str(error).split())[:200]}") from error
    return content


def check_config(name: str, file: Path, weights: list[Path], *, trust_remote_code: bool) -> None:
    """Raise a `HubError` if a configuration asks for foreign code, or for a model larger than the weights.

    `file` is the config.json of a model, or the adapter_config.json of a PEFT adapter, which has a rank `r`.
    """
    with hub.translated(name):
        entries = list(_entries(read_json(name, file)))
        shapes = _tensor_shapes(weights)
    largest = max((max(shape) for shape in shapes.values() if shape), default=0)
    n_layers = len({number for key in shapes for number in re.findall(r"\.(\d{1,6})\.", key)})
    for key, value in entries:
        foreign = isinstance(value, str) and key.endswith("attn_implementation") and "/" in value
        if foreign and not trust_remote_code:
            raise HubError(
                f"{name}: its attention ({value!r}) is code of another repository; it {hub.OWN_CODE}"
            )
        if not shapes or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        limit: float = float("inf")
        if _LAYERS.fullmatch(key):
            limit = max(n_layers, _FEW_LAYERS)
        elif _SIZES.fullmatch(key):
            limit = max(largest, _SMALL)
        elif key == "r":
            limit = largest
        if not -1 <= value <= limit and limit < float("inf"):
            raise HubError(
                f"{name}: {file.name} has {key} = {value}, but the weights have at most {limit}: the file is "
                "damaged, or belongs to another model"
            )


def try_tokenizer(name: str, folder: Path) -> None:
    """Use a tokenizer and its chat template in another process, and refuse them if that fails.

    A tokenizer can end the whole process, and its regular expressions and its template may take forever.
    """
    run = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    command = isolated(run, str(Path(__file__).with_name("_trial.py")), str(folder), str(_TRIAL_SECONDS))
    try:  # with time for imports on slow disks
        done = subprocess.run(command, capture_output=True, timeout=10 * _TRIAL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise HubError(f"{name}: its tokenizer or chat template takes too long for a short text") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [
            f"signal {-done.returncode}"
        ]
        raise HubError(
            f"{name}: its tokenizer or chat template cannot be used within {_TRIAL_SECONDS:.0f} seconds "
            f"({said[0][:200]}): fetch or save it again"
        )


def _tensor_shapes(files: list[Path]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of safetensors files, from their headers."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for path in files:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="np") as file:
                shapes |= {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    return shapes


def _base_of(name: str, adapter: Path, options: LoadOptions) -> tuple[str, str | None]:
    """Return the name and the requested revision of a PEFT adapter's base model.

    An adapter may not choose a folder of this machine: only the user may.
    """
    settings = read_json(name, adapter / "adapter_config.json")
    base, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    if options.base is not None:
        return options.base, revision if base == options.base and isinstance(revision, str) else None
    if not isinstance(base, str) or not base or is_local(base):
        raise HubError(f"{name}: a PEFT adapter whose base model is {base!r}: give its base model (`base`)")
    return base, revision if isinstance(revision, str) else None


def _other_code(name: str, *folders: Path) -> str | None:
    """Return the repository whose code the files in `folders` point to (`other/repo--module.Class`).

    transformers would use its newest commit; with a known commit, it is pinned. transformers takes only one
    commit, so that code of several repositories cannot be pinned.
    """
    files = [folder / file for folder in folders for file in ("config.json", "tokenizer_config.json")]
    references = [
        str(value) for file in files for value in dict(_entries(read_object(file).get("auto_map"))).values()
    ]
    repositories = {each for text in references for each in re.findall(r"([\w.-]+/[\w.-]+?)--", text)}
    if len(repositories) > 1:
        raise HubError(f"{name}: its code is in several repositories ({', '.join(sorted(repositories))})")
    return repositories.pop() if repositories else None


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield all keys and values of nested JSON."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield str(key), value
            yield from _entries(value)
    elif isinstance(content, list):
        for value in content:
            yield from _entries(value)
