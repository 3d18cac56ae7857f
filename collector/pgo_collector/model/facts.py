"""Facts: what the catalog knows of a profile besides its series."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pprof_merge import Header

from pgo_collector.model.blob_names import BlobName


@dataclass(frozen=True, slots=True)
class Facts:
    """What the catalog knows of a profile. Times in ns, `size` in bytes of the file, `digest` in hex."""

    time_nanos: int
    duration_nanos: int
    digest: str
    size: int
    samples: int

    @classmethod
    def of(cls, header: Header, digest: str, size: int, samples: int) -> Facts:
        """The facts of a profile whose bare protobuf has that digest and whose file that size."""
        return cls(header.time_nanos, header.duration_nanos, digest, size, samples)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A blob that a merge had to leave out, and why, in few words: it is damaged or gone, or else not of its
    kind.
    """

    blob: str
    reason: str
    is_damaged: bool = False


class Event(NamedTuple):
    """What is to be delivered, as JSON; `id` stays the same however often it is."""

    id: str
    created_nanos: int
    body: str


# The events that are to be delivered when a profile is stored.
Announce = Callable[[BlobName, Facts], list[Event]]


def unannounced(name: BlobName, facts: Facts) -> list[Event]:  # noqa: ARG001 - see Announce
    """None, for a collector that tells nobody."""
    return []
