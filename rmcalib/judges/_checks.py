"""Checks of a model's files before anything is built from them: a model may be damaged, or hostile.

No code of a model runs without the user's permission. What is left is data that takes forever, fills the
memory, or ends the process: a chat template that never ends, a configuration with a million layers, a
tokenizer that aborts. Each of these is refused in one line.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmcalib._util.hub import OWN_CODE, HubError
from rmcalib._util.processes import isolated

TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "sentencepiece.bpe.model"),
    *("spiece.model", "spm.model", "vocab.json", "vocab.txt", "merges.txt", "tekken.json"),
)
_TRIAL_SECONDS = 6.0  # of CPU time, without imports
_OUT_OF_TIME = getattr(signal, "SIGXCPU", None)  # not on Windows
_LARGEST_JSON = 256 * 2**20  # bytes of a configuration or of a header of weights
_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
_SIZES = (
    *("hidden_size", "intermediate_size", "vocab_size", "n_embd", "d_model", "ffn_dim", "head_dim"),
    *("num_attention_heads", "num_key_value_heads", "n_head", "num_experts", "num_local_experts"),
    *("n_routed_experts", "type_vocab_size", "num_labels"),
)
_POSITIONS = ("n_positions", "max_position_embeddings")
_FEW_LAYERS = 1_000  # quick to build, whatever the weights are
_SMALL = 4_096  # a size that needs little memory, whatever the weights are


class TooSlow(ValueError):
    """Raised in a block of `time_limit` that takes too long."""

    def __str__(self) -> str:
        """Return what takes too long: only chat templates run under a limit."""
        return "the model's chat template takes too long"


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TooSlow` in this thread if the block runs Python code for longer than `seconds`."""
    thread, lock, state = threading.get_ident(), threading.Lock(), {"running": True, "late": False}

    def stop() -> None:
        with lock:
            if state["running"]:
                state["late"] = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TooSlow))

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            state["running"] = False
        if state["late"]:  # the exception may not have been raised yet: it must not come later
            with contextlib.suppress(TooSlow):
                time.sleep(0.01)


def read_json(name: str, path: Path) -> dict[str, Any]:
    """Read a JSON object of a model; raise a `HubError` if it is none."""
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise ValueError(f"it has more than {_LARGEST_JSON:,} bytes")
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise HubError(f"{name}: {path.name} cannot be read: {' '.join(str(error).split())[:200]}") from error
    return content


def check_config(name: str, folder: Path, weights: list[Path], *, trust_remote_code: bool) -> None:
    """Raise a `HubError` if config.json asks for foreign code, or for a model larger than the weights."""
    try:
        entries = list(_entries(read_json(name, folder / "config.json")))
    except RecursionError:
        raise HubError(f"{name}: config.json is nested too deeply") from None
    if not trust_remote_code:
        for key, value in entries:
            if key.endswith("attn_implementation") and isinstance(value, str) and "/" in value:
                raise HubError(
                    f"{name}: its attention ({value!r}) is code of another repository; it {OWN_CODE}"
                )
    shapes = {key: shape for path in weights for key, shape in tensor_shapes(name, path).items()}
    if not shapes:
        return
    largest = max((max(shape) for shape in shapes.values() if shape), default=0)
    numbers = {int(found) for key in shapes for found in re.findall(r"\.(\d{1,6})\.", key)}
    learned = any("position" in key or "wpe" in key for key in shapes)
    for key, value in entries:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        limit = None
        if key in _LAYERS:
            limit = max(len(numbers), _FEW_LAYERS)
        elif key in _SIZES or (key in _POSITIONS and learned):
            limit = max(largest, _SMALL)
        if limit is not None and not -1 <= value <= limit:
            raise HubError(
                f"{name}: config.json has {key} = {value}, but the weights have at most {limit}: the file is "
                "damaged, or belongs to another model"
            )


