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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.display import clean_line
from rmcalib._util.hub import HubError
from rmcalib._util.processes import process_rank
from rmcalib.judges import _keeper
from rmcalib.judges._devices import main_memory
from rmcalib.judges._doctor import compared, timed
from rmcalib.judges._files import ModelFiles, find_files
from rmcalib.judges._generative import GenerativeJudge
from rmcalib.judges._http import ServerError
from rmcalib.judges._judge import Judge, Progress, ScoredItem, scored_chunks
from rmcalib.judges._model import LONGEST_DEFAULT, load_tokenizer, longest_text, prepare
from rmcalib.judges._policy import PolicyJudge
from rmcalib.judges._scoring import Classifier
from rmcalib.judges._served import EndpointJudge, probes
from rmcalib.judges._settings import LoadOptions, ServedSettings
from rmcalib.judges._templates import question_ids
from rmcalib.judges.apis.vllm import PINNED_DATE
from rmcalib.scores.scale import Scale

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

ENVIRONMENT = "RMCALIB_VLLM"
log = logging.getLogger("rmcalib.vllm")  # the command line shows it
_PATIENCE = 3600.0  # seconds until a server must be healthy: large models load and compile for minutes
_SHOWN_EVERY = 10.0  # seconds between two messages while it starts
_LONGEST_QUESTION = 16_384  # tokens of a question with its answer: several responses are shown at once
_AT_A_TIME = 32  # prompts in flight, each with all its responses; vLLM makes batches of them
_MEMORY_FOR_TWO = ("--gpu-memory-utilization", "0.45")  # for a policy and for its reference
_ERROR = re.compile(r"\b\w+(Error|Exception): ")
_USE_TRANSFORMERS = 'use transformers (without backend="vllm")'


@dataclass(frozen=True)
class _ToServe:
    """A model to serve: its files, and the dtype and length with which it is served."""

    files: ModelFiles
    tokenizer: Any
    dtype: str
    max_length: int
    bytes: float  # of the weights in this dtype


