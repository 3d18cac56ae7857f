"""Unwind what a tracker copied of stacks, and know by the id of a copy which stack it was."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence

from pgo_agent.backends import continued, read_copy, unwind
from pgo_agent.latency.recorder import StackReader

_MOST_COPIES = 20_000


class CopiedStacks:
    """The stacks of a tracker's copies. Memory is bounded: what was copied long ago is copied again."""

    def __init__(self) -> None:
        self._reader = StackReader()
        self._stacks: dict[int, tuple[tuple[int, ...], bool]] = {}

    def read(self, families: Iterable[Sequence[int]]) -> None:
        """Read the memory maps of processes, as `StackReader.read` documents."""
        self._reader.read(families)

    def add(self, id_: int, pid: int, copy: str) -> None:
        """Unwind a copy, in base64. The memory map of its process has been read."""
        if len(self._stacks) >= _MOST_COPIES:
            del self._stacks[next(iter(self._stacks))]
        self._stacks[id_] = unwind(pid, self._reader.maps, *read_copy(base64.b64decode(copy)))

    def whole(self, id_: int, user: str) -> tuple[str, bool]:
        """Return the addresses of a stack as hex, and whether they are known to be all.

        The kernel followed those in `user`; `id_` is that of its copy, or 0.
        """
        if id_ not in self._stacks or not user:
            return user, not user
        followed = memoryview(bytes.fromhex(user)).cast("Q").tolist()
        addresses, is_whole = continued(self._stacks[id_], followed)
        return struct.pack(f"={len(addresses)}Q", *addresses).hex(), is_whole
