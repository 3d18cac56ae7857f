"""Programs that were uploaded: what one is, and a merge in the format llvm that is made with its help."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pprof_merge import FORMATS, Budget, Profile, UnfitForFormat
from pprof_merge.analysis import Rules, kept_by_llvm
from pprof_merge.binary import Binary, BinaryInvalid, BinaryLimits, llvm_with_binary
from pprof_merge.formats import most_sampled_build

from pgo_collector.blobs.copies import Copies
from pgo_collector.engine.renditions import BinaryChoice, BinaryKind, Rendition, StoredBinary
from pgo_collector.engine.symbols import make_table, path_of
from pgo_collector.errors import (
    BinariesOff,
    BinaryUnreadable,
    CopyDamaged,
    NoSuchBinary,
    NotOfThisProfile,
)

_PACKAGES = {"elftools": "pyelftools", "capstone": "capstone", "symbolic": "symbolic"}
_TOOL = "llvm-symbolizer"


class BinaryFacts(NamedTuple):
    """The build id and the SHA-256 of a program, in hex, its size in bytes, and what it has."""

    build_id: str
    sha256: str
    size: int
    kind: BinaryKind


def lacking() -> str:
    """Return what isn't installed that programs are read with, and how to get it; empty if nothing."""
    missing = [package for module, package in _PACKAGES.items() if find_spec(module) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (pip install 'pgo-collector[binary]')"
    return ""


def lacking_for_llvm() -> str:
    """Return what isn't installed that a program helps a merge in the format llvm with; empty if nothing."""
    if missing := lacking():
        return missing
    if shutil.which(_TOOL) is None:
        return f"{_TOOL} isn't on PATH: install LLVM's tools, such as Debian's package llvm"
    return ""


def inspect_binary(body: Path, limits: BinaryLimits, copies: Copies) -> BinaryFacts:
    """Return the facts of an uploaded program, and make its table of symbols; a task.

    What else it has is read when a merge is made with it. Raises BinaryUnreadable and OSError.
    """
    with body.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    kind: BinaryKind = "symbols"
    with suppress(BinaryInvalid):
        binary = Binary.at(str(body), limits)
        if binary.has_lines:
            # Where it can't help now, merges would be refused that need no help.
            kind = "program" if binary.has_code and not lacking_for_llvm() else "debug"
    try:
        build_id = make_table(digest, body, limits, copies)
    except BinaryInvalid as error:
        raise BinaryUnreadable(f"not a program that can be used: {error}") from error
    return BinaryFacts(build_id, digest, body.stat().st_size, kind)


def written_pieces(
    profile: Profile, rendition: Rendition, binary: StoredBinary | None, budget: Budget
) -> Iterator[bytes]:
    """Yield a profile in the rendition's format, with the help of a program if there is one.

    Raises ProfileError, NoSuchBinary, BinariesOff, NotOfThisProfile if the program can't help, and OSError.
    """
    if binary is None:
        yield from rendition.format.pieces(profile, budget)
        return
    try:
        file = binary.open()  # once it is open, retention may delete it
    except FileNotFoundError:
        raise NoSuchBinary(f"the program with the build id {binary.build_id} was just deleted") from None
    except CopyDamaged as error:
        raise NotOfThisProfile(
            f"format={rendition.format.name}: the program with the build id {binary.build_id} is damaged:"
            " upload it again, or ask /v1/merge with binary=none"
        ) from error
    with file:
        path = str(path_of(file))
        try:
            yield from llvm_with_binary(profile, path, rendition.binaries.limits, budget)
        except BinaryInvalid as error:
            raise NotOfThisProfile(
                f"format={rendition.format.name}: the program with the build id {binary.build_id} doesn't"
                f" help: {error}; delete it (/v1/binaries), or ask /v1/merge with binary=none"
            ) from error
        except ModuleNotFoundError as error:
            raise BinariesOff(f"{lacking_for_llvm()}; or ask /v1/merge with binary=none") from error


def kept_with_help(binaries: BinaryChoice, profile: Profile, budget: Budget) -> int:
    """Return the sum of the values that the format llvm keeps, with the program that `/v1/merge` chooses.

    Raises UnfitForFormat, OutputTooLarge and OSError.
    """
    binary = chosen_binary(profile, binaries)
    if binary is None:
        return kept_by_llvm(profile, budget)
    from pprof_merge.binary import kept_with_binary  # noqa: PLC0415 - an extra

    rendition = Rendition(FORMATS["llvm"], Rules(), binaries=binaries)
    try:
        return kept_with_binary(profile, written_pieces(profile, rendition, binary, budget), binary.build_id)
    except (NoSuchBinary, BinariesOff, NotOfThisProfile) as error:
        raise UnfitForFormat(str(error).removeprefix("format=llvm: ")) from error


def chosen_binary(profile: Profile, binaries: BinaryChoice) -> StoredBinary | None:
    """Return the program to use for a profile; None for none. Raises UnfitForFormat."""
    if binaries.is_named:
        return binaries.stored[0]
    by_build = {stored.build_id: stored for stored in binaries.stored}
    build_id = most_sampled_build(profile, by_build.keys()) if by_build else None
    return None if build_id is None else by_build[build_id]
