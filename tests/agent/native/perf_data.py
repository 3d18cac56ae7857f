"""Make recordings of hardware's events, which few test machines have, from recordings of the kernel's clock.

The format is `tools/perf/Documentation/perf.data-file-format.txt` of Linux, and `perf_event_attr` is that of
`include/uapi/linux/perf_event.h`.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

Branches = Sequence[tuple[int, int]]

_BRANCH_STACK, _IDENTIFIER = 1 << 11, 1 << 16
_SAMPLE = 9
_ATTRIBUTES, _DATA, _FEATURES = 24, 40, 72
_CYCLES = struct.pack("<Q", 0)


def recorded(path: Path, *options: str) -> Path:
    """Record a program with perf, and return the file. perf 6.1 can fail while BPF programs come and go."""
    command = ["perf", "record", "-q", "-B", "--no-bpf-event", *options, "-o", str(path)]
    busy = ["sh", "-c", "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; ls -R /usr/bin >/dev/null"]
    for _ in range(20):
        subprocess.run([*command, *busy], check=True)
        if not subprocess.run(["perf", "script", "-i", path], capture_output=True, check=False).returncode:
            return path
    pytest.skip("perf can't read what it has recorded here")


def of_hardware(recording: Path, name: bytes) -> None:
    """Rewrite a recording of cpu-clock as one of the CPU's cycles, whose name is of up to 9 bytes."""
    data = bytearray(recording.read_bytes())
    attribute = _attribute(data)
    data = data.replace(attribute, b"\0\0\0\0" + attribute[4:8] + _CYCLES + attribute[16:])
    recording.write_bytes(data.replace(b"cpu-clock", name.ljust(9, b"\0")))


def with_branches(recording: Path, stacks: Sequence[Branches] = (((0x1000, 0x2000),),), pid: int = 0) -> None:
    """Give each sample branch records, as perf record -b does: from where to where, the latest first.

    With a process id, the last sample of that process is there once for each of the stacks, and no other is.
    """
    data = recording.read_bytes()
    attribute = _attribute(data)
    (kinds,) = struct.unpack_from("<Q", attribute, 24)
    data = data.replace(attribute, attribute[:24] + struct.pack("<Q", kinds | _BRANCH_STACK) + attribute[32:])
    start, size = struct.unpack_from("<QQ", data, _DATA)
    records, sample, at = bytearray(), b"", start
    while at < start + size:
        type_, _, length = struct.unpack_from("<IHH", data, at)
        record = data[at : at + length]
        at += length
        if type_ != _SAMPLE:
            records += record
        elif not pid:
            records += _with_stack(record, stacks[0])
        elif struct.unpack_from("<I", record, 8 + (16 if kinds & _IDENTIFIER else 8))[0] == pid:
            sample = record
    assert sample or not pid
    records += b"".join(_with_stack(sample, stack) for stack in stacks if pid)
    features = bytearray(data[start + size :])
    for feature in range(sum(flags.bit_count() for flags in struct.unpack_from("<4Q", data, _FEATURES))):
        (offset,) = struct.unpack_from("<Q", features, 16 * feature)
        struct.pack_into("<Q", features, 16 * feature, offset + len(records) - size)
    header = bytearray(data[:start])
    struct.pack_into("<Q", header, _DATA + 8, len(records))
    recording.write_bytes(header + records + features)


def _with_stack(sample: bytes, stack: Branches) -> bytes:
    type_, misc, length = struct.unpack_from("<IHH", sample)
    branches = struct.pack("<Q", len(stack)) + b"".join(struct.pack("<3Q", *branch, 0) for branch in stack)
    return struct.pack("<IHH", type_, misc, length + len(branches)) + sample[8:] + branches


def _attribute(data: bytes | bytearray) -> bytes:
    (entry_size,) = struct.unpack_from("<Q", data, 16)
    (start,) = struct.unpack_from("<Q", data, _ATTRIBUTES)
    return bytes(data[start : start + entry_size - 16])