class Process:
    """A running server of vLLM: a child process that is stopped with this process, however it ends."""

    def __init__(self, name: str, command: Sequence[str], port: int) -> None:
        """Start the server; it is not ready yet."""
        self.name, self.url = name, f"http://127.0.0.1:{port}"
        self._started = time.monotonic()
        self._output = tempfile.NamedTemporaryFile(suffix=".log")  # noqa: SIM115 (open as long as the server)
        # `python -m` would import from the current folder first.
        safe = {"PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        environment = {**os.environ, **safe}
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
        raise ServerError(
            f"{self.name}: vLLM ended with code {code}; its last lines: {self.last_lines()} (python=... or "
            f"{ENVIRONMENT} names the Python that has vLLM)"
        )

    def last_lines(self, count: int = 6) -> str:
        """Return the last lines of the server's output as one line: its errors, if it reports any."""
        lines = Path(self._output.name).read_text(errors="replace").split("\n")
        shown = [clean_line(line)[:200] for line in lines if line.strip()]
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
    judge_class : Callable[[str, Any], Judge]
        The class of judges that runs this kind with transformers.
    """

    def __init__(self, name: str, settings: Any, judge_class: Callable[[str, Any], Judge]) -> None:
        """Check the settings; nothing is started yet."""
        if process_rank()[1] > 1:
            raise ValueError(
                "backend: vLLM uses several GPUs by itself: start one process (tensor_parallel=...)"
            )
        self.name, self.settings = name, settings
        plain = dataclasses.replace(settings, backend="transformers")
        self._here: Any = judge_class(name, plain)  # describes the judge; its model is not loaded
        self._served: Judge | None = None
        self._servers: list[Process] = []
        self._model: _ToServe | None = None
        self._compared: float | None = None

    @property
    def scale(self) -> Scale | str:
        """The scale of the rewards."""
        scale: Scale | str = self._here.scale
        return scale

    def identity(self) -> dict[str, Any]:
        """Return everything that changes a reward; this starts the server.

        Its port and the folders of this machine are not included, so that a run resumes anywhere.
        """
        self._judge()
        assert self._model is not None
        return {**self.asked(), "dtype": self._model.dtype, "max_length": self._model.max_length}

    def asked(self) -> dict[str, Any]:
        """Return what determines `identity`, as far as it is known without starting anything."""
        options = shlex.split(self.settings.vllm_options)
        return {"backend": "vllm", "vllm_options": options, "asked": self._here.asked()}

    def about(self) -> dict[str, Any]:
        """Return the version of vLLM, and the largest difference from transformers (None: not compared)."""
        served: Any = self._judge()
        about = {key: value for key, value in served.about().items() if key != "endpoint"}
        compared = {"difference_from_transformers": self._compared}
        return {**about, "backend": "vllm", "tensor_parallel": self.settings.tensor_parallel, **compared}

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
        self._model = model = self._find(self.name, self.settings)
        models = [model]
        reference = getattr(self._here, "reference", None)
        if reference is not None:
            models.append(self._find(reference, dataclasses.replace(self.settings, revision=None)))
        expected = None
        for each in models:  # one after the other: a server measures how much memory is free
            server = self._serve(each, _MEMORY_FOR_TWO if len(models) > 1 else ())
            if each is model:
                expected = self._rewards_here(model)  # while the server starts
            server.wait()
        judge = self._asking(model)
        self._check(judge, model, expected)
        return judge

    def _find(self, name: str, settings: LoadOptions) -> _ToServe:
        """Find a model's files, and choose its dtype and length as for a model that is loaded here."""
        files = find_files(name, settings)
        if files.adapter is not None:
            raise HubError(f"{name}: a PEFT adapter: merge it into its base, or {_USE_TRANSFORMERS}")
        prepared = prepare(files)
        if isinstance(self._here, Classifier):
            _check_classifier(files, prepared.config)
        tokenizer = load_tokenizer(files)
        longest = longest_text(files, prepared.config, tokenizer, "causal")
        limit = getattr(prepared.config.get_text_config(), "max_position_embeddings", None) or longest
        if isinstance(self._here, PolicyJudge):  # the server always adds a token
            longest = min(limit, (settings.max_length or LONGEST_DEFAULT) + 1)
        elif isinstance(self._here, GenerativeJudge) and settings.max_length is None:
            longest = min(limit, _LONGEST_QUESTION)
        return _ToServe(files, tokenizer, str(prepared.dtype).removeprefix("torch."), longest, prepared.bytes)

    def _serve(self, model: _ToServe, more: Sequence[str]) -> Process:
        """Start the server of a model."""
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
        command += ["--runner", "pooling"] if isinstance(self._here, Classifier) else []
        command += [] if settings.allow_pickle else ["--load-format", "safetensors"]
        command += ["--trust-remote-code"] if settings.trust_remote_code else []
        command += ["--served-model-name", files.name, *more, *shlex.split(settings.vllm_options)]
        server = Process(files.name, command, port)
        self._servers.append(server)
        return server

    def _asking(self, model: _ToServe) -> Judge:
        """Return the judge for served models that asks our servers."""
        settings, url = self.settings, self._servers[0].url
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
        return PolicyJudge(self.name, dataclasses.replace(served, reference_endpoint=self._servers[-1].url))

    def _rewards_here(self, model: _ToServe) -> list[tuple[float, ...]] | None:
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
            return timed(type(self._here)(self.name, plain), probes())[0]

    def _check(self, judge: Judge, model: _ToServe, expected: list[tuple[float, ...]] | None) -> None:
        """Raise a `ServerError` if the server does not compute what transformers computes."""
        if isinstance(judge, GenerativeJudge):
            self._check_texts(judge, model)
        if expected is not None:
            gaps = compared(timed(judge, probes())[0], expected)
            self._compared = gaps["reward_difference"]
            log.info("%s: vLLM and transformers differ by up to %.2g", self.name, self._compared)
            if gaps["status"] != "right" and (gaps["status"] == "differs" or model.dtype == "float32"):
                raise ServerError(
                    f"{self.name}: vLLM does not compute the rewards of transformers: they differ by up to "
                    f"{self._compared:.3g}: {_USE_TRANSFORMERS}"
                )
        elif isinstance(judge, EndpointJudge):
            judge.identity()  # asks for short texts: a server without raw rewards is refused

    def _check_texts(self, judge: GenerativeJudge, model: _ToServe) -> None:
        """Raise a `ServerError` if the server writes questions with other tokens than transformers."""
        chat: Any = judge.model
        item = probes()[0]
        messages = judge.prompt.question_for(item).messages(item.prompt, list(item.responses)[:1])
        body = {"model": self.name, "messages": list(messages), "chat_template_kwargs": PINNED_DATE}
        answer = chat.client.post("/tokenize", {**body, "add_generation_prompt": True})
        if list(answer.get("tokens", ())) != question_ids(
            messages, model.tokenizer, model.files.recipe.template
        ):
            raise ServerError(
                f"{self.name}: vLLM writes questions with other tokens than the tokenizer's chat template: "
                f"{_USE_TRANSFORMERS}"
            )


def _check_classifier(files: ModelFiles, config: Any) -> None:
    """Refuse a model whose recipe needs what vLLM does not do, or that it would not read as a classifier."""
    odd = ("head", "head_file", "backbone_prefix", "architecture", "attention")
    recipe = {name: getattr(files.recipe, name) for name in odd}
    needs = [f"`{name}: {value}`" for name, value in recipe.items() if value not in (None, "auto")]
    kinds = getattr(config, "architectures", None) or ["nothing"]
    if not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        needs.append(kinds[0])
    if needs:
        raise HubError(
            f"{files.name}: vLLM reads plain classifiers (*ForSequenceClassification), and this has or is "
            f"{needs[0]}: {_USE_TRANSFORMERS}"
        )


def _end(process: subprocess.Popen[bytes], output: Any) -> None:
    """Stop a server, and wait until it has ended."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(60)
    output.close()
