"""Renditions: in which format, by which rules, with which weights, latencies and names a merge is served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO, Literal, NamedTuple

from pprof_merge import FORMATS, Weighting
from pprof_merge.analysis import ALL_LATENCIES, LatencyRange, Rules
from pprof_merge.binary import BinaryLimits
from pprof_merge.formats import Format
from pprof_merge.merging import PLAIN_WEIGHTING

from pgo_collector.blobs.copies import Copies
from pgo_collector.blobs.storage import StoredObject
from pgo_collector.model.name_patterns import ALL_NAMES, NamePatterns

_PLAIN = "pprof"
# What the parameter `binary` says for none.
NO_BINARY = "none"


# A program that helps, one that only names functions and their lines, or one that knows no lines, either.
BinaryKind = Literal["program", "debug", "symbols"]


class StoredBinary(NamedTuple):
    """A program that was uploaded: its build id and SHA-256 in hex, its object, and the folder of copies."""

    build_id: str
    sha256: str
    kind: BinaryKind
    object: StoredObject
    copies: Copies

    def open(self) -> BinaryIO:
        """Open it as a file of the local disk. Raises FileNotFoundError, CopyDamaged and OSError."""
        storage, name = self.object
        return storage.open_local(name, self.sha256, self.copies, self.sha256)


class BinaryChoice(NamedTuple):
    """The programs of which one helps to write a merge in the format llvm, and the limits on reading it.

    It is the one with most samples of the merge, and none if there are none in any; if `is_named`, it is the
    only one, which must have samples.
    """

    stored: tuple[StoredBinary, ...] = ()
    limits: BinaryLimits = BinaryLimits()
    is_named: bool = False


NO_BINARIES = BinaryChoice()


@dataclass(frozen=True, slots=True)
class Rendition:
    """A format, the weights of the merge's profiles, and what is done to the merge before it is written: its
    samples outside a range of latencies are left out, patterns choose by names, and rules are applied. Paths
    are without the folders of `trim_path`. The format llvm may take a program to help. With `every_label`,
    samples keep the labels that number requests. `symbolize` gives addresses the names of uploaded programs,
    as views always have them.
    """

    format: Format
    rules: Rules
    weighting: Weighting = PLAIN_WEIGHTING
    latencies: LatencyRange = ALL_LATENCIES
    patterns: NamePatterns = ALL_NAMES
    binaries: BinaryChoice = NO_BINARIES
    every_label: bool = False
    trim_path: tuple[str, ...] = ()
    symbolize: bool = False

    @property
    def is_plain(self) -> bool:
        """Return whether it is the merge itself: as pprof, without rules or weights, with all samples."""
        return (
            self.format.name == _PLAIN
            and not self.rules
            and self.weighting.is_plain
            and self.latencies.is_everything
            and self.patterns.is_everything
            and not self.trim_path
            and not self.symbolize
        )

    @property
    def is_named(self) -> bool:
        """Return whether addresses get the names of uploaded programs."""
        return self.symbolize or self.format.is_view

    @property
    def depth(self) -> int | None:
        """Return how many locations of each stack it needs, from the leaf on.

        It is None for all, as rules and patterns need.
        """
        return None if self.rules or not self.patterns.is_everything else self.format.depth


# The merge itself, as it is stored.
PLAIN_RENDITION = Rendition(FORMATS[_PLAIN], Rules())
