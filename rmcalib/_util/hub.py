"""The Hugging Face Hub: check ids, resolve commits, and explain failures in one clear line.

The libraries report the same problem in different ways: a gated repository is an `OSError` in transformers, a
`DatasetNotFoundError` in datasets, and a `GatedRepoError` in huggingface_hub. Here, all of them become a
`HubError`, whose message names the repository, the cause and the remedy.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal, TypeVar

from rmcalib._util.files import write_text
from rmcalib._util.processes import may_draw
from rmcalib._util.secrets import masked
from rmcalib._util.storage import retried, retry_after, why, within

RepoType = Literal["model", "dataset"]
T = TypeVar("T")

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_REPO_ID = re.compile(rf"{_PART}(?:/{_PART})?")
_LONGEST_NAME = 200
_SHA = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"\w[\w./-]*")
_PAUSES = (1.0, 2.0, 4.0)  # seconds between attempts if the Hub does not answer
SMALL_FILES = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
_SAFE_WEIGHTS = ("model.safetensors", "model-*.safetensors", "adapter_model.safetensors")
_PICKLE_WEIGHTS = ("pytorch_model.bin", "pytorch_model-*.bin", "adapter_model.bin")
OWN_CODE = "runs its own Python code: pass trust_remote_code=True if you trust it"
PICKLE = "which can run code when loaded: pass allow_pickle=True if you trust it"
PICKLE_ONLY = f"has pickle weights only, {PICKLE}"


class HubError(ValueError):
    """A model or data set is not available from the Hub. The message is one line with the remedy."""

    def __init__(self, message: str) -> None:
        """Mask keys."""
        super().__init__(masked(message))


def check_repo_id(name: str) -> str:
    """Return `name` if it can be the id of a Hub repository, else raise a `HubError`.

    >>> check_repo_id("allenai/reward-bench-2")
    'allenai/reward-bench-2'
    >>> check_repo_id("../../x")
    Traceback (most recent call last):
    rmcalib._util.hub.HubError: '../../x' is neither a file or folder here nor a Hub id like 'org/name'
    """
    if (
        not _REPO_ID.fullmatch(name)
        or ".." in name
        or "--" in name
        or len(name) > 96
        or name.endswith(".git")
    ):
        raise HubError(f"{name!r} is neither a file or folder here nor a Hub id like 'org/name'")
    return name


def folder_name(name: str) -> str:
    """Return the name of the output folder of a model or benchmark: always a single path component.

    A Hub id `org/name` gives `org__name`; for a local path, the last two components are used. If characters
    had to be replaced or cut, a short hash of the name is added, so that two names never share a folder.

    >>> folder_name("Skywork/Skywork-Reward-V2-Llama-3.1-8B")
    'Skywork__Skywork-Reward-V2-Llama-3.1-8B'
    >>> folder_name("../../checkpoints/run-1/step-500/")
    'run-1__step-500'
    >>> folder_name("lab/naïve rm")
    'lab__na_ve_rm-0544c725'
    """
    parts = [part for part in name.replace("\\", "/").split("/") if part.strip(".")][-2:]
    safe = [re.sub(r"[^A-Za-z0-9_.-]+", "_", part).lstrip(".") for part in parts]
    whole = "__".join(part for part in safe if part.strip("_.-"))
    if not whole:
        raise HubError(f"{name!r} has no letters or digits, so no output folder can be named after it")
    if safe == parts and len(whole) <= _LONGEST_NAME:
        return whole
    digest = hashlib.sha256("/".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{whole[:_LONGEST_NAME]}-{digest}"


def resolve_commit(name: str, *, repo_type: RepoType = "model", revision: str | None = None) -> str:
    """Return the commit (40 hex digits) of a `revision` (branch, tag or commit; default `main`).

    The answer of the Hub is stored in the `refs` folder of the Hub's cache. If the Hub cannot be reached, the
    stored commit is used.
    """
    check_repo_id(name)
    wanted = revision or "main"
    if _SHA.fullmatch(wanted):
        return wanted
    if not _REVISION.fullmatch(wanted) or ".." in wanted:  # it becomes a file name in the cache
        raise HubError(f"{name}: revision: {wanted!r} is not a branch, tag or commit")
    import huggingface_hub
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import OfflineModeIsEnabled

    ref = Path(constants.HF_HUB_CACHE, f"{repo_type}s--{name.replace('/', '--')}", "refs", wanted)
    # Little patience if there is an earlier answer.
    pauses, timeout = ((1.0,), 5.0) if ref.is_file() else (_PAUSES, 20.0)
    try:
        if constants.HF_HUB_OFFLINE:
            raise OfflineModeIsEnabled("HF_HUB_OFFLINE is set")
        info = _patiently(
            lambda: HfApi().repo_info(name, repo_type=repo_type, revision=wanted, timeout=timeout),
            pauses,
            f"{name}: waiting for the Hub at {constants.ENDPOINT}, which does not answer",
            seconds=3 * timeout,
        )
    except Exception as error:
        if ref.is_file() and _status(error) not in (401, 403, 404):
            # Later downloads must not reuse a dead connection.
            huggingface_hub.utils.reset_sessions() if _is_old_hub() else huggingface_hub.close_session()
            commit = ref.read_text().strip()
            if not constants.HF_HUB_OFFLINE:
                notice = f"{name}: the Hub at {constants.ENDPOINT} does not answer; using commit "
                warnings.warn(f"{notice}{commit[:12]} from the cache", stacklevel=2)
            return commit
        raise explain(error, name, repo_type=repo_type, revision=revision) from error
    commit = str(info.sha)
    with contextlib.suppress(ValueError):  # with a read-only cache, only offline use suffers
        write_text(ref, commit)
    return commit


def fetch_model(
    name: str,
    commit: str,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    extra_files: tuple[str, ...] = (),
    small_files_only: bool = False,
) -> Path:
    """Download the required files of a model at `commit`, and return their folder in the cache.

    Models are loaded from this folder, so all files belong to one commit, and no network is needed later.
    Code and pickle weights are not downloaded unless they are allowed. `revision` is for error messages.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not may_draw():
        disable_progress_bars()
    patterns = [*SMALL_FILES, *(["*.py"] if trust_remote_code else [])]
    if not small_files_only:
        safe = (file for file in extra_files if allow_pickle or file.endswith(".safetensors"))
        patterns += [*_SAFE_WEIGHTS, *safe]
    with translated(name, revision=revision):

        def download(patterns: list[str]) -> Path:
            return Path(
                snapshot_download(name, revision=commit, allow_patterns=patterns, ignore_patterns=["*/*"])
            )

        folder = downloaded(lambda: download(patterns), name)
        if small_files_only or has_safe_weights(folder):
            return folder
        pickles = list(_PICKLE_WEIGHTS)
        if allow_pickle:
            downloaded(lambda: download(pickles), name)
        else:
            info = downloaded(lambda: HfApi().model_info(name, revision=commit), name)
            files = [file.rfilename for file in info.siblings or ()]
            if any(fnmatch(file, pattern) for file in files for pattern in pickles if "/" not in file):
                raise HubError(f"{name}: {PICKLE_ONLY}")
    return folder


