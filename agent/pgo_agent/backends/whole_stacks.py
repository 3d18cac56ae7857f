"""Find the whole stack of a thread: from what the kernel followed, and from a copy of registers and stack.

Everything here shares one `Unwinder`, so that each file is read once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from pgo_agent.backends.bcc_parts import can_copy, read_copy
from pgo_agent.native import (
    BY_CALL_FRAMES,
    BY_FRAME_POINTERS,
    MemoryMaps,
    PythonFrame,
    Segment,
    Unwinder,
    mixed,
)

_MOST_FOLLOWED = 127  # addresses: the kernel's own bound, kernel.perf_event_max_stack
_unwinder = Unwinder()
_users, _lock = 0, threading.Lock()


class WholeStack(NamedTuple):
    """A stack, leaf first: addresses, and Python functions in place of the C functions that run them.

    If it isn't whole, its outermost callers are missing.
    """

    frames: tuple[int | PythonFrame, ...]
    is_whole: bool
    has_python: bool = False


@contextmanager
def unwinding() -> Iterator[None]:
    """Let stacks be unwound in the block; the last block that ends closes the unwinder."""
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
    """Return how callers are found here, for people."""
    if not can_copy():
        return f"{BY_FRAME_POINTERS}: programs without them need x86-64, and Linux 5.15 with BTF"
    return how_unwound()


def how_unwound() -> str:
    """Return how callers are found where stacks can be copied, for people."""
    if _unwinder.obstacle:
        return f"{BY_FRAME_POINTERS}: for programs without them, {_unwinder.obstacle}"
    return BY_CALL_FRAMES


def whole_stack(
    pid: int, maps: MemoryMaps, followed: Sequence[int], copy: bytes, python: Sequence[Segment] = ()
) -> WholeStack:
    """Return the stack of a thread.

    The kernel `followed` these addresses by frame pointers. `copy` is what `read_copy` reads, or empty.
    `maps` has read the map of the process. `python` are the Python frames that the thread runs.
    """
    if not copy or not followed:
        return WholeStack(tuple(followed), not followed)
    pointers = list[int]()
    addresses, is_whole = _unwinder.unwind(pid, maps, *read_copy(copy), pointers)
    if python:
        is_compiled = partial(_is_compiled, maps, pid)
        stack = mixed(addresses, pointers, python, is_whole=is_whole, is_compiled=is_compiled)
        if stack:
            return WholeStack(stack, is_whole, has_python=True)
    return WholeStack(*continued((tuple(addresses), is_whole), followed))


def _is_compiled(maps: MemoryMaps, pid: int, address: int) -> bool:
    """Return whether the code at an address is no file's."""
    area = maps.area(pid, address)
    return area is not None and not (area.mapping and area.mapping.file)


def continued(found: tuple[tuple[int, ...], bool], followed: Sequence[int]) -> tuple[tuple[int, ...], bool]:
    """Return what `unwind` found, with what the kernel followed beyond it by frame pointers, if any.

    That is there if the stack is larger than its copy, but its functions have frame pointers, as Go's have:
    these lead to the start of the thread, unless there are more than the kernel follows.
    """
    addresses, is_whole = found
    if is_whole or addresses[-1] not in followed:
        return found
    beyond = followed[followed.index(addresses[-1]) + 1 :]
    return (*addresses, *beyond), bool(beyond) and len(followed) < _MOST_FOLLOWED


def can_unwind() -> bool:
    """Return whether `unwind` can use call frame information here."""
    return _unwinder.start()


def unwind(
    pid: int, maps: MemoryMaps, registers: Sequence[int], stack: bytes
) -> tuple[tuple[int, ...], bool]:
    """Return the addresses of a stack, leaf first, and whether that is all of it, as `Unwinder` documents.

    Call it in the block of an `unwinding`.
    """
    unwound, is_whole = _unwinder.unwind(pid, maps, registers, stack)
    return tuple(unwound), is_whole
