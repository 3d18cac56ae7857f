"""What worker processes do: the heavy steps on files, as functions that pickle, and what they return.

Profiles travel between processes as file names. Only here are bodies inflated and decoded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from pprof_merge import (
    Collection,
    Limits,
    Profile,
    ProfileError,
    SymbolsInvalid,
    UnfitForFormat,
    Weighting,
    compress,
    decode,
    encode,
)
from pprof_merge.compression import GZIP_MAGIC
from pprof_merge.overlap import overlap
from pprof_merge.report import Questions, report
from pprof_merge.rules import apply_rules
from pprof_merge.symbols import parse_symbols
from pprof_merge.weights import PLAIN

from pgo_collector.engine.cpu import check_cpu
from pgo_collector.engine.forms import Form
from pgo_collector.errors import MergeDamaged, NotACPUProfile, NotOfThisProfile, SymbolsUnreadable

# What is stored may have any size: it was within the limits when it came, or is a merge of such. The two
# that bound the time of odd layouts stay, or one damaged blob could hold up every merge for minutes.
_DEFAULTS = Limits()
STORED = replace(
    Limits.none(),
    irregular_fields=_DEFAULTS.irregular_fields,
    nested_messages=_DEFAULTS.nested_messages,
    inflated_bytes=1 << 30,
)

# A blob: name, file and digest.
Stored = tuple[str, Path, str]

# What a merge depends on besides its blobs.
ENGINE = version("pprof-merge")


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
    """A blob that a merge had to leave out, and why."""

    blob: str
    reason: str


@dataclass(frozen=True, slots=True)
class Collected:
    """Blobs that were read: `names` by number in the collection, of those that are fit to be merged."""

    collection: Collection
    names: dict[int, str]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge made: the facts of the profile, None if no blob could be read."""

    facts: Facts | None
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a weighted merge made: the sha256 of its file, hex, None if there was no blob to take."""

    digest: str | None
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


def reason(error: Exception) -> str:
    """What went wrong, without the path that an OSError puts in front of it."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def receive(part: Path, gzipped: Path, limits: Limits) -> Facts:
    """Checks a body as it was received, and makes gzip of a bare one, in the file `gzipped` on the way.

    Raises ProfileError or NotACPUProfile. A worker may die at any point here and the call be repeated.
    """
    body = part.read_bytes()
    profile = decode(body, limits)
    check_cpu(profile.header)
    if not body.startswith(GZIP_MAGIC):
        gzipped.write_bytes(compress(body))
        gzipped.replace(part)
    return Facts.of(profile, profile.digest.hex(), part.stat().st_size)


def inspect(blob: Path) -> Facts:
    """The facts of a stored blob. Raises ProfileError, NotACPUProfile or OSError."""
    profile = _read(blob)
    return Facts.of(profile, profile.digest.hex(), blob.stat().st_size)


def merge_blobs(blobs: Sequence[Stored], part: Path) -> Merged:
    """Merges blobs into the gzip file `part`.

    What can't be read, is damaged or of another kind is left out. If that is all, there is no file.
    """
    collected = _collect(blobs)
    if not collected.names:
        return Merged(None, collected.left_out)
    profile = collected.collection.merge(collected.names)
    protobuf = encode(profile)
    content = compress(protobuf)
    _write(part, content)
    digest = hashlib.sha256(protobuf).hexdigest()
    return Merged(Facts.of(profile, digest, len(content)), collected.left_out)


def weigh_blobs(blobs: Sequence[Stored], form: Form, part: Path) -> Weighed:
    """Merges blobs by the weights of a form into the file `part`, of that form; see `merge_blobs`.

    Left out is also what can't be weighed so. Raises NotOfThisProfile or OSError.
    """
    collected = _collect(blobs, form.weighting)
    if not collected.names:
        return Weighed(None, collected.left_out)
    content = _formed(collected.collection.merge(collected.names, form.weighting), form)
    _write(part, content)
    return Weighed(hashlib.sha256(content).hexdigest(), collected.left_out)


def report_blobs(
    blobs: Sequence[Stored], symbols: Path | None, released: Path | None, now_nanos: int
) -> Reported:
    """Reports on the merge of blobs as of now; `symbols` is a file of a program's functions, `released` the
    profile to compare with, which plays no part if it can't be read or compared.

    Raises SymbolsUnreadable, or OSError for that file. What a merge leaves out plays no part.
    """
    try:
        functions = None if symbols is None else parse_symbols(symbols.read_bytes())
    except SymbolsInvalid as error:
        raise SymbolsUnreadable(str(error)) from error
    collected = _collect(blobs)
    if not collected.names:
        return Reported(None, collected.left_out)
    against = _released(released)
    try:
        made = report(collected.collection, collected.names, now_nanos, Questions(functions, against))
    except UnfitForFormat:
        made = report(collected.collection, collected.names, now_nanos, Questions(functions))
    return Reported(made.json(), collected.left_out)


def _released(release: Path | None) -> Profile | None:
    """The profile of a release, if it can be read."""
    if release is not None:
        with suppress(ProfileError, OSError):
            return decode(release.read_bytes(), STORED)
    return None


def _collect(blobs: Sequence[Stored], weighting: Weighting = PLAIN) -> Collected:
    """What can be read of blobs, and be weighed so."""
    collection = Collection(STORED)
    unreadable: dict[str, str] = {}
    left_out: list[LeftOut] = []
    names: dict[int, str] = {}

    def contents() -> Iterator[bytes]:
        for name, path, _ in blobs:
            try:
                yield path.read_bytes()
            except OSError as error:
                unreadable[name] = reason(error)
                yield b""

    for (name, _, digest), taken in zip(blobs, collection.extend(contents()), strict=True):
        if isinstance(taken, ProfileError):
            left_out.append(LeftOut(name, unreadable.get(name, str(taken))))
        elif unfit := _unfit(collection, taken, digest, weighting):
            left_out.append(LeftOut(name, unfit))
        else:
            names[taken] = name
    return Collected(collection, names, tuple(left_out))


def _unfit(collection: Collection, number: int, digest: str, weighting: Weighting) -> str:
    """Why a profile isn't to be merged; empty if it is."""
    try:
        check_cpu(collection.header(number))
    except NotACPUProfile as error:
        return str(error)
    if collection.digest(number).hex() != digest:
        return "the content is not what its name says"
    return weighting.refusal(collection.header(number))


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


def _read(blob: Path) -> Profile:
    profile = decode(blob.read_bytes(), STORED)
    check_cpu(profile.header)
    return profile
