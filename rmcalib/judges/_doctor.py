"""Check whether the devices of this machine, or a server, compute the right rewards.

`diagnose` scores a part of the demo benchmark with the demo model on every device, in every dtype, and
compares with the CPU in float32. Each device is checked in its own process, which may crash. `compare_served`
compares a server with the model loaded here, or its tokens with the tokenizer's, and names the cause of a
difference.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmcalib._util.processes import isolated, package_versions
from rmcalib._util.secrets import masked
from rmcalib.benchmarks import load_benchmark
from rmcalib.judges import _devices as devices
from rmcalib.judges._causes import Cause, canaries, explain
from rmcalib.judges._files import find_files
from rmcalib.judges._judge import scored_chunks
from rmcalib.judges._model import load_tokenizer
from rmcalib.judges._scoring import Classifier
from rmcalib.judges._settings import LoadOptions, ServedSettings, checked_settings
from rmcalib.judges._templates import TEMPLATES, encode

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item
    from rmcalib.judges._judge import Judge
    from rmcalib.judges._served import EndpointJudge


# Largest differences of rewards, relative to the largest reward (or to 1).
_EQUAL, _ROUNDING = 1e-3, 5e-2

_ANSWER = "answer: "  # prefix of our own output; libraries may print other lines

Outcome = dict[str, Any]
"""The result for one dtype: `rewards` and `seconds`, or an `error`."""


@dataclass(frozen=True)
class Check:
    """A comparison of rewards: a device with the CPU in float32, or a server with the model loaded here.

    Attributes
    ----------
    where : str
        The device, or the server's address.
    dtype : str
        Dtype of the device, or of the model loaded here.
    status : str
        `right`, `rounding` (the differences are as large as those of a narrower dtype), `differs` or `failed`.
    reward_difference, probability_difference : float, optional
        The largest difference of rewards, and of the probabilities computed from them.
    seconds : float, optional
        Time for scoring, without loading.
    note : str
        Why it failed, or why a server's rewards differ.
    cause : str
        The name of the cause of a server's difference, such as `sigmoid`, `truncated`, `second bos` or `template`.
    about : dict[str, Any]
        What else is known about a server: its kind, version and model, and the time that scoring took here.
    """

    where: str
    dtype: str
    status: str = "failed"
    reward_difference: float | None = None
    probability_difference: float | None = None
    seconds: float | None = None
    note: str = ""
    cause: str = ""
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether the rewards are right, up to rounding."""
        return self.status in ("right", "rounding")


@dataclass(frozen=True)
class Diagnosis:
    """The result of `diagnose`.

    Attributes
    ----------
    versions : dict[str, str]
        Versions of Python and of the packages that affect scores.
    devices : dict[str, dict[str, Any]]
        Name, memory and free memory in bytes of each device.
    hub : str
        Address of the Hub, and whether it can be reached.
    checks : tuple[Check, ...]
        One entry per device and dtype.

    Examples
    --------
    >>> Diagnosis(versions={}, devices={}, hub="", checks=()).healthy
    True
    """

    versions: dict[str, str]
    devices: dict[str, dict[str, Any]]
    hub: str
    checks: tuple[Check, ...]

    @property
    def healthy(self) -> bool:
        """Whether float32 is right on every device. Narrower dtypes may differ."""
        return all(check.status == "right" for check in self.checks if check.dtype == "float32")


def diagnose(*, prompts: int = 24, timeout: float = 300.0) -> Diagnosis:
    """Check this machine: versions, devices, the Hub, and the demo's rewards on every device in every dtype.

    Parameters
    ----------
    prompts : int
        Number of prompts of the demo benchmark to score.
    timeout : float
        Seconds to wait for each process.

    Returns
    -------
    Diagnosis
        What was found. `.healthy` is True if float32 is right on every device.

    Examples
    --------
    It starts one process per device, which takes some seconds::

        diagnosis = rmcalib.judges.diagnose()
        print(diagnosis.healthy, [check.status for check in diagnosis.checks])
    """
    available = devices.available_devices()
    outcomes = {str(device): _run(str(device), prompts, timeout) for device in available}
    reference = outcomes["cpu"]["float32"]
    checks = []
    for device, by_dtype in outcomes.items():
        for dtype, outcome in by_dtype.items():
            if "rewards" in outcome and "rewards" in reference:
                difference = compared(outcome["rewards"], reference["rewards"])
                checks.append(Check(device, dtype, **difference, seconds=outcome["seconds"]))
            else:
                checks.append(Check(device, dtype, note=outcome.get("error", "the CPU gave no rewards")))
    described = {str(device): devices.describe_device(device) for device in available}
    return Diagnosis(package_versions(), described, _hub(), tuple(checks))


