"""Events: what the outside is told of a profile that was stored, for the outbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pgo_collector.engine.facts import Facts
from pgo_collector.store.blobs import BlobName


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
