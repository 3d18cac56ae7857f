"""Who merges: one at a time of each service and type, since all want the same worker and the same blobs."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class Locks:
    """A lock for each service and type, as long as anybody has it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def of(self, service: str, type_: str) -> asyncio.Lock:
        """The lock of a service and type."""
        return self._locks.setdefault((service, type_), asyncio.Lock())
