"""CPU time for submitted bodies: how much of it a worker spends on one, by the size of the body."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import wraps
from math import inf
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from pprof_merge import ENGINE

from pgo_collector.errors import BodyTooCostly

P = ParamSpec("P")
T = TypeVar("T")

_MIB = 1 << 20
# How much longer the interpreted engine takes for honest bodies.
_SLOWER = 1 if ENGINE == "compiled" else 10


class _TimeIsUp(BaseException):
    """The body's time is used up. No `except Exception` on the way up takes it for an error of the body."""


class BodyTime:
    """CPU time in seconds that each MiB of a body may take; a smaller body may take as much as one MiB.

    The work is interrupted by a signal between two bytecodes, wherever it is. What outlives it stays whole:
    it changes no rows, and the caches that it fills (`lru_cache`) keep a result once it is complete. What it
    does within one call of compiled code isn't interrupted, and is linear in the body.
    """

    def __init__(self) -> None:
        self._seconds = inf
        self._is_running = False

    def bound(self, seconds: float) -> None:
        """Bound the time in this process, on whose main thread all bodies are read from now on."""
        signal.signal(signal.SIGPROF, self._interrupt)
        self._seconds = seconds * _SLOWER

    def spend(self, body: bytes | Path, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` returns for a body, or raise BodyTooCostly if it uses the body's time up.

        Raises what `work` raises, and OSError.
        """
        if self._seconds == inf:
            return work(*args, **kwargs)
        size = len(body) if isinstance(body, bytes) else body.stat().st_size
        allowed = self._seconds * max(size / _MIB, 1)
        try:
            try:
                self._is_running = True
                # Again and again: code that is called back, such as a finalizer, may lose the exception.
                signal.setitimer(signal.ITIMER_PROF, allowed, allowed)
                return work(*args, **kwargs)
            finally:
                self._is_running = False  # a signal that comes later is too late: the work is done
                signal.setitimer(signal.ITIMER_PROF, 0)
        except _TimeIsUp:
            self._is_running = False  # the signal may have come as the block above ended
            signal.setitimer(signal.ITIMER_PROF, 0)
        # Only here is the memory of the interrupted work released.
        raise BodyTooCostly(
            f"reading the body takes more than {allowed:.3g} seconds of CPU time (PGOF_BODY_CPU_SECONDS);"
            " send less in one body"
        )

    def _interrupt(self, *_: object) -> None:
        if self._is_running:
            raise _TimeIsUp


def within_body_time(task: Callable[Concatenate[Path, P], T]) -> Callable[Concatenate[Path, P], T]:
    """Return a task that reads the body in a file, its first argument, within the time for the body."""

    @wraps(task)
    def bounded(body: Path, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return BODY_TIME.spend(body, task, body, *args, **kwargs)

    return bounded


# The time in this process; a worker process bounds it as it starts.
BODY_TIME = BodyTime()
