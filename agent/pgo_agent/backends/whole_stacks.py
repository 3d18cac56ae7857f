"""Find the whole stack of a thread: from what the kernel followed, and from a copy of registers and stack.

Everything here shares one `Unwinder`, so that each file is read once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pgo_agent.backends.stack_copies import can_copy, read_copy
from pgo_agent.native import BY_CALL_FRAMES, BY_FRAME_POINTERS, MemoryMaps, Unwinder

_unwinder = Unwinder()
_users, _lock = 0, threading.Lock()


@contextmanager
def unwinding() -> Iterator[None]:
    """Let `whole_stack` be called in the block; the last block that ends closes the unwinder."""
    global _users  # noqa: PLW0603 - as the unwinder is
    with _lock:
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _unwinder.close()


def how_followed() -> str:
    """Return how `whole_stack` has found callers, for people."""
    if not can_copy():
        return f"{BY_FRAME_POINTERS}: programs without them need x86-64, and Linux 5.15 with BTF"
    if _unwinder.obstacle:
        return f"{BY_FRAME_POINTERS}: for programs without them, {_unwinder.obstacle}"
    return BY_CALL_FRAMES


def whole_stack(
    pid: int, maps: MemoryMaps, followed: Sequence[int], copy: bytes
) -> tuple[tuple[int, ...], bool]:
    """Return the addresses of a stack, leaf first, and whether that is known to be all of it.

    The kernel `followed` these by frame pointers. `copy` is as `stack_copies` documents, or empty. `maps` has
    read the map of the process.
    """
    if not copy or not followed:
        return tuple(followed), not followed
    unwound, is_whole = _unwinder.unwind(pid, maps, *read_copy(copy))
    if not is_whole and unwound[-1] in followed:
        # The stack is larger than the copy, but its functions have frame pointers.
        unwound += followed[followed.index(unwound[-1]) + 1 :]
    return tuple(unwound), is_whole


def can_unwind() -> bool:
    """Return whether `unwind` can use call frame information here."""
    return _unwinder.start()


def unwind(
    pid: int, maps: MemoryMaps, registers: Sequence[int], stack: bytes
) -> tuple[tuple[int, ...], bool]:
    """Return the addresses of a stack, leaf first, and whether that is all of it, as `Unwinder` documents."""
    unwound, is_whole = _unwinder.unwind(pid, maps, registers, stack)
    return tuple(unwound), is_whole
