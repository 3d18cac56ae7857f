"""Pushes: bodies of other protocols, which may hold profiles of several series.

A worker takes a push apart and validates each profile in it. Its profiles together have the limits of one
submit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pprof_merge import Header, LimitExceeded, Limits, Profile, ProfileError, inflate
from pprof_merge.codec import StepTimes, Summary, read_summary, without_traceback

from pgo_collector.engine.function_seconds import Measured, Measuring, Patterns
from pgo_collector.engine.recent_profiles import RECENT, rows_owner
from pgo_collector.engine.validation import BODY_TIME, packed
from pgo_collector.errors import PushInvalid, Refusal
from pgo_collector.model.facts import Facts
from pgo_collector.model.series import Series
from pgo_collector.model.times import END_OF_1970
from pgo_collector.traces.spans import span

# How many profiles of any push are stored, and for how many bytes of it, as it came, one more. Each is a file
# that is synced; what a profiler sends of a process that has one sample takes some 100 bytes.
_PROFILES = 100
_BYTES_A_PROFILE = 100


class PushedProfile(NamedTuple):
    """A profile in a push: its bytes, gzip or bare protobuf, and how to find its series.

    `place` returns the series of a profile with this header, given whether any of its functions has a start
    line, or raises a Refusal. A profile that doesn't say when it was taken gets `created_nanos`, or the
    present time.
    """

    content: bytes
    place: Callable[[Header, bool], Series]
    created_nanos: int | None = None


Unpacked = PushedProfile | Refusal | ProfileError
# Returns the profiles in a body, or the error in place of a single one; raises Refusal or ProfileError if the
# body can't be read at all. It is called in a worker, so it has to be picklable.
Unpack = Callable[[bytes, Limits], Sequence[Unpacked]]


class PushBody(NamedTuple):
    """The body of a push, in memory or in a file, and the function that takes it apart.

    The functions that match the `patterns` are measured in each of its profiles.
    """

    content: bytes | Path
    unpack: Unpack
    patterns: Patterns = ()
    # Whose rows its profiles are for is known only when it was taken apart.
    owner: str = ""


class PlacedProfile(NamedTuple):
    """A profile of a push that may be stored: its gzip, or the file that it is in."""

    series: Series
    facts: Facts
    created_nanos: int | None
    content: bytes | Path
    measured: Measured = None


_Decoded = tuple[Profile, Summary, Measured]
# A profile that was read, and the owner of its rows.
_OfOwner = tuple[str, Profile]
Placed = PlacedProfile | Refusal | ProfileError | OSError


def pushed_part(part: Path, number: int) -> Path:
    """Return the path of a profile's file, beside the file `part` of the push that it came in."""
    return part.with_suffix(f".{number}.part")


def validate_pushes(bodies: Sequence[PushBody], limits: Limits) -> list[list[Placed] | Exception]:
    """Validate pushes in one task; return for each its profiles, or why it can't be read.

    A profile without samples is left out. If the body is in a file, each profile is written to a file beside
    it. A worker may die at any point of this, and the call may be repeated.
    """
    return [_validated(body, limits) for body in bodies]


def _validated(body: PushBody, limits: Limits) -> list[Placed] | Exception:
    read: list[_OfOwner] = []
    try:
        placed = BODY_TIME.spend(body.content, _read, body, limits, read)
    except (Refusal, ProfileError, OSError) as error:
        return error.with_traceback(None)
    for owner, profile in read:  # whether the key is for their services isn't known yet
        RECENT.keep(owner, profile, is_certain=False)
    return placed


def _read(body: PushBody, limits: Limits, read: list[_OfOwner]) -> list[Placed]:
    """Return the profiles of a push; add what was read of them to `read`.

    Raises what `unpack` raises, and OSError.
    """
    times = StepTimes()
    with span("engine", "read push") as reading:
        content = body.content if isinstance(body.content, bytes) else body.content.read_bytes()
        profiles = [*body.unpack(content, limits)]
        measuring = Measuring(body.patterns, limits)
        # To the end, since what can't be inflated is then an error among the profiles.
        decoded = [_decoded(bare, measuring, limits, times) for bare in _inflated(profiles, limits)]
        reading.divide(decode=times.decode)
    with span("engine", "check and compress"):
        return _placed(body, profiles, iter(decoded), limits, read)


def _decoded(bare: bytes, measuring: Measuring, limits: Limits, times: StepTimes) -> _Decoded | ProfileError:
    """Return a profile, its summary and what was measured in it, or the error if it is refused."""
    try:
        summary, columns = read_summary(bare, limits, times)
    except ProfileError as error:
        return without_traceback(error)
    with BODY_TIME.suspended():
        profile = Profile(summary.header, columns, summary.digest)
        return profile, summary, measuring.measured(summary.header, columns, bare)


def _inflated(profiles: list[Unpacked], limits: Limits) -> Iterator[bytes]:
    """Yield the bare protobuf of each profile of a push; replace one that can't be inflated by its error."""
    room = limits.inflated_bytes
    for number, profile in enumerate(profiles):
        if not isinstance(profile, PushedProfile):
            continue
        try:
            bare = inflate(profile.content, limits._replace(inflated_bytes=room))
        except LimitExceeded as error:
            allowed = getattr(limits, error.limit)
            profiles[number:] = [LimitExceeded(error.limit, allowed)]  # all together are too large
            return
        except ProfileError as error:
            profiles[number] = error.with_traceback(None)
            continue
        room -= len(bare)
        yield bare


def _placed(
    body: PushBody,
    profiles: Sequence[Unpacked],
    decoded: Iterator[_Decoded | ProfileError],
    limits: Limits,
    read: list[_OfOwner],
) -> list[Placed]:
    """Return the profiles of a push that have samples; `decoded` has the next of them, as `_decoded` does.

    The ones that may be stored are added to `read`.
    """
    placed: list[Placed] = []
    size = len(body.content) if isinstance(body.content, bytes) else body.content.stat().st_size
    most = left = _PROFILES + size // _BYTES_A_PROFILE
    for number, profile in enumerate(profiles):
        if not isinstance(profile, PushedProfile):
            placed.append(profile)
            continue
        known = next(decoded)
        if isinstance(known, ProfileError):
            placed.append(known)
            continue
        profile_read, summary, measured = known
        if summary.samples and left <= 0:
            reason = f"{size:,} bytes store up to {most:,} profiles; send the others in more requests"
            placed.append(PushInvalid(reason))
        elif summary.samples:
            left -= 1
            part = pushed_part(body.content, number) if isinstance(body.content, Path) else None
            try:
                found = _place(profile, summary, part, limits)._replace(measured=measured)
                read.append((rows_owner(found.series.service, found.series.type), profile_read))
                placed.append(found)
            except (Refusal, OSError) as error:
                placed.append(error.with_traceback(None))
    return placed


def _place(profile: PushedProfile, summary: Summary, part: Path | None, limits: Limits) -> PlacedProfile:
    """Find the series of a profile, and write its gzip to the file `part` if there is one.

    Raises a Refusal or OSError.
    """
    series = profile.place(summary.header, summary.start_lines > 0)
    content = packed(profile.content, limits) or profile.content
    header, digest = summary.header, summary.digest.hex()
    facts = Facts(header.time_nanos, header.duration_nanos, digest, len(content), summary.samples)
    if 0 < facts.time_nanos < END_OF_1970:
        facts = replace(facts, time_nanos=0)
    if part is None:
        return PlacedProfile(series, facts, profile.created_nanos, content)
    part.write_bytes(content)
    return PlacedProfile(series, facts, profile.created_nanos, part)
