"""Models that vLLM runs: its server is started as a child process, used, and stopped.

The judges for served models do the scoring; this module gives them an address. Before that, it makes sure
that the server computes what transformers computes: short texts are scored by both.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import warnings
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.files import read_object
from rmcalib._util.hub import HubError, translated
from rmcalib._util.processes import process_rank
from rmcalib._util.terminal import clean_line
from rmcalib.judges import _keeper
from rmcalib.judges._checks import check_config
from rmcalib.judges._classifier import Classifier
from rmcalib.judges._devices import choose_device, main_memory
from rmcalib.judges._files import ModelFiles, find_files, identify
from rmcalib.judges._generative import GenerativeJudge
from rmcalib.judges._http import Client, ServerError
from rmcalib.judges._judge import Judge, Progress, Scale, ScoredItem, scored_chunks
from rmcalib.judges._model import LONGEST_DEFAULT, Asked, load_tokenizer, longest_text, settle_dtype
from rmcalib.judges._policy import PolicyJudge
from rmcalib.judges._served import PROBES, EndpointJudge, why_squashed
from rmcalib.judges._servers import PINNED_DATE
from rmcalib.judges._settings import LoadOptions, ServedSettings
from rmcalib.judges._templates import question_ids
from rmcalib.judges._weights import weight_files

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

ENVIRONMENT = "RMCALIB_VLLM"
log = logging.getLogger("rmcalib.vllm")  # the command line shows it
_PATIENCE = 3600.0  # seconds until a server must be healthy: large models load and compile for minutes
_SHOWN_EVERY = 10.0  # seconds between two messages while it starts
_LONGEST_QUESTION = 16_384  # tokens of a question with its answer: several responses are shown at once
_AT_A_TIME = 32  # prompts in flight, each with all its responses; vLLM makes batches of them
_MEMORY_FOR_TWO = 0.45  # of each GPU, for a policy and for its reference
# Largest difference of a reward, relative to the largest one (or 1), for the same token ids.
_TOLERANCE = {"float32": 1e-3}
_NARROW = 5e-2
_PREFIX = re.compile(r"^(\([^)]*pid=\d+\) )?([A-Z]+ [\d-]+ [\d:]+ \[[^]]*\] )?")  # of a line of vLLM's log
_ERROR = re.compile(r"\b\w+(Error|Exception): ")
_PLACES = ("served", "endpoint_", "answered_by", "texts_by")  # what an identity says about the server


@dataclass(frozen=True)
class _Found:
    """A model to serve: its files, and the dtype and length with which it is served."""

    name: str
    files: ModelFiles
    tokenizer: Any
    dtype: str
    max_length: int
    bytes: float  # of the weights in this dtype


class Server:
    """A running server of vLLM: a child process that is stopped with this process, however it ends."""

    def __init__(self, name: str, command: Sequence[str], port: int) -> None:
        """Start the server; it is not ready yet."""
        self.name, self.url = name, f"http://127.0.0.1:{port}"
        self._started = time.monotonic()
        self._output = tempfile.NamedTemporaryFile(suffix=".log")  # noqa: SIM115 (open as long as the server)
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        if command[0] != sys.executable:
            environment.pop("PYTHONPATH", None)  # it is for another environment
        self._process = subprocess.Popen(
            [sys.executable, "-I", _keeper.__file__, str(os.getpid()), *command],
            env=environment,
            stdout=self._output,
            stderr=self._output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us; we stop the server
        )
        self.stop = weakref.finalize(self, _end, self._process, self._output)

    def wait(self) -> None:
        """Return when the server is healthy; raise a `ServerError` with its last lines if it ends before."""
        import httpx

        shown, said = 0.0, ""
        with httpx.Client(timeout=5.0, trust_env=False) as client:
            while self._seconds() < _PATIENCE:
                self.check()
                with contextlib.suppress(httpx.HTTPError):
                    if client.get(f"{self.url}/health").status_code == 200:
                        log.info("%s: vLLM is ready after %.0f s", self.name, self._seconds())
                        return
                if self._seconds() >= shown + _SHOWN_EVERY and (last := self.last_lines(1)) != said:
                    shown, said = self._seconds(), last
                    log.info("%s: vLLM is starting (%.0f s): %s", self.name, shown, last)
                time.sleep(0.2)
        raise ServerError(
            f"{self.name}: vLLM is not ready after {_PATIENCE:.0f} s; it says: {self.last_lines()}"
        )

    def check(self) -> None:
        """Raise a `ServerError` with the server's last lines if it has ended."""
        code = self._process.poll()
        if code is None:
            return
        said = self.last_lines()
        if "No module named 'vllm'" in said:
            raise ServerError(
                f"{self.name}: vLLM is not installed here: give the Python that has it, with -J python=... or "
                f"the environment variable {ENVIRONMENT}"
            )
        raise ServerError(f"{self.name}: vLLM ended with code {code}; its last lines: {said}")

    def last_lines(self, count: int = 6) -> str:
        """Return the last lines of the server's output as one line: its errors, if it reports any."""
        lines = Path(self._output.name).read_text(errors="replace").split("\n")
        shown = [_PREFIX.sub("", clean_line(line))[:200] for line in lines if line.strip()]
        errors = [line for line in shown if _ERROR.search(line)] if count > 1 else []
        return " | ".join((errors or shown)[-count:]) or "nothing yet"

    def _seconds(self) -> float:
        return time.monotonic() - self._started


