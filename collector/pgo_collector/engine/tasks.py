"""What worker processes do: the heavy steps on files, as functions that pickle, and what they return.

Profiles travel between processes as file names. What was just received is for `received`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pprof_merge import (
    Batch,
    Budget,
    Header,
    OutputTooLarge,
    Profile,
    ProfileError,
    ReportOptions,
    SymbolsInvalid,
    UnfitForFormat,
    apply_rules,
    compress,
    decode,
    decode_all,
    encode,
    overlap,
    parse_symbols,
    report,
    trim_after,
    trim_heap,
)

from pgo_collector.engine.blob_columns import STORED_LIMITS
from pgo_collector.engine.merge_inputs import ROW_CACHE, ChosenBlobs, collect
from pgo_collector.engine.outputs import Written, for_the_server, refusing_large, too_large, write_pieces
from pgo_collector.engine.renditions import Rendition
from pgo_collector.errors import MergeDamaged, NotACPUProfile, NotOfThisProfile, SymbolsUnreadable
from pgo_collector.model.facts import Facts, LeftOut
from pgo_collector.model.profile_types import TYPES

# To give back what is free takes longer the more is in use: tens of milliseconds with thousands of services,
# which is not worth it after each of them.
_WORTH_TRIMMING = 32


# What is written where there is nothing to merge.
_NOTHING = Written(0, "")


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge made: its etag, the facts of the profile, and what was written of it; None if there was no
    blob to take.
    """

    etag: str
    facts: Facts | None
    left_out: tuple[LeftOut, ...]
    written: Written = _NOTHING


@dataclass(frozen=True, slots=True)
class Reported:
    """A report as JSON, None if no blob could be read."""

    report: bytes | None
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class CandidateStats:
    """What is to be known of a merge before it is released.

    `overlap` is None where there is no release before it, or none that it can be compared with: one is
    damaged, or Go's compiler would refuse one of the two.
    """

    digest: str
    sha256: str
    size: int
    samples: int
    overlap: float | None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A stored blob that can't be read, and why."""

    reason: str


def inspect_all(blobs: Sequence[tuple[Path, str]]) -> list[Facts | Unreadable]:
    """The facts of stored blobs, each of a type.

    They are asked for together, since to ask for one takes longer than to read it.
    """
    contents = [_content(path) for path, _ in blobs]
    decoded = decode_all(
        (content for content in contents if isinstance(content, bytes)), STORED_LIMITS, _inspected
    )
    found: list[Facts | Unreadable] = []
    for (_, type_), content in zip(blobs, contents, strict=True):
        if isinstance(content, Unreadable):
            found.append(content)
            continue
        known = next(decoded)
        if isinstance(known, ProfileError):
            found.append(Unreadable(str(known)))
            continue
        header, digest, samples = known
        try:
            TYPES[type_](header)
        except NotACPUProfile as error:
            found.append(Unreadable(str(error)))
        else:
            found.append(Facts.of(header, digest.hex(), len(content), samples))
    return found


def _content(path: Path) -> bytes | Unreadable:
    try:
        return path.read_bytes()
    except OSError as error:
        return Unreadable(str(error))


def _inspected(batch: Batch) -> list[tuple[Header, bytes, int]]:
    samples = np.diff(batch.sample_offsets).tolist()
    return [*zip(batch.headers, batch.digests, samples, strict=True)]


@trim_after
def merge_blobs(chosen: ChosenBlobs, form: Rendition, part: Path, budget: Budget) -> Merged:
    """Merges blobs into the file `part`, in a form.

    What can't be read, is damaged, of another kind than most, or can't be weighed so is left out. If that
    is all, there is no file. Raises NotOfThisProfile, AnswerTooLarge or OSError.
    """
    collected = collect(chosen, form.weighting)
    if not len(collected.numbers):
        return Merged("", None, collected.left_out)
    profile = collected.merge(form.weighting, form.depth)
    if form.is_plain:
        protobuf = encode(profile)
        with refusing_large(_named(form)):
            budget.check(len(protobuf), "select fewer profiles, or take the format go")
        written = write_pieces(part, (compress(protobuf),))
        etag = digest = hashlib.sha256(protobuf).hexdigest()
    else:
        written = _form(profile, form, part, budget)
        digest = written.sha256
        etag = f"{digest}-{form.format.name}"
    facts = Facts.of(profile.header, digest, written.size, len(profile.samples))
    return Merged(etag, facts, collected.left_out, written)


