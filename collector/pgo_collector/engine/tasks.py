"""Tasks of worker processes: the heavy steps of merges, reports and releases, and the results they return.

Profiles travel between processes as names of files and blobs. `validation` has the task for submitted
bodies, `queries` those for tables, timelines and flame graphs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pprof_merge import (
    Budget,
    OutputTooLarge,
    Profile,
    ProfileError,
    UnfitForFormat,
    Weighting,
    compress,
    decode,
    merge,
)
from pprof_merge.analysis import (
    KeptApart,
    ReportOptions,
    Rules,
    SymbolsInvalid,
    apply_rules,
    as_shown,
    focus_latency,
    overlap,
    parse_symbols,
    report,
    with_trimmed_paths,
)
from pprof_merge.arrays import Int64s
from pprof_merge.codec import StepTimes, encode_pieces, summaries
from pprof_merge.heap import trim_after
from pprof_merge.merging import PLAIN_WEIGHTING, Segment

from pgo_collector.blobs.storage import Storage, StoredObject
from pgo_collector.engine.binaries import chosen_binary, kept_with_help, written_pieces
from pgo_collector.engine.blob_columns import STORED_LIMITS
from pgo_collector.engine.merge_inputs import ENGINE, ROW_CACHE, ChosenBlobs, read_merge_inputs
from pgo_collector.engine.outputs import WrittenFile, refuse_too_large, server_budget, too_large, write_pieces
from pgo_collector.engine.packing import unpack_tight
from pgo_collector.engine.recent_profiles import RECENT
from pgo_collector.engine.renditions import NO_BINARIES, BinaryChoice, Rendition
from pgo_collector.engine.validation import check_cpu
from pgo_collector.engine.view_inputs import read_view_inputs
from pgo_collector.errors import (
    MergeDamaged,
    NotACPUProfile,
    NotOfThisProfile,
    StorageFails,
    SymbolsUnreadable,
)
from pgo_collector.model.facts import Facts, LeftOut
from pgo_collector.model.profile_types import CPU
from pgo_collector.traces.spans import span

# Stands for the file that isn't written if there is nothing to merge.
_NOTHING = WrittenFile(0, "")


@dataclass(frozen=True, slots=True)
class MergeResult:
    """A merge that was made: its etag, the facts of the profile, and the file that was written.

    `facts` is None, and there is no file, if no blob could be merged. `build_id` is that of the program that
    helped to write it; None if none did.
    """

    etag: str
    facts: Facts | None
    left_out: tuple[LeftOut, ...]
    written: WrittenFile = _NOTHING
    build_id: str | None = None


@dataclass(frozen=True, slots=True)
class ReportSubjects:
    """Subjects of a report besides the merge.

    `symbols` is a file with a program's symbols, and `released` the profile to compare with, which is ignored
    if it can't be read or compared. `kept_apart` are the profiles that weren't merged. Builds get the merge
    by the `rules`, with these weights, and in the format llvm with the help of one of the `binaries`.
    """

    symbols: Path | None
    released: StoredObject | None
    kept_apart: KeptApart | None
    rules: Rules = field(default_factory=Rules)
    binaries: BinaryChoice = NO_BINARIES
    weighting: Weighting = PLAIN_WEIGHTING


@dataclass(frozen=True, slots=True)
class ReportResult:
    """A report as JSON; None if no blob could be merged."""

    report: bytes | None
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class CandidateStats:
    """The facts that decide whether a merge is released.

    `digest` is the SHA-256 of the bare protobuf, `sha256` that of the file, both in hex; `size` is the file's
    in bytes. `overlap` is None if there is no release before, or if it can't be compared: it is damaged, or
    Go's compiler would refuse one of the two.
    """

    digest: str
    sha256: str
    size: int
    samples: int
    overlap: float | None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The reason why a stored blob can't be read."""

    reason: str


def inspect_all(storage: Storage, blobs: Sequence[tuple[str, str]]) -> list[Facts | Unreadable]:
    """Return the facts of stored blobs, given by name and type, or why one can't be read.

    Ask for many at once: asking a worker takes longer than reading one blob. Raises StorageFails.
    """
    contents = [*storage.read_all(name for name, _ in blobs)]
    decoded = summaries((content for content in contents if isinstance(content, bytes)), STORED_LIMITS)
    found: list[Facts | Unreadable] = []
    for (_, type_), content in zip(blobs, contents, strict=True):
        if isinstance(content, OSError):
            found.append(Unreadable(str(content)))
            continue
        known = next(decoded)
        if isinstance(known, ProfileError):
            found.append(Unreadable(str(known)))
            continue
        try:
            if type_ == CPU:
                check_cpu(known.header)
        except NotACPUProfile as error:
            found.append(Unreadable(str(error)))
        else:
            header, digest = known.header, known.digest.hex()
            size = len(content)
            found.append(Facts(header.time_nanos, header.duration_nanos, digest, size, known.samples))
    return found


