"""Send the steps of a watched run to an experiment tracker, or to a URL."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

_log = logging.getLogger("rmcalib")
TRACKERS = ("wandb", "trackio", "tensorboard", "mlflow")
_SECONDS = 10.0  # a webhook that does not answer must not hold the watch up
Send = Callable[[Mapping[str, Any], list[str]], None]
"""Takes the row of a step, and the sentences of new alarms."""
Close = Callable[[], Any]


@contextmanager
def tracker(name: str, folder: str = "runs/watch") -> Iterator[Send]:
    """Open a tracker by its name, or a webhook by its URL: a function that sends rows and alarms.

    Numbers are called `watch/<column>`. A webhook gets ``{"step": ..., "watch": {...}, "alarms": [...]}`` as JSON.

    Parameters
    ----------
    name : str
        wandb, trackio, tensorboard, mlflow, or a URL that begins with http:// or https://.
    folder : str
        Where TensorBoard writes.

    Yields
    ------
    function
        Of a row and a list of sentences. It raises ValueError if the tracker does not take them.

    Examples
    --------
    >>> with tracker("wandbb") as send:
    ...     send({"step": 1, "gap": 0.1}, [])
    Traceback (most recent call last):
    ValueError: log_to: unknown 'wandbb' (have: wandb, trackio, tensorboard, mlflow, or a URL)
    """
    if name.startswith(("http://", "https://")):
        yield _webhook(name)
        return
    if name not in TRACKERS:
        raise ValueError(f"log_to: unknown {name!r} (have: {', '.join(TRACKERS)}, or a URL)")
    opened = {"wandb": _wandb, "trackio": _trackio, "tensorboard": _tensorboard, "mlflow": _mlflow}[name]
    with _inside(name):
        send, close = opened(folder)

    def guarded(row: Mapping[str, Any], alarms: list[str]) -> None:
        with _inside(name):
            send(row, alarms)

    try:
        yield guarded
    finally:
        try:
            with _inside(name):
                close()
        except ValueError as error:  # the result counts, not its copy
            _log.warning("%s", error)


@contextmanager
def _inside(name: str) -> Iterator[None]:
    """Keep standard output for results, whatever the library prints, and make its errors one line."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except ImportError as error:
        missing = (error.name or name).partition(".")[0]
        raise ValueError(f"log_to: {missing} is not installed: pip install {missing}") from error
    except Exception as error:
        raise ValueError(f"log_to: {name}: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a row by their logged names."""
    numbers = {name: float(value) for name, value in row.items() if name != "step"}
    return {f"watch/{name}": value for name, value in numbers.items() if math.isfinite(value)}


def _wandb(_: str) -> tuple[Send, Close]:
    wandb = import_module("wandb")

    run = wandb.init(job_type="rmcalib-watch", resume="allow")
    run.define_metric("watch/step")
    run.define_metric("watch/*", step_metric="watch/step")

    def send(row: Mapping[str, Any], alarms: list[str]) -> None:
        run.log({**_numbers(row), "watch/step": row["step"]})
        for text in alarms:
            run.alert(title="rmcalib watch", text=text)

    return send, run.finish


def _trackio(_: str) -> tuple[Send, Close]:
    trackio = import_module("trackio")

    trackio.init(project="rmcalib-watch")

    def send(row: Mapping[str, Any], alarms: list[str]) -> None:
        trackio.log({**_numbers(row), "watch/step": row["step"], **_alarm_texts(alarms)})

    return send, trackio.finish


def _tensorboard(folder: str) -> tuple[Send, Close]:
    writer = import_module("torch.utils.tensorboard").SummaryWriter(folder)

    def send(row: Mapping[str, Any], alarms: list[str]) -> None:
        for name, value in _numbers(row).items():
            writer.add_scalar(name, value, int(row["step"]))
        for text in alarms:
            writer.add_text("watch/alarm", text, int(row["step"]))
        writer.flush()

    return send, writer.close


def _mlflow(_: str) -> tuple[Send, Close]:
    mlflow = import_module("mlflow")

    run = mlflow.active_run()
    close = mlflow.end_run if run is None else lambda: None
    if run is None:
        mlflow.start_run(run_name="rmcalib watch")

    def send(row: Mapping[str, Any], alarms: list[str]) -> None:
        mlflow.log_metrics(_numbers(row), step=int(row["step"]))
        for text in alarms:
            mlflow.set_tag("rmcalib.alarm", text)

    return send, close


def _alarm_texts(alarms: list[str]) -> dict[str, str]:
    return {"watch/alarm_text": " ".join(alarms)} if alarms else {}


def _webhook(url: str) -> Send:
    from http.client import HTTPException
    from urllib.request import Request, urlopen

    try:
        place = urlsplit(url).hostname  # the rest of a URL may be a secret
    except ValueError:
        raise ValueError("log_to: the URL is not an address like https://host/path") from None

    def send(row: Mapping[str, Any], alarms: list[str]) -> None:
        numbers = {name.removeprefix("watch/"): value for name, value in _numbers(row).items()}
        body = json.dumps({"step": row["step"], "watch": numbers, "alarms": alarms}).encode()
        request = Request(url, body, {"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=_SECONDS):
                pass
        except (OSError, ValueError, HTTPException) as error:  # the last ones for names that no host can have
            reason = getattr(error, "code", None) or type(getattr(error, "reason", error)).__name__
            raise ValueError(f"log_to: {place} did not take a step ({reason})") from None

    return send
