"""Validation: a worker inflates and decodes submitted bodies before they are stored; nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pprof_merge import Header, Limits, ProfileError, ValueType, compress, inflate
from pprof_merge.codec import GZIP_MAGIC, StepTimes, Summary, summaries

from pgo_collector.blobs.blobs import is_sealed
from pgo_collector.engine.body_time import BODY_TIME
from pgo_collector.errors import BodyTooCostly, NotACPUProfile
from pgo_collector.model.facts import Facts
from pgo_collector.model.profile_types import CPU
from pgo_collector.traces.spans import span

_GZIPPED_SUFFIX = ".gz.part"
CPU_TIME = ValueType(b"cpu", b"nanoseconds")
SAMPLE_COUNT = ValueType(b"samples", b"count")
_LONGEST_LIST = 200


class SubmittedBody(NamedTuple):
    """A submitted body, in memory or in a file, and the type that its profile must be of."""

    content: bytes | Path
    type: str


class ValidatedBody(NamedTuple):
    """The facts of a profile that may be stored, and what to store in place of the body.

    `packed` is None where the body is stored as it came, and where a file already holds what to store.
    """

    facts: Facts
    packed: bytes | None


_Outcome = ValidatedBody | ProfileError | NotACPUProfile | BodyTooCostly | OSError


def gzipped_part(part: Path) -> Path:
    """Return the path at which the gzip of the body in the file `part` is made."""
    return part.with_suffix(_GZIPPED_SUFFIX)


def validate_bodies(bodies: Sequence[SubmittedBody], limits: Limits) -> list[_Outcome]:
    """Validate bodies in one task, which costs less than one each; return the result or the error of each.

    A body that isn't gzip is compressed; if it is in a file, the gzip replaces the file. A worker may die at
    any point of this, and the call may be repeated.
    """
    times = StepTimes()
    with span("engine", "read bodies", bodies=len(bodies)) as reading:
        every = [_read(body, limits, times) for body in bodies]
        reading.divide(inflate=times.inflate, decode=times.decode)
    with span("engine", "check and compress"):
        return [
            read if isinstance(read, Exception) else _validated(body, *read, limits)
            for body, read in zip(bodies, every, strict=True)
        ]


def _read(
    body: SubmittedBody, limits: Limits, times: StepTimes
) -> tuple[bytes, Summary] | ProfileError | BodyTooCostly | OSError:
    """Return the bytes of a body and the summary of the profile in it, within the time for the body."""
    try:
        content = body.content if isinstance(body.content, bytes) else body.content.read_bytes()
        (summary,) = BODY_TIME.spend(content, list, summaries((content,), limits, times))
    except (BodyTooCostly, OSError) as error:
        return error.with_traceback(None)
    return summary if isinstance(summary, ProfileError) else (content, summary)


def _validated(body: SubmittedBody, content: bytes, summary: Summary, limits: Limits) -> _Outcome:
    try:
        if body.type == CPU:
            check_cpu(summary.header)
        to_store = packed(content, limits)
        size = len(to_store or content)
        if isinstance(body.content, Path) and to_store is not None:
            gzipped_part(body.content).write_bytes(to_store)
            gzipped_part(body.content).replace(body.content)
            to_store = None
    except (NotACPUProfile, OSError) as error:
        return error.with_traceback(None)  # which would keep the body in memory
    header, digest = summary.header, summary.digest.hex()
    facts = Facts(header.time_nanos, header.duration_nanos, digest, size, summary.samples)
    return ValidatedBody(facts, to_store)


def check_cpu(header: Header) -> None:
    """Raise NotACPUProfile unless the period is CPU time and the sample types are samples and CPU time.

    The two sample types may come in any order.
    """
    if header.period_type != CPU_TIME:
        raise NotACPUProfile(
            f"not a CPU profile: the period is in {_cut(str(header.period_type))}, not in {CPU_TIME}"
        )
    if sorted(header.sample_types) != sorted((SAMPLE_COUNT, CPU_TIME)):
        types = ", ".join(map(str, header.sample_types[:10])) or "nothing"
        raise NotACPUProfile(
            f"not a CPU profile: it measures {_cut(types)}, not {SAMPLE_COUNT} and {CPU_TIME}"
        )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LIST else text[:_LONGEST_LIST] + "…"


def packed(content: bytes, limits: Limits) -> bytes | None:
    """Return what to store in place of a body; None if it is stored as it came."""
    if is_sealed(content):  # only the collector's own combines may have a seal
        return compress(inflate(content, limits))
    return None if content.startswith(GZIP_MAGIC) else compress(content)
