"""What worker processes do: the heavy steps on files, as functions that pickle, and what they return.

Profiles travel between processes as file names. Only here are bodies inflated and decoded.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from pprof_merge import (
    Collection,
    Header,
    IncompatibleProfiles,
    Limits,
    Profile,
    ProfileError,
    SymbolsInvalid,
    UnfitForFormat,
    ValueType,
    Weighting,
    compress,
    decode,
    encode,
)
from pprof_merge.compression import GZIP_MAGIC
from pprof_merge.headers import check_compatible
from pprof_merge.heap import trim_after
from pprof_merge.overlap import overlap
from pprof_merge.profile import Int64s, Ints
from pprof_merge.ragged import first_appearance
from pprof_merge.report import Questions, Subject, report
from pprof_merge.rules import apply_rules
from pprof_merge.symbols import parse_symbols
from pprof_merge.weights import PLAIN

from pgo_collector.engine.forms import Form
from pgo_collector.engine.shelf import Shelf
from pgo_collector.engine.stored import StoredBlobs, StoredSeries
from pgo_collector.engine.types import TYPES
from pgo_collector.errors import MergeDamaged, NotACPUProfile, NotOfThisProfile, SymbolsUnreadable

# What is stored may have any size: it was within the limits when it came, or is a merge of such. The two
# that bound the time of odd layouts stay, or one damaged blob could hold up every merge for minutes.
_DEFAULTS = Limits()
STORED = Limits.none()._replace(
    irregular_fields=_DEFAULTS.irregular_fields,
    nested_messages=_DEFAULTS.nested_messages,
    inflated_bytes=1 << 30,
)

# What profiles measure that may be merged.
_Kind = tuple[ValueType, tuple[ValueType, ...]]

# What a merge depends on besides its blobs.
ENGINE = version("pprof-merge")

# What this process has read.
SHELF = Shelf(STORED, ENGINE)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the catalog knows of a profile. Times in ns, `size` in bytes of the file, `digest` in hex."""

    time_nanos: int
    duration_nanos: int
    digest: str
    size: int
    samples: int

    @classmethod
    def of(cls, profile: Profile, digest: str, size: int) -> Facts:
        """The facts of a profile whose bare protobuf has that digest and whose file that size."""
        return cls(
            profile.header.time_nanos, profile.header.duration_nanos, digest, size, len(profile.samples)
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A blob that a merge had to leave out, and why: it is damaged or gone, or else not of its kind."""

    blob: str
    reason: str
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is to be merged: blobs of one service and type, which are the rows' `owner`."""

    service: str
    type: str
    blobs: StoredBlobs

    @property
    def owner(self) -> str:
        """The name under which a worker keeps their rows."""
        return owner_of(self.service, self.type)


def owner_of(service: str, type_: str) -> str:
    """The name under which a worker keeps the rows of a service and type."""
    return f"{service}/{type_}"


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge made: its etag, and the facts of the profile; None if there was no blob to take."""

    etag: str
    facts: Facts | None
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Reported:
    """A report as JSON, None if no blob could be read."""

    report: bytes | None
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """What is to be known of a merge before it is released.

    `overlap` is None where there is no release before it, or none that it can be compared with: one is
    damaged, or Go's compiler would refuse one of the two.
    """

    digest: str
    sha256: str
    size: int
    samples: int
    overlap: float | None


def receive(part: Path, gzipped: Path, type_: str, limits: Limits) -> Facts:
    """As `receive_held`, for a body in a file; gzip is made in the file `gzipped` and takes its place.

    A worker may die at any point here and the call be repeated.
    """
    facts, packed = receive_held(part.read_bytes(), type_, limits)
    if packed is not None:
        gzipped.write_bytes(packed)
        gzipped.replace(part)
    return facts


def receive_held(body: bytes, type_: str, limits: Limits) -> tuple[Facts, bytes | None]:
    """Checks a body as it was received; the facts of what is to be stored, and that if the body isn't gzip.

    Raises ProfileError or NotACPUProfile.
    """
    profile = decode(body, limits)
    TYPES[type_](profile.header)
    packed = None if body.startswith(GZIP_MAGIC) else compress(body)
    return Facts.of(profile, profile.digest.hex(), len(packed or body)), packed


def inspect(blob: Path, type_: str) -> Facts:
    """The facts of a stored blob. Raises ProfileError, NotACPUProfile or OSError."""
    profile = decode(blob.read_bytes(), STORED)
    TYPES[type_](profile.header)
    return Facts.of(profile, profile.digest.hex(), blob.stat().st_size)


@trim_after
def merge_blobs(chosen: Chosen, form: Form, part: Path) -> Merged:
    """Merges blobs into the file `part`, in a form.

    What can't be read, is damaged, of another kind than most, or can't be weighed so is left out. If that
    is all, there is no file. Raises NotOfThisProfile or OSError.
    """
    collected = collect(chosen, form.weighting)
    if not len(collected.numbers):
        return Merged("", None, collected.left_out)
    profile = collected.merge(form.weighting)
    if form.is_plain:
        protobuf = encode(profile)
        content = compress(protobuf)
        etag = digest = hashlib.sha256(protobuf).hexdigest()
    else:
        content = _formed(profile, form)
        digest = hashlib.sha256(content).hexdigest()
        etag = f"{digest}-{form.format.name}"
    _write(part, content)
    return Merged(etag, Facts.of(profile, digest, len(content)), collected.left_out)


@trim_after
def read_rows(chosen: Chosen) -> None:
    """Reads blobs ahead of the merges that want them."""
    SHELF.take_in(chosen.owner, chosen.blobs)
    SHELF.keep(chosen.owner)


def save_rows() -> None:
    """Puts what this process has read on disk, for the one after it. Raises OSError."""
    SHELF.save()


def drop_rows(owner: str, live: int) -> None:
    """Drops what is known of an owner's blobs, if there is far more of it than so many live ones need."""
    if len(SHELF.rows(owner).collection) > 2 * live:
        SHELF.drop(owner)


@trim_after
def report_blobs(chosen: Chosen, symbols: Path | None, released: Path | None, now_nanos: int) -> Reported:
    """Reports on the merge of blobs as of now; `symbols` is a file of a program's functions, `released` the
    profile to compare with, which plays no part if it can't be read or compared.

    Raises SymbolsUnreadable, or OSError for that file. What a merge leaves out plays no part.
    """
    try:
        functions = None if symbols is None else parse_symbols(symbols.read_bytes())
    except SymbolsInvalid as error:
        raise SymbolsUnreadable(str(error)) from error
    collected = collect(chosen)
    if not len(collected.numbers):
        return Reported(None, collected.left_out)
    against = _released(released)
    try:
        made = report(collected.collection, collected.subjects, now_nanos, Questions(functions, against))
    except UnfitForFormat:
        made = report(collected.collection, collected.subjects, now_nanos, Questions(functions))
    return Reported(made.json(), collected.left_out)


def _released(release: Path | None) -> Profile | None:
    """The profile of a release, if it can be read."""
    if release is not None:
        with suppress(ProfileError, OSError):
            return decode(release.read_bytes(), STORED)
    return None


@dataclass(frozen=True, slots=True)
class Collected:
    """Blobs that were read: those that are fit to be merged were `taken`, and have these `numbers` in the
    collection.
    """

    collection: Collection
    numbers: Int64s
    taken: StoredBlobs
    left_out: tuple[LeftOut, ...]

    @property
    def blobs(self) -> list[str]:
        """Their names, in the order of the numbers."""
        return [self.taken.name(row) for row in range(len(self.taken))]

    @property
    def subjects(self) -> list[Subject]:
        """What a report is on."""
        return [*map(Subject, self.numbers.tolist(), self.blobs, self.labels)]

    @property
    def labels(self) -> list[dict[str, str]]:
        """Their series' labels."""
        return [dict(self.taken.series_of(row).labels) for row in range(len(self.taken))]

    def merge(self, weighting: Weighting = PLAIN) -> Profile:
        """Their merge. Raises as `Collection.merge` does."""
        is_all = len(self.numbers) == len(np.unique(self.numbers)) == len(self.collection)
        # The merge of all is the last one, and what has come since.
        numbers = None if is_all else self.numbers.tolist()
        if weighting.is_plain:
            return self.collection.merge(numbers)
        return self.collection.merge(self.numbers.tolist(), weighting, self.labels)


def collect(chosen: Chosen, weighting: Weighting = PLAIN) -> Collected:
    """What can be read of blobs, and be merged and weighed so."""
    rows, blobs = SHELF.rows(chosen.owner), chosen.blobs
    unreadable = SHELF.take_in(chosen.owner, blobs)
    left_out = [LeftOut(blobs.name(row), why, is_damaged=True) for row, why in unreadable.items()]
    numbers = rows.numbers(blobs)
    numbers[[*unreadable]] = -1
    read = np.flatnonzero(numbers >= 0)
    headers, header_of = rows.collection.headers(numbers[read])
    misfits = _misfits(headers, header_of, chosen.type)
    columns = read, header_of, rows.collection.durations(numbers[read])
    for row, header, duration in zip(*(column.tolist() for column in columns), strict=True):
        if unfit := misfits[header] or _unweighable(blobs.series_of(row), duration, weighting):
            left_out.append(LeftOut(blobs.name(row), unfit))
            numbers[row] = -1
    SHELF.keep(chosen.owner)
    fit = np.flatnonzero(numbers >= 0)
    return Collected(rows.collection, numbers[fit], blobs.take(fit), tuple(left_out))


def _misfits(headers: Sequence[Header], header_of: Ints, type_: str) -> list[str]:
    """Why profiles with each of the headers aren't to be merged, empty where they are: they aren't of the
    type, or don't go together with the kind that is most common; of kinds as common as another, that which
    came first. Profiles have the headers `header_of` (n,).
    """
    numbers, _ = first_appearance(header_of)
    in_turn = [headers[number] for number in numbers.tolist()]
    counts: Counter[_Kind] = Counter()
    for header, count in zip(in_turn, np.bincount(header_of)[numbers].tolist(), strict=True):
        counts[_kind(header)] += count
    most = max(counts, key=counts.__getitem__, default=None)
    common = next((header for header in in_turn if _kind(header) == most), None)
    return [_misfit(header, type_, common) for header in headers]


def _kind(header: Header) -> _Kind:
    return header.period_type, tuple(sorted(header.sample_types))


def _misfit(header: Header, type_: str, common: Header | None) -> str:
    """Why a profile isn't to be merged; empty if it is."""
    try:
        TYPES[type_](header)
        if common is not None:
            check_compatible(common, header)
    except (NotACPUProfile, IncompatibleProfiles) as error:
        return str(error)
    return ""


def _unweighable(series: StoredSeries, duration_nanos: int, weighting: Weighting) -> str:
    """Why a profile of a series can't be weighed so; empty if it can."""
    if weighting.label in series.dropped:
        return f"a roll-up dropped the label {weighting.label}, which it is to be weighed by"
    return weighting.refusal(duration_nanos)


@trim_after
def convert(merge: Path, digest: str, form: Form, part: Path) -> str:
    """Writes a merge, the file whose bare protobuf has that digest, in another form; the sha256, hex.

    Raises NotOfThisProfile if it can't be written so, MergeDamaged, or OSError.
    """
    try:
        profile = decode(merge.read_bytes(), STORED)
    except ProfileError as error:
        raise MergeDamaged(str(error)) from error
    if profile.digest.hex() != digest:
        raise MergeDamaged("it has another content")
    content = _formed(profile, form)
    _write(part, content)
    return hashlib.sha256(content).hexdigest()


def _formed(profile: Profile, form: Form) -> bytes:
    try:
        return form.format.write(apply_rules(profile, form.rules))
    except ProfileError as error:
        raise NotOfThisProfile(f"format={form.format.name}: {error}") from error


@trim_after
def survey(merge: Path, release: Path | None) -> Survey:
    """Looks at a merge and compares it with the last release. Raises MergeDamaged, or OSError."""
    content = merge.read_bytes()
    try:
        profile = decode(content, STORED)
    except ProfileError as error:
        raise MergeDamaged(str(error)) from error
    alike, released = None, _released(release)
    if released is not None:
        with suppress(UnfitForFormat):
            alike = overlap(profile, released)
    sha256 = hashlib.sha256(content).hexdigest()
    return Survey(profile.digest.hex(), sha256, len(content), len(profile.samples), alike)


def _write(part: Path, content: bytes) -> None:
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
