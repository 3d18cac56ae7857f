"""Validation: a worker inflates and decodes submitted bodies before they are stored; nothing else does.

The CPU time that it spends on a body is bounded by the size of the body: see `BodyTime`.
"""

from __future__ import annotations

import signal
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from math import inf
from pathlib import Path
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from pprof_merge import ENGINE, Header, Limits, Profile, ProfileError, ValueType, compress, inflate
from pprof_merge.analysis import BRANCH_TYPES
from pprof_merge.codec import (
    GZIP_MAGIC,
    ProfileColumns,
    StepTimes,
    Summary,
    read_summary,
    without_traceback,
)

from pgo_collector.blobs.blobs import is_sealed
from pgo_collector.engine.function_seconds import Measured, Measuring, Patterns
from pgo_collector.engine.recent_profiles import RECENT, rows_owner
from pgo_collector.errors import BodyTooCostly, NotACPUProfile, NotOfItsType
from pgo_collector.model.facts import Facts
from pgo_collector.model.profile_types import BRANCHES, CPU, PROCESS_CPU, WALL
from pgo_collector.traces.spans import span

_GZIP_WBITS = 31
_GZIPPED_SUFFIX = ".gz.part"
CPU_TIME = ValueType(b"cpu", b"nanoseconds")
SAMPLE_COUNT = ValueType(b"samples", b"count")
_NONE = ValueType(b"", b"")
_OF_CPU = ([SAMPLE_COUNT], [CPU_TIME], sorted((SAMPLE_COUNT, CPU_TIME)))
# What a profile is likely to be, by the beginning of one of its sample types.
_LIKELY = {
    b"inuse_": ("heap", "allocs"),
    b"alloc_": ("heap", "allocs"),
    b"contentions": ("block", "mutex"),
    b"goroutine": ("goroutine",),
    b"threadcreate": ("threadcreate",),
    b"wall": (WALL,),
    b"cpu": (PROCESS_CPU,),
    BRANCH_TYPES[0].type: (BRANCHES,),
}
# The types of Go's own profiles: what is certainly another one of them isn't taken as one.
_OF_GO = frozenset({"heap", "allocs", "block", "mutex", "goroutine", "threadcreate"})
_LONGEST_LIST = 200
_MIB = 1 << 20
# How much longer the interpreted engine takes for honest bodies.
_SLOWER = 1 if ENGINE == "compiled" else 10

P = ParamSpec("P")
T = TypeVar("T")


class SubmittedBody(NamedTuple):
    """A submitted body, in memory or in a file, and the type that its profile must be of.

    The functions that match the `patterns` are measured. The profile is kept for the rows of the `service`,
    unless that is empty.
    """

    content: bytes | Path
    type: str
    patterns: Patterns = ()
    service: str = ""

    @property
    def owner(self) -> str:
        """Return the key of the rows of its service and type."""
        return rows_owner(self.service, self.type)


class ValidatedBody(NamedTuple):
    """The facts of a profile that may be stored, and what to store in place of the body.

    `packed` is None where the body is stored as it came, and where a file already holds what to store.
    """

    facts: Facts
    packed: bytes | None
    measured: Measured = None


_Outcome = ValidatedBody | ProfileError | NotACPUProfile | NotOfItsType | BodyTooCostly | OSError


def gzipped_part(part: Path) -> Path:
    """Return the path at which the gzip of the body in the file `part` is made."""
    return part.with_suffix(_GZIPPED_SUFFIX)


def validate_bodies(bodies: Sequence[SubmittedBody], limits: Limits) -> list[_Outcome]:
    """Validate bodies in one task, which costs less than one each; return the result or the error of each.

    A body that isn't gzip is compressed; if it is in a file, the gzip replaces the file. A worker may die at
    any point of this, and the call may be repeated.
    """
    every: list[_Read | ProfileError | BodyTooCostly | OSError] = []
    times = StepTimes()
    with span("engine", "read bodies", bodies=len(bodies)) as reading:
        for body in bodies:
            try:
                every.append(_read(body, limits, times))
            except ProfileError as error:
                every.append(without_traceback(error))
            except (BodyTooCostly, OSError) as error:
                every.append(error.with_traceback(None))
        reading.divide(inflate=times.inflate, decode=times.decode)
    with span("engine", "check and compress"):
        return [
            read if isinstance(read, Exception) else _validated(body, read, limits)
            for body, read in zip(bodies, every, strict=True)
        ]


class _Read(NamedTuple):
    """A profile that was read: its bytes, its summary and columns, and what was measured in it."""

    content: bytes
    summary: Summary
    columns: ProfileColumns
    measured: Measured


