"""Tell what `perf record -o -` would of processes `json` and `pgo-agent-probe`, which run this very Python.

The format is the one that `pgo_agent.native.perf_stream` documents. One sample of each has no stack.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

_PID, _THREAD, _NS = 8571, 8571, 10_101_010
_TASK, _TIME, _CALLERS, _PERIOD = 2, 4, 1 << 5, 1 << 8
_KERNEL, _USER = (1 << 64) - 128, (1 << 64) - 512
_FILE = Path(sys.executable).resolve()


def event(kind: int, body: bytes, flags: int = 0) -> bytes:
    """Return an event; its body is padded to whole words, as the kernel's are."""
    body += bytes(-len(body) % 8)
    return struct.pack("<IHH", kind, flags, 8 + len(body)) + body


def told(kind: int, body: bytes, time: int, flags: int = 0) -> bytes:
    """Return an event other than a sample, which ends with its thread and time."""
    return event(kind, body + bytes(-len(body) % 8) + struct.pack("<IIQ", _PID, _THREAD, time), flags)


def stream() -> Iterator[bytes]:
    """Yield the parts of a stream."""
    yield struct.pack("<8sQ", b"PERFILE2", 16)
    attribute = bytearray(136)
    struct.pack_into("<Q", attribute, 24, _TASK | _TIME | _CALLERS | _PERIOD)
    yield event(64, bytes(attribute))
    start, size = 0x10000, _FILE.stat().st_size & -4096
    mapped = struct.pack("<IIQQQ24xII", _PID, _THREAD, start, size, 0, 5, 2)
    yield told(10, mapped + os.fsencode(_FILE) + b"\0", 1)
    for number, name in enumerate((b"json", b"pgo-agent-probe")):
        time = 10 * number
        yield told(3, struct.pack("<II", _PID, _THREAD) + name + b"\0", time + 2)
        # perf has one buffer for each CPU, so events aren't in order; these two are of the same stack.
        for callers, after in (
            ((_KERNEL, 0xFFFFFFFF81001234, _USER, start + size // 2, start + size // 2 + 64), 5),
            ((_KERNEL, 0xFFFFFFFF81001234, _USER, start + size // 2, start + size // 2 + 64), 3),
            ((), 4),
        ):
            head = struct.pack("<IIQQQ", _PID, _THREAD, time + after, _NS, len(callers))
            yield event(9, head + struct.pack(f"<{len(callers)}Q", *callers))
    yield event(68, b"")


def main() -> None:
    """Begin when told, and end by SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdin.readline()
    sys.stdout.buffer.write(b"".join(stream()))
    sys.stdout.buffer.flush()
    os.write(3, b"ack\n")
    signal.pause()


if __name__ == "__main__":
    main()