def check_rank(name: str, adapter: Path, weights: Path) -> None:
    """Raise a `HubError` if an adapter asks for matrices that are larger than those in its weights."""
    ranks = [value for key, value in _entries(read_json(name, adapter / "adapter_config.json")) if key == "r"]
    largest = max((max(shape) for shape in tensor_shapes(name, weights).values() if shape), default=_SMALL)
    for rank in ranks:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 < rank <= largest:
            raise HubError(
                f"{name}: adapter_config.json has r = {rank}, but its weights have at most {largest}"
            )


def tensor_shapes(name: str, path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of a safetensors file, from its header; empty for other files."""
    if path.suffix != ".safetensors":
        return {}
    with path.open("rb") as file:
        start = file.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= size <= min(_LARGEST_JSON, path.stat().st_size):
            raise HubError(f"{name}: the weights are damaged ({path.name}): fetch or save them again")
        header = file.read(size)
    try:
        found = {key: value for key, value in json.loads(header).items() if key != "__metadata__"}
        return {key: tuple(int(size) for size in value["shape"]) for key, value in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise HubError(f"{name}: the weights are damaged ({path.name}): fetch or save them again") from error


def try_tokenizer(name: str, folder: Path) -> None:
    """Load and use a tokenizer and its chat template in another process, and refuse it if that fails.

    A tokenizer can end the whole process, and its regular expressions and its template may take forever.
    """
    try:
        done = subprocess.run(
            isolated(_TRIAL, str(folder), str(_TRIAL_SECONDS)),
            capture_output=True,
            timeout=10 * _TRIAL_SECONDS,  # for imports on slow disks
            check=False,
        )
        slow = _OUT_OF_TIME is not None and done.returncode == -_OUT_OF_TIME
    except subprocess.TimeoutExpired:
        slow = True
    if slow:
        raise HubError(
            f"{name}: its tokenizer or chat template takes more than {_TRIAL_SECONDS:.0f} seconds for a "
            "short text"
        )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        why = f"signal {-done.returncode}" if done.returncode < 0 else (said or ["no reason given"])[0][:200]
        raise HubError(f"{name}: its tokenizer cannot be used ({why}): fetch or save it again")


# Only what unconditionally fails is looked for: messages that a template refuses are reported later.
_TRIAL = """
import contextlib, json, os, time
from pathlib import Path
import jinja2, tokenizers
with contextlib.suppress(ImportError, ValueError, OSError):  # Windows and macOS have no such limits
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30, 16 * 2**30))
    most = int(time.process_time() + float(sys.argv[2])) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
os.environ["TOKENIZERS_PARALLELISM"] = "false"
folder = Path(sys.argv[1])
texts = ["Hello, what is 2 + 2? " * 8, "a" * 2000 + "!", " " * 2000, "1" * 2000, "\\u00e9\\n" * 500]
if (folder / "tokenizer.json").is_file():
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in texts:
        tokenizer.encode(text)
templates = [path.read_text("utf-8") for path in sorted(folder.glob("*.jinja"))]
config = folder / "tokenizer_config.json"
found = json.loads(config.read_text("utf-8")).get("chat_template") if config.is_file() else None
found = [each.get("template") for each in found] if isinstance(found, list) else [found]
templates += [each for each in found if isinstance(each, str)]
if templates:
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, **_: json.dumps(value)
    environment.globals |= {"strftime_now": str, "raise_exception": lambda _: 1 / 0}
    messages = [{"role": "user", "content": texts[0]}, {"role": "assistant", "content": texts[0]}]
    for source in templates:
        try:
            environment.from_string(source).render(
                messages=messages, add_generation_prompt=False, bos_token="<s>", eos_token="</s>", tools=None
            )
        except (MemoryError, KeyboardInterrupt, SystemExit):
            raise
        except Exception:
            pass
"""


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield all keys and values of nested JSON."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield str(key), value
            yield from _entries(value)
    elif isinstance(content, list):
        for value in content:
            yield from _entries(value)