def _read(body: SubmittedBody, limits: Limits, times: StepTimes) -> _Read:
    """Read the profile of a body. Raises ProfileError, BodyTooCostly and OSError."""
    content = body.content if isinstance(body.content, bytes) else body.content.read_bytes()
    summary, columns = BODY_TIME.spend(content, read_summary, content, limits, times)
    measuring = Measuring(body.patterns, limits)
    return _Read(content, summary, columns, measuring.measured(summary.header, columns, content))


def _validated(body: SubmittedBody, read: _Read, limits: Limits) -> _Outcome:
    content, summary, columns, measured = read
    try:
        if body.type == CPU:
            check_cpu(summary.header)
        elif body.type in _OF_GO:
            _check_of_go(body.type, summary.header)
        elif body.type == BRANCHES and summary.header.sample_types != BRANCH_TYPES:
            raise _not_of_type(body.type, summary.header, "pgo-agent convert --branches makes such")
        to_store = packed(content, limits)
        size = len(to_store or content)
        if isinstance(body.content, Path) and to_store is not None:
            gzipped_part(body.content).write_bytes(to_store)
            gzipped_part(body.content).replace(body.content)
            to_store = None
    except (NotACPUProfile, NotOfItsType, OSError) as error:
        return error.with_traceback(None)  # which would keep the body in memory
    header, digest = summary.header, summary.digest.hex()
    facts = Facts(header.time_nanos, header.duration_nanos, digest, size, summary.samples)
    if body.service:
        profile = Profile(header, columns, summary.digest)
        RECENT.keep(body.owner, profile, is_certain=summary.samples > 0)  # some routes refuse empty ones
    return ValidatedBody(facts, to_store, measured)


def _check_of_go(type_: str, header: Header) -> None:
    """Raise NotOfItsType for a profile that is certainly another one than Go's of this type."""
    likely = (CPU,) if is_cpu(header) else likely_types(header)
    if likely and type_ not in likely:
        raise _not_of_type(type_, header, _advice(likely))


def _not_of_type(type_: str, header: Header, advice: str) -> NotOfItsType:
    types = _cut(", ".join(map(str, header.sample_types[:10])))
    return NotOfItsType(f"not a profile of the type {type_}: it measures {types}; {advice}")


def is_cpu(header: Header) -> bool:
    """Return whether the period is CPU time and the sample types are samples, CPU time or both."""
    return header.period_type == CPU_TIME and sorted(header.sample_types) in _OF_CPU


def check_cpu(header: Header) -> None:
    """Raise NotACPUProfile unless the period is CPU time and the sample types are samples, CPU time or both.

    Go's compiler takes either.
    """
    if header.period_type != CPU_TIME:
        period = f"the period is in {_cut(str(header.period_type))}, not in {CPU_TIME}"
        if header.period_type == _NONE:
            period = f"it has no period, which must be in {CPU_TIME}"
        raise NotACPUProfile(f"not a CPU profile for builds: {period}; {_advice(likely_types(header))}")
    given = sorted(header.sample_types)
    if given not in _OF_CPU:
        types = ", ".join(map(str, header.sample_types[:10])) or "nothing"
        raise NotACPUProfile(
            f"not a CPU profile for builds: it measures {_cut(types)}, not {SAMPLE_COUNT} and {CPU_TIME};"
            f" {_advice(likely_types(header))}"
        )


def likely_types(header: Header) -> tuple[str, ...]:
    """Return the types that a profile may be of, by its sample types; none if they don't tell."""
    names = [sample_type.type for sample_type in header.sample_types]
    for beginning, types in _LIKELY.items():
        if any(name.startswith(beginning) for name in names):
            return types
    return ()


def _advice(likely: tuple[str, ...]) -> str:
    if likely:
        return f"send it with {' or '.join(f'type={type_}' for type_ in likely)}"
    return "send it with its type, such as type=wall or type=other"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LIST else text[:_LONGEST_LIST] + "…"


def packed(content: bytes, limits: Limits) -> bytes | None:
    """Return what to store in place of a body; None if it is stored as it came."""
    if not content.startswith(GZIP_MAGIC):
        return compress(content, small=True)
    begin = b""
    with suppress(zlib.error):  # which refuses headers that the engine's inflate takes
        begin = zlib.decompressobj(_GZIP_WBITS).decompress(content, len(GZIP_MAGIC))
    # Who gets the blob inflates it once; and only the collector's own combines may have a seal.
    return (
        compress(inflate(content, limits), small=True) if begin == GZIP_MAGIC or is_sealed(content) else None
    )


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
            f"reading the body takes more than {allowed:.3g} seconds of CPU time"
            " (PGOF_TASK_SECONDS or PGOF_BODY_CPU_SECONDS); send less in one body"
        )

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Leave out the time of the block, which isn't interrupted."""
        left, interval = signal.setitimer(signal.ITIMER_PROF, 0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, left, interval)

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
