"""Facts about one profile: the stored one, the one that a merge left out, and the events that announce it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pgo_collector.model.series import BlobName

# How many of the blobs that were left out an answer names. There may be thousands.
NAMED_LEFT_OUT = 10


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a stored profile in the catalog, besides its series.

    `time_nanos` is in ns since 1970, `size` in bytes of the file, and `digest` the bare protobuf's SHA-256 in
    hex.
    """

    time_nanos: int
    duration_nanos: int
    digest: str
    size: int
    samples: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A blob that a merge left out, and a short reason.

    A blob that `is_damaged` is damaged or gone; any other measures something else than the rest.
    """

    blob: str
    reason: str
    is_damaged: bool = False


class Event(NamedTuple):
    """An event to deliver: `body` is JSON, and `id` stays the same for every attempt."""

    id: str
    created_nanos: int
    body: str


# Returns the events to deliver when this profile is stored.
Announce = Callable[[BlobName, Facts], list[Event]]
