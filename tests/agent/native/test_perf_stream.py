"""Read streams of perf: events in order, processes as they were then, and streams that nobody can trust."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterable

import pytest
from pgo_agent.native import PerfProcesses
from pgo_agent.native.perf_stream import Forked, Lost, Mapped, Named, Sampled, events

from tests.agent.stand_ins.perf_record import event, stream, told

_TYPES = 2 | 4 | 1 << 5 | 1 << 8 | 1 << 12 | 1 << 13  # task, time, callers, period, registers, stack
_REGISTERS = 0xFF0FFF
_BUILD_ID = bytes(range(20))


def written(*parts: bytes, types: int = _TYPES) -> io.BytesIO:
    attribute = bytearray(136)
    struct.pack_into("<Q", attribute, 24, types)
    struct.pack_into("<Q", attribute, 80, _REGISTERS)
    return io.BytesIO(struct.pack("<8sQ", b"PERFILE2", 16) + event(64, bytes(attribute)) + b"".join(parts))


def sample(
    pid: int, time: int, callers: Iterable[int], registers: Iterable[int] = (), stack: bytes = b""
) -> bytes:
    callers, registers = tuple(callers), tuple(registers)
    body = struct.pack("<IIQQQ", pid, pid + 1, time, 7, len(callers))
    body += struct.pack(f"<{len(callers)}Q", *callers)
    body += struct.pack(f"<Q{len(registers)}Q", 2 if registers else 0, *registers)
    body += struct.pack("<Q", len(stack)) + stack + (struct.pack("<Q", len(stack) - 8) if stack else b"")
    return event(9, body)


def mapping(start: int, file: bytes, *, protection: int = 5) -> bytes:
    body = struct.pack("<IIQQQB3x20sII", 1, 1, start, 0x2000, 0, 20, _BUILD_ID, protection, 2)
    return told(10, body + file + b"\0", 10, 1 << 14)


def test_events_are_in_order_of_time_and_have_what_was_recorded() -> None:
    # A round of perf's is older than the round after the next.
    parts = (
        sample(1, 30, (), range(100, 120), b"x" * 24),
        event(68, b""),
        told(7, struct.pack("<IIIIQ", 5, 1, 5, 1, 20), 20),
        mapping(0x1000, b"/bin/a"),
        mapping(0x9000, b"/bin/data", protection=1),
        event(68, b""),
        told(3, struct.pack("<II", 5, 5) + b"other\0", 40, 1 << 13),
        told(2, struct.pack("<QQ", 0, 6), 35),
        sample(2, 50, ((1 << 64) - 128, 0xFFFFFFFF80000000, (1 << 64) - 512, 0x1234)),
    )
    found = [*events(written(*parts))]
    in_dwarf_order = (100, 103, 102, 101, 104, 105, 106, 107, *range(112, 120), 108)
    assert found == [
        Mapped(1, 0x1000, 0x2000, 0, _BUILD_ID.hex(), "/bin/a"),
        Forked(5, 5, 1, 1),
        Sampled(1, 2, 7, (), (), in_dwarf_order, b"x" * 16),
        Lost(6),
        Named(5, 5, "other", is_exec=True),
        Sampled(2, 3, 7, (0xFFFFFFFF80000000,), (0x1234,), (), b""),
    ]


def test_streams_that_are_none_are_refused() -> None:
    whole = b"".join(stream())
    assert [*events(io.BytesIO(whole))]
    with pytest.raises(ValueError, match="not a stream of perf record"):
        [*events(io.BytesIO(b"PERFILE3" + whole[8:]))]
    with pytest.raises(ValueError, match="of a type that isn't known here, 0x400"):
        [*events(written(types=1 << 10))]
    for size in (1, 15, 20, 100, len(whole) - 4):
        with pytest.raises(ValueError, match=r"cut off|not a stream"):
            [*events(io.BytesIO(whole[:size]))]


@pytest.mark.parametrize("seed", range(20))
def test_changed_streams_are_read_or_refused(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same each time
    whole = written(
        *stream(), sample(1, 30, (1, 2, 3), range(100, 120), b"x" * 240), mapping(0x1000, b"/a")
    ).getvalue()
    for _ in range(200):
        changed = bytearray(whole)
        for _ in range(chance.choice((1, 3, 30))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        processes = PerfProcesses(lambda _pid, mapping: mapping)
        try:
            for one in events(io.BytesIO(bytes(changed))):
                if isinstance(one, Sampled):
                    processes.frames(one.pid, (), one.user)
                elif not isinstance(one, Lost):
                    processes.apply(one)
        except ValueError:
            continue


def test_processes_have_the_memory_of_that_moment() -> None:
    """A forked one has its parent's until either maps more, and none of it once it runs another program."""
    processes = PerfProcesses(lambda _pid, mapping: mapping)
    processes.apply(Named(1, 1, "server", is_exec=True))
    processes.apply(Mapped(1, 0x1000, 0x2000, 0, "aa", "/bin/a"))
    processes.apply(Forked(2, 2, 1, 1))
    assert processes.comm(2) == "server"
    assert processes.text(1) == processes.text(2) != ""
    processes.apply(Mapped(2, 0x2000, 0x800, 0x5000, "bb", "/lib/b"))
    assert processes.text(1) != processes.text(2)

    def places(pid: int) -> list[tuple[str, int]]:
        found = []
        for address in (0x1800, 0x2100, 0x2900):
            area = processes.area(pid, address)
            if area and area.mapping and area.mapping.file:  # not what was compiled
                found.append((area.mapping.file, area.offset(address)))
        return found

    assert places(1) == [("/bin/a", 0x800), ("/bin/a", 0x1100), ("/bin/a", 0x1900)]
    assert places(2) == [("/bin/a", 0x800), ("/lib/b", 0x5100), ("/bin/a", 0x1900)]
    processes.apply(Forked(2, 3, 2, 2))  # a thread
    assert (processes.comm(3), places(3)) == ("server", [])
    processes.apply(Mapped(2, 0x1000, 0x2000, 0, "", "//anon"))
    assert places(2) == []
    processes.apply(Named(2, 2, "other", is_exec=True))
    assert (processes.text(2), [*processes.areas(2)]) == ("", [])
    assert processes.comm(2) == "other"
