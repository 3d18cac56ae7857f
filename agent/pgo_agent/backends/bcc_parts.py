"""Share C between the programs with bcc: which process was forked from which, and copies of stacks.

A forked process has its parent's memory map until it runs another program. Often it ends before its own can
be read, as that of a short connection does; its parent's is there.

The kernel follows frame pointers, which libc and most programs of distributions don't have. So registers and
the top of the stack are copied, and unwound by call frame information outside of the kernel.

The programs that the agent runs by the Python that has bcc import this file without its package, so it
imports none of it.
"""

from __future__ import annotations

import platform
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
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
_FORKS = """
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
_STACK_BYTES = 16 * 1024  # of a copy, at most
_CHUNK_BYTES = 1024
# struct copy, up to its stack: the kernel's struct pt_regs, and the bytes of the stack that follow.
_HEAD = struct.Struct("=21QQ")
# The registers in DWARF's order, figure 3.36 of https://gitlab.com/x86-psABIs/x86-64-ABI, by their places in
# struct pt_regs: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15, rip.
_PLACES = (10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16)
_COPY = """
struct copy {
    u64 registers[21]; // struct pt_regs
    u64 bytes;         // of the stack, from its pointer on
    u8 stack[STACK_BYTES];
};
enum places { IP_PLACE = 16, CS_PLACE = 17, SP_PLACE = 19 }; // of registers
"""
# The helpers, of Linux 5.15, are called by their numbers, which older versions of bcc don't know. A fault
# isn't served in a BPF program, so a copy ends at the first page that isn't there: mostly the stack's end.
_COPIES = """
static void *(*copied_thread)(void) = (void *)158;
static void *(*registers_of)(void *thread) = (void *)175;

// Copy the registers with which the thread entered the kernel; return whether they are of 64-bit code.
static inline int copy_registers(struct copy *copy) {
    copy->bytes = 0;
    if (bpf_probe_read_kernel(copy->registers, sizeof(copy->registers), registers_of(copied_thread())))
        return 0;
    return copy->registers[CS_PLACE] == 0x33;
}

// Copy the stack, after the registers; return the size of the copy. Above the first function of the main
// thread are its arguments and environment, which aren't copied.
static inline u32 copy_stack(struct copy *copy) {
    u64 from = copy->registers[SP_PLACE], mm = 0, start = 0;
    u32 bytes = 0;
    bpf_probe_read_kernel(&mm, sizeof(mm), copied_thread() + MM);
    bpf_probe_read_kernel(&start, sizeof(start), (void *)mm + START_STACK);
    u64 most = start > from ? start - from : STACK_BYTES;
    #pragma unroll
    for (u32 at = 0; at < STACK_BYTES; at += CHUNK_BYTES) {
        if (at >= most)
            break;
        if (bpf_probe_read_user(copy->stack + at, CHUNK_BYTES, (void *)(from + at))) {
            u32 rest = -from & (CHUNK_BYTES - 1); // in the last page
            if (rest && !bpf_probe_read_user(copy->stack + at, rest, (void *)(from + at)))
                bytes = at + rest;
            break;
        }
        bytes = at + CHUNK_BYTES;
    }
    copy->bytes = bytes;
    return bytes;
}
"""
_NO_COPIES = """
static inline int copy_registers(struct copy *copy) { copy->bytes = 0; return 0; }
static inline u32 copy_stack(struct copy *copy) { return 0; }
"""


def forks_program(btf: Path = _BTF) -> str:
    """Return C that fills the table `forked`: parents by process; "" if the kernel has no types to ask."""
    try:
        offset = member_offset(btf.read_bytes(), "task_struct", "tgid")
    except (OSError, ValueError, struct.error):
        return ""
    return _FORKS.replace("TGID", str(offset))


def family(forked: Any, pid: int) -> Iterator[int]:
    """Yield a process, the one that it was forked from, and so on, by the table `forked` if any."""
    yield pid
    with suppress(KeyError):
        for _ in range(0 if forked is None else _MOST_FOREBEARS):
            pid = forked[forked.Key(pid)].value
            yield pid


def copies_program(btf: Path = _BTF) -> str:
    """Return C that defines `struct copy`, `copy_registers` and `copy_stack`.

    Where this kernel or machine can't copy them, `copy_registers` says that there is nothing to copy.
    """
    places = kernel_places(btf)
    text = _COPY + (_COPIES if places else _NO_COPIES)
    words = {"STACK_BYTES": _STACK_BYTES, "CHUNK_BYTES": _CHUNK_BYTES} | places
    return re.sub(rf"\b({'|'.join(words)})\b", lambda found: str(words[found[0]]), text)


def can_copy(btf: Path = _BTF) -> bool:
    """Return whether programs with bcc can copy registers and stacks here."""
    return bool(kernel_places(btf))


@cache
def kernel_places(btf: Path = _BTF) -> dict[str, int]:
    """Return the offsets of members of the kernel's structs; nothing if it can't copy stacks."""
    try:
        types = btf.read_bytes()
        if platform.machine() != "x86_64" or b"\0bpf_task_pt_regs\0" not in types:
            return {}
        # A struct without a name, all that is in mm_struct, has its start_stack.
        return {
            "MM": member_offset(types, "task_struct", "mm"),
            "START_STACK": member_offset(types, "", "start_stack"),
            "FSBASE": member_offset(types, "task_struct", "thread")
            + member_offset(types, "thread_struct", "fsbase"),
        }
    except (OSError, ValueError, struct.error):
        return {}


def read_copy(copy: bytes) -> tuple[list[int], bytes]:
    """Return the registers in DWARF's order, and the stack from its pointer on."""
    *registers, size = _HEAD.unpack_from(copy)
    return [registers[place] for place in _PLACES], copy[_HEAD.size : _HEAD.size + size]


def member_offset(btf: bytes, name: str, member: str) -> int:
    """Return the offset of a member in a struct (bytes), from the kernel's types.

    An empty name is that of structs without one. The format is https://docs.kernel.org/bpf/btf.html. Raises
    ValueError or struct.error if it isn't there.
    """
    magic, _, _, header_bytes, at, type_bytes, text, text_bytes = _HEADER.unpack_from(btf)
    if magic != _MAGIC:
        raise ValueError("not BTF of this machine")
    at, text = at + header_bytes, text + header_bytes
    texts = btf[text : text + text_bytes]
    wanted, wanted_member = (
        texts.index(b"\0" + word.encode() + b"\0") + 1 if word else 0 for word in (name, member)
    )
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
