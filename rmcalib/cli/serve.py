"""``rmcalib serve``: a reward model behind a URL that training frameworks ask."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from rmcalib.cli.options import MORE, Common, Folder, InputFile, JudgeSettings, Name, refuse
from rmcalib.cli.screen import say, session
from rmcalib.cli.sources import judge_options


def command(
    *,
    model: Annotated[tuple[Name, ...], Parameter(alias="-m", metavar="ID")] = ("demo",),
    endpoint: Annotated[tuple[Name, ...], Parameter(metavar="URL")] = (),
    calibrator: InputFile | None = None,
    answer: Literal["p", "log_p", "logit", "raw"] | None = None,
    host: Annotated[Name, Parameter(metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[int, Parameter(metavar="N", validator=Number(gte=0, lte=65535))] = 9000,
    log: Folder | None = None,
    policy_tokenizer: Annotated[Name | None, Parameter(metavar="ID")] = None,
    as_is: bool = False,
    on_change: Literal["stop", "warn"] = "stop",
    judge: JudgeSettings = (),
    backend: Annotated[Literal["transformers", "vllm"] | None, Parameter(group=MORE)] = None,
    check_every: Annotated[
        float, Parameter(metavar="SECONDS", group=MORE, validator=Number(gte=1, lte=86_400))
    ] = 300.0,
    hold: Annotated[
        float, Parameter(metavar="SECONDS", group=MORE, validator=Number(gte=1, lte=86_400))
    ] = 150.0,
    max_waiting: Annotated[int, Parameter(metavar="N", group=MORE, validator=Number(gte=1))] = 16_384,
    max_body: Annotated[float, Parameter(metavar="MB", group=MORE, validator=Number(gt=0, lte=2**20))] = 64.0,
    common: Common = Common(),
) -> int:
    """Serve a reward model to OpenRLHF, slime, LLaMA-Factory, verl and others.

    Parameters
    ----------
    model
        Hub id, local folder, registered judge, or demo. Several need a calibrator of them (`rmcalib combine`).
    endpoint
        Ask a server for the rewards, such as http://localhost:8000, instead of loading the model; of several
        models, one each.
    calibrator
        The calibrator that `rmcalib calibrate` or `combine` wrote; it says what a reward means.
    answer
        What a reward is: a probability, its logarithm, its logit, or the raw number; default p or logit, as the
        calibrator allows, and raw without one.
    host
        Where to listen. Beyond this machine, RMCALIB_SERVE_TOKEN must hold a token.
    port
        The port; 0 is any free one.
    log
        Folder for a log of all samples with their rewards, which `rmcalib watch` reads.
    policy_tokenizer
        The policy's tokenizer, to take whole texts apart (OpenRLHF, LLaMA-Factory).
    as_is
        Score whole texts as they are, with the template that is in them.
    on_change
        If the model behind changes: answer 503 (stop), or only say so (warn).
    backend
        What runs the model: transformers (the default), or vllm, whose server is started and stopped for it.
    check_every
        How often all canary texts are scored again.
    hold
        How long a request is held while the model is away or busy.
    max_waiting
        Samples in the queue, above which requests are refused.
    max_body
        The largest request.
    """
    if as_is:
        refuse({"--policy-tokenizer": policy_tokenizer}, "--as-is scores whole texts as they are")
    refuse({"--json": common.json}, "a server has no result")
    # Threads that spin while they wait would take the cores from the thread that reads requests.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from rmcalib.live import Limits, Reward, serve
    from rmcalib.live.policy import PolicyTexts, Texts
    from rmcalib.repair import Calibrator

    used = None if calibrator is None else Calibrator.load(calibrator)
    output = answer or ("raw" if used is None else "logit" if used.threshold is None else "p")
    place = endpoint[0] if endpoint else None
    settings = judge_options(judge, model[0], endpoint=place, backend=backend)
    if endpoint:
        settings["endpoint"] = endpoint
    with session(common) as screen:
        policy = None if policy_tokenizer is None else PolicyTexts.load(policy_tokenizer)
        reward = Reward(
            model[0] if len(model) == 1 else model, calibrator=used, output=output, log=log, **settings
        )
        if not endpoint:
            _leave_a_core()
        serve(
            reward,
            host=host,
            port=port,
            texts=Texts(policy, as_is),
            limits=Limits(hold=hold, waiting=max_waiting, body=int(max_body * 2**20)),
            on_change=on_change,
            check_every=check_every,
            on_start=lambda address: say(f"{reward.name} is served at {address} ({output}); Ctrl-C ends it"),
        )
        screen.say(f"{reward.counts.scored:,} samples were rewarded")
    return 0


def _leave_a_core() -> None:
    """Let torch leave a core for the thread that reads requests, unless the user has chosen a number."""
    if "OMP_NUM_THREADS" in os.environ:
        return
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() - 1))