def compare_served(
    model: str,
    endpoint: str,
    *,
    weights: bool = True,
    here: LoadOptions | None = None,
    **settings: Any,
) -> Check:
    """Compare a server with the same model on this machine, on canary texts: short, long, unusual, two turns.

    The texts are sent twice, to notice noise. A difference is explained by the numbers (sigmoid, affine, negated,
    rounded, clipped, truncated), or by scoring the texts here as the server may read them: with a second or no
    beginning-of-text token, with another template, or cut.

    Parameters
    ----------
    model : str
        Hub id or folder of the model.
    endpoint : str
        Address of the server.
    weights : bool
        Load the model here. Otherwise only the tokenizer is loaded, and compared with the tokens of the server
        (vLLM's `/tokenize`).
    here : LoadOptions, optional
        Settings for loading the model on this machine.
    **settings
        More fields of `ServedSettings`.

    Returns
    -------
    Check
        The largest differences and their cause. `.healthy` is True if they are only rounding.

    Examples
    --------
    With a running server::

        check = rmcalib.judges.compare_served("org/name", "http://localhost:8000")
        print(check.status, check.cause, check.reward_difference)
    """
    from rmcalib.judges._served import EndpointJudge

    served = EndpointJudge(model, checked_settings(ServedSettings, {"endpoint": endpoint, **settings}))
    served.checks = False  # what is wrong is compared, not refused
    server = served.server  # an unsuitable server is reported before the model is loaded
    about = {"model": model, **server.identity(), **server.about()}
    if not weights:
        cause = compare_tokens(served)
        status = "right" if cause.name == "equal" else "differs"
        return Check(server.client.url, "", status, cause=cause.name, note=cause.text, about=about)
    here = here or LoadOptions()
    limit = served.limit
    if server.max_length is None:  # then it is that of the model
        limit = min(limit, Classifier(model, here).model.max_length)
    items = canaries(limit)
    there, seconds = timed(served, items, check=False)
    again, _ = timed(served, items, check=False)
    loaded = Classifier(model, dataclasses.replace(here, max_length=limit))
    expected, seconds_here = timed(loaded, items)
    cause = _explain(loaded, items, expected, there, again)
    about |= {"n_responses": sum(map(len, expected)), "seconds_here": seconds_here}
    gaps = compared(there, expected)
    gaps["status"] = "right" if cause.name == "equal" else "rounding" if cause.healthy else "differs"
    dtype = str(loaded.model.dtype).removeprefix("torch.")
    return Check(
        server.client.url, dtype, **gaps, seconds=seconds, cause=cause.name, note=cause.text, about=about
    )


Rewards = Sequence[tuple[float, ...]]


def _explain(
    loaded: Classifier, items: Sequence[Item], here: Rewards, there: Rewards, again: Rewards
) -> Cause:
    """Return why a server's rewards differ from those here: by the numbers, or by reading other texts."""
    expected, given, repeated = ([r for rewards in each for r in rewards] for each in (here, there, again))
    if not explain(given, repeated).healthy and all(map(math.isfinite, given)):
        most = max(abs(a - b) for a, b in zip(given, repeated, strict=True))
        return Cause("noise", f"the same texts get other rewards each time, by up to {most:.3g}")
    texts = _token_ids(loaded, items)
    cause = explain(expected, given, [len(ids) for ids in texts])
    if cause.name in ("equal", "not finite", "constant", "sigmoid", "tanh", "negated", "clipped"):
        return cause
    off = max(abs(a - b) for a, b in zip(expected, given, strict=True))
    for suspicion, variant in _suspicions(loaded, items, texts):
        would = loaded.score_texts(variant)
        left = max(abs(a - b) for a, b in zip(would, given, strict=True))
        if explain(would, given).healthy and left <= off / 5:
            return suspicion
    return cause


