"""The processes of ``torchrun`` or ``accelerate launch`` as one job: they wait and fail together.

Each process scores its part of the prompts. What they all do is done in steps (`Team.step`): no process
continues before all have finished a step. If one fails, all fail with its message, which the main process
reports.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

__all__ = ["PeerError", "Team", "is_main_process", "joined", "may_draw", "process_rank"]

# A process may have much more to score than another; the launcher ends all if one dies.
_PATIENCE = datetime.timedelta(days=7)
_BAD_INPUT = (ValueError, OSError, MemoryError)
_LETTING_GO = 0.5  # seconds


class PeerError(RuntimeError):
    """Another process of the job failed, or was lost."""


def process_rank() -> tuple[int, int]:
    """Return this process's rank and the number of processes, as torchrun and accelerate set them."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def is_main_process() -> bool:
    """Return whether this process is the one that prints, joins the parts and writes reports."""
    return process_rank()[0] == 0


def may_draw() -> bool:
    """Return whether progress bars are wanted of this process: one for all, and only on a terminal."""
    return sys.stderr.isatty() and is_main_process()


class Team:
    """The processes of one job, as one of them sees them; `joined` makes it.

    A process on its own is a team of one, for which nothing of this does anything.

    >>> with joined() as team, team.step():
    ...     team.gather("here"), team.add("responses", 3), team.add("responses", 4)
    (['here'], 3, 7)
    """

    def __init__(self, rank: int = 0, world: int = 1, *, group: Any = None, store: Any = None) -> None:
        """Remember who we are; `group` is gloo's, and `store` is one that all processes can write to."""
        self.rank, self.world = rank, world
        self._group, self._store = group, store
        self._counts: dict[str, int] = {}
        self._step = 0

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Run a block that all processes run: they leave it together, or fail together.

        Bad input (ValueError, OSError, MemoryError) of one process is a ValueError in the others; anything
        else is a `PeerError`.
        """
        if self.world == 1:
            yield
            return
        self._step += 1
        failure: Exception | None = None
        try:
            yield
        except _StoppedError:
            pass
        except Exception as error:
            failure = error
            self._store.set(self._failed, "1")
        self._settle(failure)

    def check(self) -> None:
        """Leave the step that runs if another process has failed in it: call it now and then."""
        if self.world > 1 and self._store.check([self._failed]):
            raise _StoppedError

    def gather(self, value: Any) -> list[Any]:
        """Return what each process has given, by rank."""
        if self.world == 1:
            return [value]
        from torch import distributed

        values: list[Any] = [None] * self.world
        try:
            distributed.all_gather_object(values, value, group=self._group)
        except RuntimeError as error:
            raise PeerError(
                "another process of this job was lost; what is scored is kept: run the same command again"
            ) from error
        return values

    def add(self, name: str, amount: int) -> int:
        """Count something together; returns what all processes have counted so far."""
        if self.world > 1:
            return int(self._store.add(name, amount))
        self._counts[name] = self._counts.get(name, 0) + amount
        return self._counts[name]

    @property
    def _failed(self) -> str:
        return f"step {self._step} failed"

    def _settle(self, failure: Exception | None) -> None:
        report = failure and (isinstance(failure, _BAD_INPUT), f"{failure}" or type(failure).__name__)
        try:
            answers = self.gather(report)
        except PeerError:
            if failure is not None:
                raise failure from None  # why the others were lost, most likely
            raise
        for rank, answer in enumerate(answers):
            if answer is None:
                continue
            if rank == self.rank and failure is not None:
                raise failure
            bad_input, text = answer
            raise (ValueError if bad_input else PeerError)(text) from failure


class _StoppedError(Exception):
    """This process leaves a step because another has failed."""


@contextlib.contextmanager
def joined() -> Iterator[Team]:
    """Join the processes of the launcher for the length of the block; all of them must come.

    A process group that is there already, such as a training script's, is used and left alone.
    """
    rank, world = process_rank()
    if world == 1:
        if "ACCELERATE_MIXED_PRECISION" in os.environ and "MASTER_PORT" in os.environ:
            warnings.warn(
                "accelerate has started a single process: on CPUs, start several with "
                "`torchrun --nproc-per-node 2 -m rmcalib ...`",
                stacklevel=1,
            )
        yield Team()
        return
    from torch import distributed
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", rank, world))
    store.set_timeout(_PATIENCE)
    number = store.add(f"rmcalib, process {rank}", 1)  # the same in all: no two jobs of a script get mixed up
    store = distributed.PrefixStore(f"rmcalib {number}", store)  # type: ignore[attr-defined]
    ours = not distributed.is_initialized()
    if ours:
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=_PATIENCE)
    shared = ours or distributed.get_backend() == "gloo"
    group = None if shared else distributed.new_group(backend="gloo", timeout=_PATIENCE)
    try:
        yield Team(rank, world, group=group, store=store)
    finally:
        if ours:
            # Gloo's threads release the last messages. Without this, torch 2.6 can deadlock in the next line.
            time.sleep(_LETTING_GO)
            distributed.destroy_process_group()
            # Gloo's threads still let go of the last messages; a process that ends meanwhile is aborted.
            time.sleep(_LETTING_GO)