@trim_after
def merge_blobs(chosen: ChosenBlobs, rendition: Rendition, part: Path, budget: Budget) -> MergeResult:
    """Merge blobs and write the rendition to the file `part`.

    A blob is left out if it can't be read, is damaged, is of another kind than most, or can't be weighed in
    this way. If all are left out, no file is written. Raises NotOfThisProfile, AnswerTooLarge or OSError.
    """
    profile, left_out = _summed(chosen, rendition)
    if profile is None:
        return MergeResult("", None, left_out)
    header, samples, build_id = profile.header, profile.columns.n_samples, None
    if rendition.is_plain:
        with span("engine", "encode"):
            pieces = encode_pieces(profile)
        del profile  # the memory of a large one is needed to join the pieces, and to compress them
        protobuf = b"".join(pieces)
        del pieces
        with refuse_too_large(_format_prefix(rendition)):
            budget.check(len(protobuf), "select fewer profiles, or take the format go")
        with span("engine", "compress and write", size=len(protobuf)):
            written = write_pieces(part, (compress(protobuf),))
        etag = digest = hashlib.sha256(protobuf).hexdigest()
    else:
        written, build_id = _write_rendition(profile, rendition, part, budget)
        digest = written.sha256
        etag = f"{digest}-{rendition.format.name}"
    facts = Facts(header.time_nanos, header.duration_nanos, digest, written.size, samples)
    return MergeResult(etag, facts, left_out, written, build_id)


def _summed(chosen: ChosenBlobs, rendition: Rendition) -> tuple[Profile | None, tuple[LeftOut, ...]]:
    """Return the sum of blobs for a rendition, None if none can be merged, and those that were left out.

    For people it is a view, unless they weigh the profiles themselves. Views have names, and so has a merge
    that is to be symbolized.
    """
    if rendition.format.is_view and rendition.weighting.is_plain:
        shown = read_view_inputs(chosen, lambda _: None, every_label=rendition.every_label)
        with span("engine", "sum", profiles=shown.profiles):
            return shown.merge(rendition.depth) if shown.profiles else None, shown.left_out
    inputs = read_merge_inputs(chosen, rendition.weighting, every_label=rendition.every_label)
    if not len(inputs.numbers):
        return None, inputs.left_out
    with span("engine", "sum", profiles=len(inputs.numbers)):
        profile = inputs.merge(rendition.weighting, rendition.depth)
    if rendition.symbolize:
        # Stacks may be equal now, and functions already there.
        return merge([chosen.symbols.named(profile)]), inputs.left_out
    return chosen.symbols.named(profile) if rendition.is_named else profile, inputs.left_out


def read_rows(chosen: ChosenBlobs) -> None:
    """Read blobs ahead of the merges that need them. A service isn't used more often by sending more."""
    ROW_CACHE.load(chosen.owner, chosen.blobs, is_use=False)
    _sum_ahead(chosen)
    ROW_CACHE.enforce_budget(chosen.owner)


def sum_rows(chosen: ChosenBlobs) -> None:
    """Add the rows of blobs up, ahead of the merges that need the sum."""
    _sum_ahead(chosen)
    ROW_CACHE.enforce_budget(chosen.owner)


def _sum_ahead(chosen: ChosenBlobs) -> None:
    rows = ROW_CACHE.rows(chosen.owner, is_use=False)
    numbers = rows.numbers(chosen.blobs)
    rows.collection.sum_ahead(numbers[numbers >= 0].tolist())


def missing_rows(chosen: ChosenBlobs) -> Int64s:
    """Return the rows of blobs (n,) that this worker hasn't read."""
    return ROW_CACHE.rows(chosen.owner).missing(chosen.blobs)


@trim_after
def absorb_rows(owner: str, part: Path) -> None:
    """Add rows that another process packed to be sent, from the file `part`, unless some are here by now.

    Anything else in the file is ignored: the blobs are then read here. Raises OSError.
    """
    match unpack_tight(part.read_bytes()):
        case [engine, Segment() as segment] if engine == ENGINE:
            try:
                if not segment.is_sound():
                    return
                ROW_CACHE.absorb(owner, segment)
            except Exception:  # noqa: BLE001 - rows of a rogue process may do anything, but stay
                ROW_CACHE.delete(owner)
            else:
                ROW_CACHE.enforce_budget(owner)


def save_rows() -> None:
    """Write the rows of this process to disk, for the next one. Raises OSError."""
    ROW_CACHE.save()