def downloaded(download: Callable[[], T], name: str) -> T:
    """Return what `download` returns; call it again after 429, 5xx and broken connections.

    huggingface_hub retries by itself from 1.0 on. Older versions retry only some of these failures. A download
    may take as long as it needs while its files grow.
    """
    from huggingface_hub import constants

    waiting = f"{name}: waiting for the Hub at {constants.ENDPOINT}, which did not finish"
    tables = os.environ.get("HF_DATASETS_CACHE") or Path(constants.HF_HOME, "datasets")

    def progress() -> int:
        size = 0
        for folder in (
            *Path(constants.HF_HUB_CACHE).glob(f"*--{name.replace('/', '--')}"),
            *Path(tables).glob(f"{name.replace('/', '___')}*"),
        ):
            for path in folder.rglob("*"):
                with contextlib.suppress(OSError):  # it was renamed meanwhile
                    size += path.lstat().st_size
        return size

    return _patiently(download, _PAUSES if _is_old_hub() else (), waiting, progress=progress)


def has_safe_weights(folder: Path) -> bool:
    """Return whether a folder has the weights of a model or an adapter as safetensors files.

    >>> has_safe_weights(Path(__file__).parents[1] / "demo" / "model")
    True
    """
    names = ("model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors")
    return any((folder / name).is_file() for name in names)


@contextlib.contextmanager
def without_hub() -> Iterator[None]:
    """Let the Hugging Face libraries use only their caches, as if HF_HUB_OFFLINE were set."""
    import datasets
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    verbosity = datasets.logging.get_verbosity()
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    datasets.logging.set_verbosity_error()  # it would warn that it uses the cache
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
        datasets.logging.set_verbosity(verbosity)


