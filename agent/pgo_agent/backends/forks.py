"""Learn from the kernel which process was forked from which, in programs with bcc.

A forked process has its parent's memory map until it runs another program. Often it ends before its own can
be read, as that of a short connection does; its parent's is there. The programs that the agent runs by the
Python that has bcc import this file without its package, so it imports none of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_BTF = Path("/sys/kernel/btf/vmlinux")
_MAGIC, _STRUCT = 0xEB9F, 4
_HEADER, _TYPE, _MEMBER = struct.Struct("=HBBIIIII"), struct.Struct("=III"), struct.Struct("=III")
# The bytes that follow a type of a kind, and those for each of its members; other kinds have neither.
_REST = {1: (4, 0), 3: (12, 0), 4: (0, 12), 5: (0, 12), 6: (0, 8), 13: (0, 8), 14: (4, 0), 15: (0, 12)}
_REST |= {17: (4, 0), 19: (0, 12)}
_MOST_FOREBEARS = 16
# Raw tracepoints need no tracefs, which containers don't have. The table forgets what was used least.
_PROGRAM = """
BPF_TABLE("lru_hash", u32, u32, forked, 16384);

RAW_TRACEPOINT_PROBE(sched_process_fork) {
    u32 parent = bpf_get_current_pid_tgid() >> 32, child = 0;
    bpf_probe_read_kernel(&child, sizeof(child), (void *)ctx->args[1] + TGID);
    if (child != parent) // not a thread
        forked.update(&child, &parent);
    return 0;
}

RAW_TRACEPOINT_PROBE(sched_process_exec) {
    u32 process = bpf_get_current_pid_tgid() >> 32;
    forked.delete(&process);
    return 0;
}
"""


def forks_program(btf: Path = _BTF) -> str:
    """Return C that fills the table `forked`: parents by process; "" if the kernel has no types to ask."""
    try:
        offset = member_offset(btf.read_bytes(), "task_struct", "tgid")
    except (OSError, ValueError, struct.error):
        return ""
    return _PROGRAM.replace("TGID", str(offset))


def family(forked: Any, pid: int) -> Iterator[int]:
    """Yield a process, the one that it was forked from, and so on, by the table `forked` if any."""
    yield pid
    with suppress(KeyError):
        for _ in range(0 if forked is None else _MOST_FOREBEARS):
            pid = forked[forked.Key(pid)].value
            yield pid


def member_offset(btf: bytes, name: str, member: str) -> int:
    """Return the offset of a member in a struct (bytes), from the kernel's types.

    The format is https://docs.kernel.org/bpf/btf.html. Raises ValueError or struct.error if it isn't there.
    """
    magic, _, _, header_bytes, at, type_bytes, text, text_bytes = _HEADER.unpack_from(btf)
    if magic != _MAGIC:
        raise ValueError("not BTF of this machine")
    at, text = at + header_bytes, text + header_bytes
    texts = btf[text : text + text_bytes]
    wanted, wanted_member = (texts.index(b"\0" + word.encode() + b"\0") + 1 for word in (name, member))
    end = at + type_bytes
    while at < end:
        named, info, _ = _TYPE.unpack_from(btf, at)
        at += _TYPE.size
        kind, members = info >> 24 & 0x1F, info & 0xFFFF
        if kind == _STRUCT and named == wanted:
            for one in range(members):
                member_named, _, bits = _MEMBER.unpack_from(btf, at + one * _MEMBER.size)
                if member_named == wanted_member:
                    return int(bits & 0xFFFFFF) // 8
        fixed, each = _REST.get(kind, (0, 0))
        at += fixed + each * members
    raise ValueError(f"no {member} in {name}")