def drop_rows(owner: str, live: int) -> None:
    """Delete an owner's rows if they have more than twice as many profiles as there are `live` blobs.

    What was decoded for them and isn't in them yet is deleted, too: it may be of blobs that are gone.
    """
    RECENT.drop(owner)
    if len(ROW_CACHE.rows(owner).collection) > 2 * live:
        ROW_CACHE.delete(owner)


@trim_after
def report_blobs(
    chosen: ChosenBlobs, subjects: ReportSubjects, now_nanos: int, budget: Budget
) -> ReportResult:
    """Report on the merge of blobs as of `now_nanos`.

    Blobs that a merge leaves out are ignored. Raises SymbolsUnreadable, OSError for the file of symbols,
    StorageFails or AnswerTooLarge.
    """
    symbols, apart = subjects.symbols, subjects.kept_apart
    try:
        functions = None if symbols is None else parse_symbols(symbols.read_bytes())
    except SymbolsInvalid as error:
        raise SymbolsUnreadable(str(error)) from error
    inputs = read_merge_inputs(chosen)
    if not len(inputs.numbers):
        return ReportResult(None, inputs.left_out)
    against = _released(subjects.released)
    of = inputs.collection, inputs.reported_profiles, now_nanos
    options = ReportOptions(
        functions,
        against,
        kept_apart=apart,
        rules=subjects.rules,
        kept_by_llvm=partial(kept_with_help, subjects.binaries),
        weighed=None if subjects.weighting.is_plain else inputs.merge(subjects.weighting),
    )
    with span("engine", "report"), refuse_too_large("the report: "):
        try:
            made = report(*of, options, budget)
        except UnfitForFormat:
            made = report(*of, replace(options, against=None), budget)
        return ReportResult(made.json(server_budget(budget)), inputs.left_out)


def _released(release: StoredObject | None) -> Profile | None:
    """Return the profile of a release; None if there is none or it can't be read. Raises StorageFails."""
    try:
        return None if release is None else decode(release.read_bytes(), STORED_LIMITS)
    except StorageFails:
        raise
    except (ProfileError, OSError):
        return None


@trim_after
def convert(merge: Path | StoredObject, digest: str, rendition: Rendition, part: Path, budget: Budget) -> str:
    """Write a stored merge in another rendition to the file `part`; return that file's SHA-256 in hex.

    `digest` is the SHA-256 that the merge's bare protobuf must have. Raises MergeDamaged, NotOfThisProfile if
    the format can't hold the profile, AnswerTooLarge, or OSError.
    """
    try:
        times = StepTimes()
        with span("engine", "read merge") as reading:
            profile = decode(merge.read_bytes(), STORED_LIMITS, times)
            reading.divide(inflate=times.inflate, decode=times.decode)
    except ProfileError as error:
        raise MergeDamaged(str(error)) from error
    if profile.digest.hex() != digest:
        raise MergeDamaged("its content has another SHA-256 than when it was written")
    written, _ = _write_rendition(profile, rendition, part, budget)
    return written.sha256


def _write_rendition(
    profile: Profile, rendition: Rendition, part: Path, budget: Budget
) -> tuple[WrittenFile, str | None]:
    """Write a profile to the file `part`: a rendition's part of it, by its rules, in its format.

    Return the file and the build id of the program that helped, None if none did.
    """
    try:
        with span("engine", f"convert to {rendition.format.name}"):
            shown = as_shown(profile) if rendition.format.is_view else profile
            focused = rendition.patterns.apply(focus_latency(shown, rendition.latencies))
            ruled = with_trimmed_paths(apply_rules(focused, rendition.rules), rendition.trim_path)
            binary = chosen_binary(ruled, rendition.binaries)
            written = write_pieces(part, written_pieces(ruled, rendition, binary, budget))
            return written, None if binary is None else binary.build_id
    except OutputTooLarge as error:
        raise too_large(error, _format_prefix(rendition)) from error
    except ProfileError as error:
        raise NotOfThisProfile(f"{_format_prefix(rendition)}{error}") from error


def _format_prefix(rendition: Rendition) -> str:
    return f"format={rendition.format.name}: "


@trim_after
def candidate_stats(merge: Path, release: StoredObject | None, budget: Budget) -> CandidateStats:
    """Return the facts of a merge and its overlap with the last release. Raises MergeDamaged or OSError.

    The overlap is None, too, if there are too many calls to compare within the budget.
    """
    content = merge.read_bytes()
    try:
        profile = decode(content, STORED_LIMITS)
    except ProfileError as error:
        raise MergeDamaged(str(error)) from error
    shared, released = None, _released(release)
    if released is not None:
        with suppress(UnfitForFormat, OutputTooLarge):
            shared = overlap(profile, released, budget)
    sha256 = hashlib.sha256(content).hexdigest()
    return CandidateStats(profile.digest.hex(), sha256, len(content), len(profile.samples), shared)
