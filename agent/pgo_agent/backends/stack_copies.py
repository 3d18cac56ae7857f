"""Copy a thread's registers and the top of its stack, in programs with bcc, so that they can be unwound.

The kernel follows frame pointers, which libc and most programs of distributions don't have. Outside of the
kernel, the same is unwound by call frame information. The programs that the agent runs by the Python that has
bcc import this file without its package, so it imports none of it.
"""

from __future__ import annotations

import platform
import struct
from pathlib import Path

_BTF = Path("/sys/kernel/btf/vmlinux")
_STACK_BYTES = 16 * 1024  # of a copy, at most
_CHUNK_BYTES = 1024
# struct copy, up to its stack: the kernel's struct pt_regs, and the bytes of the stack that follow.
_HEAD = struct.Struct("=21QQ")
# The registers in DWARF's order, figure 3.36 of https://gitlab.com/x86-psABIs/x86-64-ABI, by their places in
# struct pt_regs: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15, rip.
_PLACES = (10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16)
_STRUCT = """
struct copy {
    u64 registers[21]; // struct pt_regs
    u64 bytes;         // of the stack, from its pointer on
    u8 stack[STACK_BYTES];
};
#define COPY_HEAD (sizeof(struct copy) - STACK_BYTES)
"""
# The helpers, of Linux 5.15, are called by their numbers, which older versions of bcc don't know. A fault
# isn't served in a BPF program, so a copy ends at the first page that isn't there: mostly the stack's end.
_PROGRAM = """
static void *(*copied_thread)(void) = (void *)158;
static void *(*registers_of)(void *thread) = (void *)175;

// Copy the registers with which the thread entered the kernel; return whether they are of 64-bit code.
static inline int copy_registers(struct copy *copy) {
    copy->bytes = 0;
    if (bpf_probe_read_kernel(copy->registers, sizeof(copy->registers), registers_of(copied_thread())))
        return 0;
    return copy->registers[17] == 0x33; // the code segment
}

// Copy the stack, after the registers; return the size of the copy.
static inline u32 copy_stack(struct copy *copy) {
    u64 from = copy->registers[19];
    u32 bytes = 0;
    #pragma unroll
    for (u32 at = 0; at < STACK_BYTES; at += CHUNK_BYTES) {
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
_NO_PROGRAM = """
static inline int copy_registers(struct copy *copy) { copy->bytes = 0; return 0; }
static inline u32 copy_stack(struct copy *copy) { return 0; }
"""


def copies_program(btf: Path = _BTF) -> str:
    """Return C that defines `struct copy`, `copy_registers` and `copy_stack`.

    Where this kernel or machine can't copy them, `copy_registers` says that there is nothing to copy.
    """
    program = _PROGRAM if can_copy(btf) else _NO_PROGRAM
    text = _STRUCT + program
    return text.replace("STACK_BYTES", str(_STACK_BYTES)).replace("CHUNK_BYTES", str(_CHUNK_BYTES))


def can_copy(btf: Path = _BTF) -> bool:
    """Return whether programs with bcc can copy registers and stacks here."""
    try:
        return platform.machine() == "x86_64" and b"\0bpf_task_pt_regs\0" in btf.read_bytes()
    except OSError:
        return False


def read_copy(copy: bytes) -> tuple[list[int], bytes]:
    """Return the registers in DWARF's order, and the stack from its pointer on."""
    *registers, size = _HEAD.unpack_from(copy)
    return [registers[place] for place in _PLACES], copy[_HEAD.size : _HEAD.size + size]