@contextlib.contextmanager
def translated(name: str, *, repo_type: RepoType = "model", revision: str | None = None) -> Iterator[None]:
    """Turn any error of the Hugging Face libraries in the block into a `HubError`."""
    try:
        yield
    except HubError:
        raise
    except Exception as error:
        raise explain(error, name, repo_type=repo_type, revision=revision) from error


_UNREACHABLE = {
    *("OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectionError", "ChunkedEncodingError"),
    *("NetworkError", "TimeoutException", "ProtocolError"),
}


def explain(
    error: BaseException, name: str, *, repo_type: RepoType = "model", revision: str | None = None
) -> HubError:
    """Return an error that says in one line why `name` could not be loaded or changed.

    Not found, gated and unreachable have a remedy; of anything else, the library's own words are shown.

    >>> print(explain(OSError(28, "No space left on device"), "org/rm"))
    org/rm: OSError: [Errno 28] No space left on device
    """
    from huggingface_hub import constants

    kind, place = ("data set", "datasets/") if repo_type == "dataset" else ("model", "")
    text = " ".join(str(cause) for cause in _causes(error))
    names = {cls.__name__ for cause in _causes(error) for cls in type(cause).__mro__}
    status = _status(error)
    log_in = "log in (`hf auth login`) or set HF_TOKEN"
    reason = f"{type(error).__name__}: {why(error).removeprefix(f'{type(error).__name__}: ')}"
    if "GatedRepoError" in names or "is a gated dataset" in text:
        reason = f"the {kind} is gated: accept its terms at {constants.ENDPOINT}/{place}{name}, then {log_in}"
    elif "RevisionNotFoundError" in names or "doesn't exist for dataset" in text:
        reason = "no such revision (give a branch, a tag or a full commit)"
    elif names & {"RepositoryNotFoundError", "DatasetNotFoundError"}:
        reason = f"no such {kind} at {constants.ENDPOINT} (if it is private, {log_in})"
    elif isinstance(error, TimeoutError):
        reason = f"the Hub at {constants.ENDPOINT} gave {error}; what is already downloaded is kept"
    elif status is not None:
        reason = f"the Hub failed ({status}); what is already downloaded is kept"
    elif names & _UNREACHABLE or (repo_type == "dataset" and isinstance(error, FileNotFoundError)):
        reason = (
            f"the Hub at {constants.ENDPOINT} cannot be reached, and the {kind} is not in the local cache"
        )
        if constants.HF_HUB_OFFLINE:
            reason = "not in the local cache, and HF_HUB_OFFLINE is set"
    return HubError(f"{name}{f'@{revision}' if revision else ''}: {reason}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _status(error: BaseException) -> int | None:
    """Return the status code of the Hub's answer in an error or in its causes; None if there is none."""
    answers = (getattr(cause, "response", None) for cause in _causes(error))
    return next((answer.status_code for answer in answers if answer is not None), None)


def _is_old_hub() -> bool:
    """Return whether huggingface_hub is below 1.0."""
    import huggingface_hub

    return not hasattr(huggingface_hub, "close_session")


def _patiently(
    ask: Callable[[], T],
    pauses: Sequence[float],
    waiting: str,
    *,
    seconds: float | None = None,
    progress: Callable[[], object] = lambda: None,
) -> T:
    """Repeat a request after 429, 5xx and connection errors, with a warning: `HfApi` does not repeat it.

    Each attempt has a deadline (`within`).
    """

    def asked(error: Exception) -> float | None:
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        return retry_after(headers.get("Retry-After"))

    def say(_: Exception, wanted: float | None, seconds: float) -> str:
        said = "" if wanted is None else f" (it asks to wait {wanted:.0f} s)"
        return f"{waiting}{said}; trying again in {seconds:g} s"

    return retried(lambda: within(ask, seconds, progress), pauses, _is_temporary, asked=asked, say=say)


def _is_temporary(error: BaseException) -> bool:
    """Return whether repeating the request may help."""
    status = _status(error)
    if status is not None:
        return status == 429 or status >= 500
    broken = {"TransportError", "ConnectionError", "ChunkedEncodingError"}
    return bool({cls.__name__ for cls in type(error).__mro__} & broken)
