"""Read call frame information of ELF files with libdw: how the caller's registers are found at an address.

The agent runs this as a program of its own, without its package. Whoever runs a program chooses what is in
its file, and libdw is C: so the agent opens the files, and this program has no rights but to read what it is
given. Its standard input is a socket of packets, each a JSON value. It says true once it is ready, or why it
isn't, and then answers each packet:

    [file]             with a file descriptor: true if the file has call frame information
    [file, address]    null, or what is so from there to `end`: [end, is_signal, return_register, expression,
                       {register: expression or null}]

The first expression computes the canonical frame address, the others the places of registers in the caller;
null is a register that has no value there. An expression is a list of DWARF's operations [code, number,
number]. Addresses are those in the file.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import resource
import socket
from contextlib import suppress

_NOBODY = 65534
_MOST_BYTES = 256 << 20  # of addresses; a browser has 20 MB of call frame information
_MOST_OPERATIONS = 64
_REQUEST_BYTES = 256
_ELF_C_READ = 1  # not memory-mapped: the file may become shorter meanwhile
_EV_CURRENT = 1
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_NAME = 15
_CAPABILITY_VERSION = 0x20080522
_REGISTERS = range(17)


class _Operation(ctypes.Structure):
    _fields_ = (
        ("atom", ctypes.c_uint8),
        ("number", ctypes.c_uint64),
        ("number2", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
    )


_Operations = ctypes.POINTER(_Operation)
_Memory = _Operation * 3


class _CallFrames:
    """The call frame information (.eh_frame) of an ELF file. Addresses are those in the file."""

    def __init__(self, dw: ctypes.CDLL, elf: ctypes.CDLL, file: int) -> None:
        self._dw = dw
        handle = elf.elf_begin(file, _ELF_C_READ, None)
        self._frames = dw.dwarf_getcfi_elf(handle) if handle else None

    @property
    def are_there(self) -> bool:
        """Return whether the file has any."""
        return bool(self._frames)

    def at(self, address: int) -> list[object] | None:
        """Return the answer for an address."""
        frame = ctypes.c_void_p()
        if not self._frames or self._dw.dwarf_cfi_addrframe(
            self._frames, ctypes.c_uint64(address), ctypes.byref(frame)
        ):
            return None
        try:
            return self._answer(frame)
        finally:
            _libc.free(frame)

    def _answer(self, frame: ctypes.c_void_p) -> list[object] | None:
        # Where it begins to be so, libdw gets wrong after DW_CFA_restore_state.
        end, is_signal = ctypes.c_uint64(), ctypes.c_bool()
        returns = self._dw.dwarf_frame_info(frame, None, ctypes.byref(end), ctypes.byref(is_signal))
        ops, count = _Operations(), ctypes.c_size_t()
        if self._dw.dwarf_frame_cfa(frame, ctypes.byref(ops), ctypes.byref(count)):
            return None
        address = _expression(ops, count.value)
        registers: dict[int, object] = {}
        memory = _Memory()
        for register in _REGISTERS:
            if self._dw.dwarf_frame_register(frame, register, memory, ctypes.byref(ops), ctypes.byref(count)):
                return None
            if count.value:
                registers[register] = _expression(ops, count.value)
            elif ops:
                registers[register] = None
        return [end.value, is_signal.value, returns, address, registers]


def _expression(ops: ctypes._Pointer[_Operation], count: int) -> list[list[int]]:
    return [[op.atom, op.number, op.number2] for op in ops[: min(count, _MOST_OPERATIONS)]]


def _libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """Return libdw and libelf. Raises OSError if they aren't installed."""
    dw, elf = ctypes.CDLL("libdw.so.1"), ctypes.CDLL("libelf.so.1")
    elf.elf_version(_EV_CURRENT)
    elf.elf_begin.restype = dw.dwarf_getcfi_elf.restype = ctypes.c_void_p
    elf.elf_begin.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
    elf.elf_end.argtypes = dw.dwarf_getcfi_elf.argtypes = dw.dwarf_cfi_end.argtypes = (ctypes.c_void_p,)
    dw.dwarf_cfi_addrframe.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)
    return dw, elf


_libc = ctypes.CDLL(None)
_libc.free.argtypes = (ctypes.c_void_p,)


def _give_up_rights() -> None:
    """Keep the socket and a little memory only: no rights, files or processes."""
    if not os.geteuid():
        with suppress(OSError):  # a user namespace may not have that user
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    _libc.capset(header, none)
    for limit, most in (
        (resource.RLIMIT_AS, _MOST_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most))


def main() -> None:
    """Answer until the agent closes the socket."""
    with socket.socket(fileno=os.dup(0)) as agent:
        try:
            dw, elf = _libraries()
        except OSError as error:
            agent.send(json.dumps(str(error)).encode())
            return
        _give_up_rights()
        with suppress(ConnectionError):
            agent.send(b"true")
            _answer(agent, dw, elf)


def _answer(agent: socket.socket, dw: ctypes.CDLL, elf: ctypes.CDLL) -> None:
    files: dict[int, _CallFrames] = {}
    while True:
        text, sent, _, _ = agent.recvmsg(_REQUEST_BYTES, socket.CMSG_SPACE(4))
        if not text:
            break
        number, *addresses = json.loads(text)
        for _, _, descriptor in sent:
            files[number] = _CallFrames(dw, elf, array.array("i", descriptor)[0])
        answer = files[number].at(*addresses) if addresses else files[number].are_there
        agent.send(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