def read_rows(chosen: ChosenBlobs) -> None:
    """Reads blobs ahead of the merges that want them."""
    ROW_CACHE.take_in(chosen.owner, chosen.blobs)
    ROW_CACHE.keep(chosen.owner)
    if len(chosen.blobs) >= _WORTH_TRIMMING:
        trim_heap()


def save_rows() -> None:
    """Puts what this process has read on disk, for the one after it. Raises OSError."""
    ROW_CACHE.save()


def drop_rows(owner: str, live: int) -> None:
    """Drops what is known of an owner's blobs, if there is far more of it than so many live ones need."""
    if len(ROW_CACHE.rows(owner).collection) > 2 * live:
        ROW_CACHE.drop(owner)


@trim_after
def report_blobs(
    chosen: ChosenBlobs, symbols: Path | None, released: Path | None, now_nanos: int, budget: Budget
) -> Reported:
    """Reports on the merge of blobs as of now; `symbols` is a file of a program's functions, `released` the
    profile to compare with, which plays no part if it can't be read or compared.

    Raises SymbolsUnreadable, or OSError for that file, and AnswerTooLarge. What a merge leaves out plays no
    part.
    """
    try:
        functions = None if symbols is None else parse_symbols(symbols.read_bytes())
    except SymbolsInvalid as error:
        raise SymbolsUnreadable(str(error)) from error
    collected = collect(chosen)
    if not len(collected.numbers):
        return Reported(None, collected.left_out)
    against = _released(released)
    of = collected.collection, collected.subjects, now_nanos
    with refusing_large("the report: "):
        try:
            made = report(*of, ReportOptions(functions, against), budget)
        except UnfitForFormat:
            made = report(*of, ReportOptions(functions), budget)
        return Reported(made.json(for_the_server(budget)), collected.left_out)


def _released(release: Path | None) -> Profile | None:
    """The profile of a release, if it can be read."""
    if release is not None:
        with suppress(ProfileError, OSError):
            return decode(release.read_bytes(), STORED_LIMITS)
    return None


@trim_after
def convert(merge: Path, digest: str, form: Rendition, part: Path, budget: Budget) -> str:
    """Writes a merge, the file whose bare protobuf has that digest, in another form; the sha256, hex.

    Raises NotOfThisProfile if it can't be written so, AnswerTooLarge, MergeDamaged, or OSError.
    """
    try:
        profile = decode(merge.read_bytes(), STORED_LIMITS)
    except ProfileError as error:
        raise MergeDamaged(str(error)) from error
    if profile.digest.hex() != digest:
        raise MergeDamaged("it has another content")
    return _form(profile, form, part, budget).sha256


def _form(profile: Profile, form: Rendition, part: Path, budget: Budget) -> Written:
    """Writes a profile in a form to the file `part`."""
    try:
        return write_pieces(part, form.format.pieces(apply_rules(profile, form.rules), budget))
    except OutputTooLarge as error:
        raise too_large(error, _named(form)) from error
    except ProfileError as error:
        raise NotOfThisProfile(f"{_named(form)}{error}") from error


def _named(form: Rendition) -> str:
    return f"format={form.format.name}: "


@trim_after
def candidate_stats(merge: Path, release: Path | None, budget: Budget) -> CandidateStats:
    """Looks at a merge and compares it with the last release; one that has too many calls to be compared
    within the budget is like one that the compiler refuses. Raises MergeDamaged, or OSError.
    """
    content = merge.read_bytes()
    try:
        profile = decode(content, STORED_LIMITS)
    except ProfileError as error:
        raise MergeDamaged(str(error)) from error
    alike, released = None, _released(release)
    if released is not None:
        with suppress(UnfitForFormat, OutputTooLarge):
            alike = overlap(profile, released, budget)
    sha256 = hashlib.sha256(content).hexdigest()
    return CandidateStats(profile.digest.hex(), sha256, len(content), len(profile.samples), alike)