def _token_ids(loaded: Classifier, items: Sequence[Item], template: str | None = None) -> list[list[int]]:
    """Return the token ids of canaries, as the model reads them or with another template."""
    model = loaded.model
    recipe = model.recipe if template is None else dataclasses.replace(model.recipe, template=template)
    rows = encode(
        items,
        model.tokenizer,
        max_length=model.max_length,
        template=recipe.template,
        append=recipe.append_token_id,
    )
    return [list(text.input_ids) for texts in rows for text in texts]


def _suspicions(
    loaded: Classifier, items: Sequence[Item], texts: list[list[int]]
) -> Iterator[tuple[Cause, list[list[int]]]]:
    """Yield how a server may read texts wrongly, with the token ids that it would read then."""
    tokenizer, limit = loaded.model.tokenizer, loaded.model.max_length
    bos, eos = (getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos"))
    begin = bos is not None and all(ids[0] == bos for ids in texts)
    if begin:
        yield (
            Cause("missing bos", "the server leaves out the beginning-of-text token"),
            [ids[1:] for ids in texts],
        )
    if bos is not None:
        name, what = ("second bos", "a second") if begin else ("added bos", "a")
        yield (
            Cause(name, f"the server adds {what} beginning-of-text token"),
            [[bos, *ids][:limit] for ids in texts],
        )
    if eos is not None:
        yield (
            Cause("added eos", "the server adds an end-of-text token"),
            [[*ids[: limit - 1], eos] for ids in texts],
        )
    yield Cause("cut end", "the server leaves out the last token"), [ids[:-1] for ids in texts]
    longest = max(map(len, texts))
    for cut in sorted(
        {limit * share // 256 for share in (8, 16, 32, 64, 128)} | {64, 128, 256, 512, 1024, 2048}
    ):
        if 8 <= cut < longest:
            yield Cause("truncated", f"the server cuts texts to {cut} tokens"), [ids[:cut] for ids in texts]
            yield (
                Cause("truncated", f"the server keeps only the last {cut} tokens of texts"),
                [ids[-cut:] for ids in texts],
            )
    for template in TEMPLATES:
        if template != loaded.model.recipe.template:
            with contextlib.suppress(ValueError):  # it has no such messages
                what = f"the server writes texts with another template ({template})"
                yield Cause("template", what), _token_ids(loaded, items, template)


def compare_tokens(served: EndpointJudge) -> Cause:
    """Compare the tokens of a server with the tokenizer's, without the model's weights."""
    if not served.server.api.tokens:
        raise ValueError(f"{served.client.url}: only vLLM's server shows its tokens (/tokenize)")
    if served.writer.tokenizer is not None:
        return Cause("equal", "the server gets token ids, which are written here")
    tokenizer = load_tokenizer(
        find_files(served.name, LoadOptions(recipe=served.recipe), small_files_only=True)
    )
    bos = getattr(tokenizer, "bos_token_id", None)
    for item in canaries(served.limit):
        (rows,) = encode([item], tokenizer, max_length=10**9, template=served.recipe.template)
        for number, response in enumerate(item.responses):
            ids = list(rows[number].input_ids)
            there = served.tokens(item.prompt, response)
            if there == ids or len(ids) > served.limit:
                continue
            if bos is not None and there == [bos, *ids]:
                return Cause("second bos", "the server adds a second beginning-of-text token")
            if ids[:1] == [bos] and there == ids[1:]:
                return Cause("missing bos", "the server leaves out the beginning-of-text token")
            if len(there) < len(ids) and there == ids[: len(there)]:
                return Cause("truncated", f"the server cuts texts to {len(there)} tokens")
            place = next((n for n, (a, b) in enumerate(zip(ids, there, strict=False)) if a != b), len(there))
            return Cause(
                "template",
                f"the server writes other tokens ({item.id}: {len(there)}, not {len(ids)}; from token {place})",
            )
    return Cause("equal", "the server writes the tokenizer's tokens; its weights were not compared")


def timed(
    judge: Judge, items: Sequence[Item], *, check: bool = True
) -> tuple[list[tuple[float, ...]], float]:
    """Return the rewards of a judge, and the seconds that scoring took; without `check`, also those that are NaN."""
    judge.identity()  # loads the model, which is not part of the time
    start = time.perf_counter()
    chunks = scored_chunks(judge, items) if check else judge.score(items)
    rewards = [scored.rewards for chunk in chunks for scored in chunk]
    return rewards, time.perf_counter() - start


def compared(some: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the largest differences of two judges' rewards and of their softmax probabilities.

    >>> compared([[0.0, 1.0]], [[0.0, 3.0]])
    {'status': 'differs', 'reward_difference': 2.0, 'probability_difference': 0.22}
    """
    import numpy as np
    from scipy.special import softmax

    pairs = list(zip(some, others, strict=True))
    rewards = max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs)
    probabilities = max(float(np.abs(softmax(a) - softmax(b)).max()) for a, b in pairs)
    relative = rewards / max(1.0, *(abs(reward) for _, row in pairs for reward in row))
    status = "right" if relative <= _EQUAL else "rounding" if relative <= _ROUNDING else "differs"
    return {"status": status, "reward_difference": rewards, "probability_difference": probabilities}


def _hub(timeout: float = 5.0) -> str:
    """Return the address of the Hub, and whether it can be reached."""
    import httpx
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return masked(f"{constants.ENDPOINT}: not checked: HF_HUB_OFFLINE is set")
    try:
        answer = httpx.get(f"{constants.ENDPOINT}/api/models?limit=1", timeout=timeout)
    except (httpx.InvalidURL, ValueError):  # a part of a proxy's address may be its password
        return masked(f"{constants.ENDPOINT}: not reachable (check it, and HTTPS_PROXY and ALL_PROXY)")
    except (httpx.HTTPError, ImportError) as error:
        return masked(f"{constants.ENDPOINT}: not reachable ({error})")
    return masked(f"{constants.ENDPOINT}: reachable (status {answer.status_code})")


def _run(device: str, prompts: int, timeout: float) -> dict[str, Outcome]:
    """Score the demo in each dtype, in one process, because starting a process takes most of the time.

    If the process ends early, the outcomes of the dtypes that it did not finish are errors.
    """
    code = "from rmcalib.judges._doctor import main; main()"
    # The demo is so small that several threads would be slower.
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "HF_HUB_OFFLINE": "1"}
    command = isolated(code, device, str(prompts))
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, env=environment, check=False)
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        said, ending = done.stdout, (last or [f"the process ended with code {done.returncode}"])[0]
    except subprocess.TimeoutExpired as expired:
        said, ending = expired.stdout or b"", f"no answer within {timeout:.0f} s"
    outcomes: dict[str, Outcome] = {dtype: {"error": ending} for dtype in devices.DTYPES}
    for line in said.decode(errors="replace").splitlines():
        if line.startswith(_ANSWER):
            outcomes |= json.loads(line.removeprefix(_ANSWER))
    return outcomes


def main() -> None:
    """Score the demo in the process that `diagnose` starts for a device, and print the outcomes."""
    device, prompts = sys.argv[1:]
    items = load_benchmark("demo", limit=int(prompts)).items
    for dtype in devices.DTYPES:
        outcome: Outcome
        try:
            judge = Classifier("demo", LoadOptions(device=device, dtype=dtype))
            timed(judge, items[:1])  # the first pass loads the device's code, which is not timed
            rewards, seconds = timed(judge, items)
            outcome = {"rewards": rewards, "seconds": seconds}
        except Exception as error:
            outcome = {"error": " ".join(f"{type(error).__name__}: {error}".split())}
        print(_ANSWER + json.dumps({dtype: outcome}), flush=True)