class VllmJudge:
    """A classifier, a language model that judges, or a policy, which vLLM runs on this machine.

    The server is started when the judge is first used, and stopped by `close`, by the end of this process,
    or when the judge is no longer needed. Until then the judge can be sent to another process.

    Parameters
    ----------
    name : str
        Hub id or folder of the model.
    settings : LoadOptions
        Settings of the kind of judge: `LoadOptions`, `LanguageModelSettings` or `PolicySettings`.
    own : type
        The class of judges that runs this kind with transformers.
    """

    def __init__(self, name: str, settings: Any, own: type[Any]) -> None:
        """Check the settings; nothing is started yet."""
        if process_rank()[1] > 1:
            raise ValueError(
                "backend: vLLM spreads a model over GPUs by itself: start one process, and give "
                "-J tensor_parallel=..."
            )
        self.name, self.settings = name, settings
        plain = dataclasses.replace(settings, backend="transformers")
        self._here: Any = own(name, plain)  # describes the judge; its model is not loaded
        self._served: Judge | None = None
        self._servers: list[Server] = []
        self._dtype = ""
        self._compared: float | None = None
        if isinstance(self._here, Classifier):
            _check_head(name, self._here)

    @property
    def scale(self) -> Scale:
        """The scale of the rewards."""
        scale: Scale = self._here.scale
        return scale

    @property
    def commit(self) -> str:
        """The model's commit, or the SHA-256 of a folder's files. Nothing is downloaded."""
        return identify(self.name, self.settings.revision)

    def identity(self) -> dict[str, Any]:
        """Return everything that changes a reward; this starts the server.

        Its port and the folders of this machine are not included, so that a run resumes anywhere.
        """
        known = self._judge().identity()
        return {
            **{key: value for key, value in known.items() if not key.startswith(_PLACES)},
            **self.asked(),
            "dtype": self._dtype,
        }

    def asked(self) -> dict[str, Any]:
        """Return what determines `identity`, as far as it is known without starting anything."""
        options = shlex.split(self.settings.vllm_options)
        return {"backend": "vllm", "vllm_options": options, "asked": self._here.asked()}

    def about(self) -> dict[str, Any]:
        """Return the version of vLLM, and the largest difference from transformers (None: not compared)."""
        served: Any = self._judge()
        about = {key: value for key, value in served.about().items() if key != "endpoint"}
        return {
            **about,
            "backend": "vllm",
            "tensor_parallel": self.settings.tensor_parallel,
            "difference_from_transformers": self._compared,
        }

    def work(self) -> dict[str, int]:
        """Return the counts of the judge that asks the server."""
        work: Any = getattr(self._served, "work", dict)
        return dict(work())

    def score(self, items: Sequence[Item], *, progress: Progress | None = None) -> Iterator[list[ScoredItem]]:
        """Score prompts; if the server ends, its last lines are in the error."""
        judge = self._judge()
        with self._noticing():
            yield from scored_chunks(judge, items, progress)

    def close(self) -> None:
        """Stop the server."""
        self._served = None
        while self._servers:
            self._servers.pop().stop()

    def _judge(self) -> Judge:
        """Return the judge that asks the server; the first call starts and checks the server."""
        if self._served is None:
            try:
                with self._noticing():
                    self._served = self._start()
            except BaseException:
                self.close()
                raise
        return self._served

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        """If a request fails because a server has ended, say that, with the server's last lines."""
        try:
            yield
        except ServerError:
            for server in self._servers:
                server.check()
            raise

    def _start(self) -> Judge:
        settings, name = self.settings, self.name
        model = self._find(name, settings)
        self._dtype = model.dtype
        reference = getattr(self._here, "reference", None)
        wanted = isinstance(self._here, PolicyJudge) and settings.reference_free is None
        if model.files.base is not None and wanted and reference in (None, model.files.base[0]):
            reference = model.files.base[0]  # the same server has the base, too
            other = None
        else:
            other = reference and self._find(reference, dataclasses.replace(settings, revision=None))
        few = ["--gpu-memory-utilization", str(_MEMORY_FOR_TWO)] if other else []
        first = self._serve(model, few)
        own = self._rewards_here(model)  # while the server starts
        first.wait()
        url = first.url
        if other:
            second = self._serve(other, few)
            second.wait()
            url = second.url
        judge = self._asking(model, first.url, reference, url)
        self._check(judge, model, own)
        return judge

    def _find(self, name: str, settings: LoadOptions) -> _Found:
        """Find a model's files, and choose its dtype and length as for a model that is loaded here."""
        import torch
        from transformers import AutoConfig

        recipe = settings.recipe_for(name)
        files = find_files(name, settings, tokenizer=recipe.tokenizer)
        asked = Asked(name, recipe, settings, files.code_commit)
        weights = weight_files(files.weights)
        check_config(name, files.weights, weights, trust_remote_code=settings.trust_remote_code)
        with translated(name):
            config: Any = AutoConfig.from_pretrained(files.weights, **asked.code())
        if isinstance(self._here, Classifier):
            _check_files(name, files, config)
        tokenizer = load_tokenizer(asked, files.tokenizer)
        dtype, _ = settle_dtype(asked, config, choose_device("auto"))
        longest = longest_text(asked, config, tokenizer, "causal")
        limit = getattr(config.get_text_config(), "max_position_embeddings", None) or longest
        if isinstance(self._here, PolicyJudge):  # the server always adds a token
            longest = min(limit, (settings.max_length or LONGEST_DEFAULT) + 1)
        elif isinstance(self._here, GenerativeJudge) and settings.max_length is None:
            longest = min(limit, _LONGEST_QUESTION)
        own = getattr(config, "dtype", None)
        width = dtype.itemsize / own.itemsize if isinstance(own, torch.dtype) else 1.0
        size = width * sum(file.stat().st_size for file in weights)
        return _Found(name, files, tokenizer, str(dtype).removeprefix("torch."), longest, size)

    def _serve(self, model: _Found, more: Sequence[str]) -> Server:
        """Start the server of a model; of a PEFT adapter, one that has the base, too."""
        settings, files = self.settings, model.files
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        python = settings.python or os.environ.get(ENVIRONMENT) or sys.executable
        if shutil.which(python) is None:
            raise ValueError(f"python: {python!r} is not a program")
        command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(files.weights)]
        command += ["--host", "127.0.0.1", "--port", str(port), "--tokenizer", str(files.tokenizer)]
        command += ["--dtype", model.dtype, "--max-model-len", str(model.max_length)]
        command += ["--tensor-parallel-size", str(settings.tensor_parallel)]
        if isinstance(self._here, Classifier):
            command += ["--runner", "pooling"]
        if not settings.allow_pickle:
            command += ["--load-format", "safetensors"]
        if settings.trust_remote_code:
            command += ["--trust-remote-code"]
        served_name = model.name
        if files.adapter is not None and files.base is not None:
            rank = read_object(files.adapter / "adapter_config.json").get("r", 16)
            command += ["--enable-lora", "--max-lora-rank", str(rank)]
            command += ["--lora-modules", f"{model.name}={files.adapter}"]
            served_name = files.base[0]
        command += ["--served-model-name", served_name, *more, *shlex.split(settings.vllm_options)]
        server = Server(model.name, command, port)
        self._servers.append(server)
        return server

    def _asking(self, model: _Found, url: str, reference: str | None, reference_url: str) -> Judge:
        """Return the judge for served models that asks this server."""
        settings = self.settings
        if isinstance(self._here, Classifier):
            return EndpointJudge(
                self.name,
                ServedSettings(
                    endpoint=url,
                    endpoint_kind="vllm",
                    concurrency=_AT_A_TIME,
                    tokenize_here=True,  # then templates and truncation are ours
                    revision=settings.revision,
                    trust_remote_code=settings.trust_remote_code,
                    max_length=model.max_length,
                    recipe=self._here.recipe,
                ),
            )
        served = dataclasses.replace(settings, backend="transformers", endpoint=url)
        if isinstance(self._here, GenerativeJudge):
            return GenerativeJudge(self.name, served)
        served = dataclasses.replace(served, reference=reference, reference_endpoint=reference_url)
        return PolicyJudge(self.name, served)

    def _rewards_here(self, model: _Found) -> list[float] | None:
        """Return the rewards of short texts by transformers on the CPU; None if that is not possible.

        Sampled answers are not comparable. The weights must fit into main memory twice, because a server on
        a CPU has them there, too.
        """
        sampled = isinstance(self._here, GenerativeJudge) and self._here.samples
        if sampled or 2 * model.bytes > main_memory().available:
            return None
        log.info("%s: scoring short texts with transformers, to compare", self.name)
        plain = dataclasses.replace(
            self.settings, backend="transformers", device="cpu", dtype=model.dtype, max_length=None
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the speed of a model that scores eight texts
            return _rewards(type(self._here)(self.name, plain))

    def _check(self, judge: Judge, model: _Found, own: list[float] | None) -> None:
        """Raise a `ServerError` if the server does not compute what transformers computes."""
        if isinstance(judge, GenerativeJudge):
            self._check_texts(judge, model)
        if own is not None:
            served = _rewards(judge)
            self._compared = float(np.abs(np.subtract(own, served)).max())
            allowed = _TOLERANCE.get(model.dtype, _NARROW) * max(1.0, *map(abs, own))
            log.info("%s: vLLM and transformers differ by up to %.2g", self.name, self._compared)
            if not self._compared <= allowed:
                pairs = ", ".join(f"{a:.4g} and {b:.4g}" for a, b in zip(own[:3], served[:3], strict=True))
                raise ServerError(
                    f"{self.name}: vLLM does not compute the rewards of transformers: they differ by up to "
                    f"{self._compared:.3g} ({pairs}, ...). Use transformers (without --backend vllm)"
                )
        elif isinstance(judge, EndpointJudge):
            reason = why_squashed(judge.connection.probes, bounded_is_fine=judge.recipe.scale is not None)
            if reason is not None:
                raise ServerError(
                    f"{self.name}: vLLM does not return raw rewards: {reason}. If these are the model's "
                    "rewards, state their scale in a recipe (such as `scale: ratings`)"
                )

    def _check_texts(self, judge: GenerativeJudge, model: _Found) -> None:
        """Raise a `ServerError` if the server writes questions with other tokens than transformers."""
        chat: Any = judge.model
        client: Client = chat.client
        item = PROBES[0]
        messages = judge.prompt.question_for(item).messages(item.prompt, list(item.responses)[:1])
        body = {"model": self.name, "messages": list(messages), "chat_template_kwargs": PINNED_DATE}
        answer = client.post("/tokenize", {**body, "add_generation_prompt": True})
        template = self.settings.recipe_for(self.name).template
        own = question_ids(messages, model.tokenizer, template)
        if list(answer.get("tokens", ())) != own:
            raise ServerError(
                f"{self.name}: vLLM writes questions with other tokens than the tokenizer's chat template: "
                "use transformers (without --backend vllm)"
            )


def _check_head(name: str, judge: Classifier) -> None:
    """Refuse a model whose recipe needs what vLLM does not do."""
    recipe = judge.recipe
    if recipe.status == "unsupported":
        raise HubError(f"{name}: not supported: {recipe.reason}")
    for field in ("head", "head_file", "backbone_prefix", "architecture", "attention"):
        value = getattr(recipe, field)
        if value not in (None, "auto"):
            raise HubError(
                f"{name}: its recipe has `{field}: {value}`, which vLLM does not know: use transformers "
                "(without --backend vllm)"
            )


def _check_files(name: str, files: ModelFiles, config: Any) -> None:
    """Refuse a checkpoint that vLLM would not read as a classifier."""
    if files.adapter is not None:
        raise HubError(
            f"{name}: vLLM does not read the score head of a PEFT adapter: merge the adapter into its base "
            "(peft's merge_and_unload), or use transformers (without --backend vllm)"
        )
    kinds = getattr(config, "architectures", None) or ["nothing"]
    if not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        raise HubError(
            f"{name}: vLLM reads classifiers (*ForSequenceClassification), and this is {kinds[0]}: use "
            "transformers (without --backend vllm)"
        )


def _rewards(judge: Any) -> list[float]:
    return [float(r) for chunk in scored_chunks(judge, PROBES) for one in chunk for r in one.rewards]


def _end(process: subprocess.Popen[bytes], output: Any) -> None:
    """Stop a server, and wait until it has ended."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(60)
    output.close()
