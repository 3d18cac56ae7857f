"""Read the stacks of another process's Python threads from its memory, at moments of its own choice.

`StackSampler` runs this file as a program, with the interpreter of the process that it is in. A reader in
that process would have to wait for the interpreter's lock, so it would look when others let go of it: as they
begin to wait. This one never pauses the process, and uses only what Python itself brings.

CPython's structures differ between versions. `Layout` finds them in this process, whose interpreter is the
same, by values that it knows. Then the program reads its own stack: if that isn't right, it says so and ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import select
import signal
import struct
import sys
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock, Thread
from types import CodeType, FrameType
from typing import Any

_WORD = struct.Struct("<Q")
_PAGE = 4096
_MAX_FRAMES = 512
_MAX_THREADS = 10_000
# In seconds: how lately a thread must have run; when a look is too late; how long to do without one.
_MOMENT, _LATE, _PATIENCE = 0.0003, 0.001, 1.0
_MAX_LENGTH = 1 << 20  # of a name or a table of lines, in bytes
_LOOKS_PER_CODE = 100  # after so many, codes and threads are read again: an address may have another

Place = tuple[str, str, int, int]  # file, qualified name, first line, line
Stack = tuple[Place, ...]  # innermost first


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Memory:
    """The memory of a process. What was read is kept until `forget`, so that a stack is of one moment."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        # PyDLL keeps the interpreter's lock, by which this process finds where it is.
        self._readv = ctypes.PyDLL(None, use_errno=True).process_vm_readv
        self._pages: dict[int, bytes] = {}

    def forget(self) -> None:
        """Read everything again from now on."""
        self._pages.clear()

    def read(self, address: int, size: int) -> bytes:
        """Return what is at an address now. Raises OSError if nothing is there."""
        buffer = ctypes.create_string_buffer(size)
        local, remote = _Vector(ctypes.addressof(buffer), size), _Vector(address, size)
        if self._readv(self._pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) != size:
            raise OSError(ctypes.get_errno(), "the memory can't be read")
        return buffer.raw

    def word(self, address: int) -> int:
        """Return the 8 bytes at an address, as a number, from the page that is kept."""
        page, offset = address & -_PAGE, address % _PAGE
        if offset > _PAGE - 8:
            return int.from_bytes(self.read(address, 8), "little")
        if page not in self._pages:
            self._pages[page] = self.read(page, _PAGE)
        return int(_WORD.unpack_from(self._pages[page], offset)[0])

    def live(self, address: int) -> int:
        """Return the 8 bytes at an address now."""
        return int.from_bytes(self.read(address, 8), "little")


class Layout:
    """Where CPython keeps its threads, frames and codes: offsets in bytes, found in this process."""

    def __init__(self, newest: Thread) -> None:
        """Find the offsets. `newest` is the thread that began last, and isn't this one."""
        self._own = Memory(os.getpid())
        thread, interpreter = _of_c("PyThreadState_Get"), _of_c("PyInterpreterState_Get")
        other = _of_c("PyInterpreterState_ThreadHead", interpreter)
        self.threads = self._find(other, interpreter, 65_536)
        self.next = self._find(thread, other, 1024)
        self.native_id = self._find(newest.native_id or 0, other, 1024)
        self._find_frames(thread, sys._getframe())  # noqa: SLF001 - documented, and there is no other way
        self._find_code()
        self.lock = self._find_lock(thread, interpreter)

    def _find(self, value: int, address: int, size: int, tag: int = 0) -> int:
        """Return the offset of the first word in a range that has a value, apart from the bits of `tag`."""
        for offset in range(0, size, 8):
            if self._own.live(address + offset) & ~tag == value:
                return offset
        raise LookupError("this interpreter has an unknown layout")

    def _find_frames(self, thread: int, caller: FrameType) -> None:
        own = self._own
        frame = sys._getframe()  # noqa: SLF001 - as above
        pointer = object.__basicsize__ + 8  # in a frame object, after its header and f_back
        internal, outer = own.live(id(frame) + pointer), own.live(id(caller) + pointer)
        start = id(frame.f_code) + CodeType.__basicsize__
        self.code = self._find(id(frame.f_code), internal, 96, tag=7)
        self.previous = self._find(outer, internal, 96)
        end = start + len(frame.f_code.co_code)
        words = ((offset, own.live(internal + offset)) for offset in range(0, 96, 8))
        self.instruction = next(offset for offset, word in words if start <= word < end)
        # This function's frame is the innermost one while the next line runs, since memmove isn't Python's.
        state = ctypes.create_string_buffer(1024)
        ctypes.memmove(state, thread, 1024)
        found = [word[0] for word in _WORD.iter_unpack(state.raw)]
        if internal in found:
            self.current: tuple[int, ...] = (found.index(internal) * 8,)
        else:
            self.current = self._find_through(found, internal)

    def _find_through(self, words: list[int], frame: int) -> tuple[int, ...]:
        """Return the two offsets of the frame, where another structure is between it and the thread's."""
        # That structure is on the C stack, and by now has the frame of this function or of one that it calls.
        for number, word in enumerate(words):
            for inner in (0, 8):
                with suppress(OSError):
                    called = self._own.live(word + inner)
                    for _ in range(4):
                        called = self._own.live(called + self.previous)
                        if called == frame:
                            return number * 8, inner
        raise LookupError("this interpreter has an unknown layout")

    def _find_code(self) -> None:
        code = self._find_code.__func__.__code__.replace(co_firstlineno=0x5EED123)  # type: ignore[attr-defined]
        size = CodeType.__basicsize__
        self.filename = self._find(id(code.co_filename), id(code), size)
        self.qualname = self._find(id(code.co_qualname), id(code), size)
        self.linetable = self._find(id(code.co_linetable), id(code), size)
        self.first_line = self._own.read(id(code), size).index(struct.pack("<i", code.co_firstlineno))
        self.instructions = size
        self.type = object.__basicsize__ - 8
        self.length = object.__basicsize__
        self.state = object.__basicsize__ + 16
        # Strings of one, two and four bytes a character, and of ASCII alone.
        texts = (chr(97) * 2, chr(233) * 2, chr(256) * 2, chr(0x10000) * 2)
        states = [int.from_bytes(self._own.read(id(text) + self.state, 4), "little") for text in texts]
        self.encoding = 0
        for state in states:
            self.encoding |= (state ^ states[0]) & (0xFFFF if "t" in sys.abiflags else 0xFF)
        headers = (sys.getsizeof("ab") - 3, *(sys.getsizeof(chr(233) * 2) - 3,) * 3)
        kinds = zip(
            states, headers, (1, 1, 2, 4), ("latin-1", "latin-1", "utf-16-le", "utf-32-le"), strict=True
        )
        self.kinds = {state & self.encoding: (header, width, codec) for state, header, width, codec in kinds}

    def _find_lock(self, thread: int, interpreter: int) -> tuple[bool, int, int]:
        """Return where the lock's holder is: through a pointer in the interpreter, or in the runtime."""
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            return False, 0, 0
        if sys.version_info < (3, 12):  # all interpreters of a process share one
            for offset in range(0, 65_536, 8):
                if self._held(runtime() + offset, thread):
                    return False, offset, 0
        for offset in range(0, 65_536, 8):
            for holder in (8, 16):  # after `interval`, and in a free-threaded build `enabled`
                if self._held(self._own.live(interpreter + offset) + holder, thread):
                    return True, offset, holder
        raise LookupError("this interpreter has an unknown layout")

    def _held(self, holder: int, thread: int) -> bool:
        with suppress(OSError):
            return self._own.read(holder, 12) == struct.pack("<Qi", thread, 1)
        return False


def _of_c(name: str, *addresses: int) -> int:
    """Call a function of Python's C interface that takes and returns addresses."""
    function = getattr(ctypes.pythonapi, name)
    function.restype = ctypes.c_void_p
    return function(*map(ctypes.c_void_p, addresses)) or 0


def runtime() -> int:
    """Return the address of the structure that has all of CPython's state."""
    return ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))


class Code:
    """A code object of the other process: its function, and the lines of its instructions."""

    def __init__(self, file: str, name: str, first_line: int, linetable: bytes, start: int) -> None:
        self.function = file, name, first_line
        self._start = start
        empty = (lambda: None).__code__
        lines = [*empty.replace(co_linetable=linetable, co_firstlineno=first_line).co_lines()]
        self._starts = [start for start, _, _ in lines]
        self._lines = [line for _, _, line in lines]

    def place(self, instruction: int) -> Place:
        """Return the function and the line of an instruction, by its address."""
        before = bisect_right(self._starts, instruction - self._start)
        return *self.function, (self._lines[before - 1] if before else None) or self.function[2]


class Stacks:
    """Read the stacks of threads from a process's memory."""

    def __init__(self, memory: Memory, layout: Layout, code_type: int) -> None:
        self._memory, self._layout, self._code_type = memory, layout, code_type
        self._codes: dict[int, Code | None] = {}
        self._known: dict[tuple[tuple[int, int], ...], Stack] = {}

    def forget(self) -> None:
        """Read codes again: one that is gone can have left its address to another."""
        self._codes.clear()
        self._known.clear()

    def stack(self, thread: int) -> Stack:
        """Return the frames of a thread, innermost first. Raises OSError if they changed meanwhile."""
        layout, word = self._layout, self._memory.word
        self._memory.forget()
        frame = thread
        for offset in layout.current:
            frame = word(frame + offset)
        frames: list[tuple[int, int]] = []
        while frame and len(frames) < _MAX_FRAMES:
            frames.append((word(frame + layout.code) & ~7, word(frame + layout.instruction)))
            frame = word(frame + layout.previous)
        raw = tuple(frames)
        if raw not in self._known:
            codes = ((self._code(address), instruction) for address, instruction in frames)
            self._known[raw] = tuple(
                code.place(instruction) for code, instruction in codes if code is not None
            )
        return self._known[raw]

    def _code(self, address: int) -> Code | None:
        """Return the code at an address; None for the frames by which C enters the interpreter."""
        if address not in self._codes:
            self._codes[address] = self._read_code(address)
        return self._codes[address]

    def _read_code(self, address: int) -> Code | None:
        layout, live = self._layout, self._memory.live
        if not address or live(address + layout.type) != self._code_type:
            return None
        file = self._text(live(address + layout.filename))
        if file == "<shim>":
            return None
        table = live(address + layout.linetable)
        linetable = self._memory.read(table + bytes.__basicsize__ - 1, self._length(table))
        first_line = int.from_bytes(self._memory.read(address + layout.first_line, 4), "little")
        name = self._text(live(address + layout.qualname))
        try:
            return Code(file, name, first_line, linetable, address + layout.instructions)
        except (OverflowError, TypeError, ValueError) as error:  # it was changed while it was read
            raise OSError("not a code") from error

    def _length(self, address: int) -> int:
        length = self._memory.live(address + self._layout.length)
        if length > _MAX_LENGTH:
            raise OSError("not a string")
        return length

    def _text(self, address: int) -> str:
        layout, memory = self._layout, self._memory
        state = int.from_bytes(memory.read(address + layout.state, 4), "little") & layout.encoding
        if state not in layout.kinds:
            raise OSError("not a string")
        header, width, codec = layout.kinds[state]
        return memory.read(address + header, self._length(address) * width).decode(codec, "replace")


class Clock:
    """The CPU time of a thread, and what the thread does. Raises OSError if it has ended."""

    def __init__(self, pid: int, native_id: int, counted: int) -> None:
        """Take a thread whose first `counted` ns of CPU time don't count."""
        task = f"/proc/{pid}/task/{native_id}"
        self._times = os.open(f"{task}/schedstat", os.O_RDONLY)
        self._status = os.open(f"{task}/status", os.O_RDONLY)
        self._read = b""
        self._counted, self._begun = counted, 0
        self.owed, self.ended = 0, False
        self.has_changed = (
            False  # whether the thread has begun to run, or has run, between the last two calls
        )

    def close(self) -> None:
        """Close its files."""
        os.close(self._times)
        os.close(self._status)

    def advance(self) -> bool:
        """Add the CPU time (ns) since the last call to `owed`, and return whether there was any."""
        try:
            times = os.pread(self._times, 64, 0)
        except ProcessLookupError:
            self.ended, self.has_changed = True, False
            return False
        self.has_changed = times != self._read
        if not self.has_changed:
            return False
        before, self._read = self._counted, times
        self._counted, _, self._begun = map(int, times.split())
        self.owed += self._counted - before
        return self._counted > before

    def computes(self, ran: bool) -> bool:
        """Return whether the thread runs, or would without this reader on its CPU; it `ran` a moment ago."""
        _, _, status = os.pread(self._status, 4096, 0).partition(b"\nState:\t")
        if ran or status[:1] != b"R":
            return status[:1] == b"R"
        waits, _, preempted = status.partition(b"\nvoluntary_ctxt_switches:\t")[2].partition(b"\nnonvol")
        return self._begun > int(waits) + int(preempted.split()[1])  # more often begun than stopped


class Sampling:
    """Count the stacks of a process's threads, and the CPU time for which each stands."""

    def __init__(self, process: dict[str, Any], layout: Layout) -> None:
        """Take a process as `target` describes it."""
        self._pid: int = process["pid"]
        self._memory = Memory(self._pid)
        self._layout = layout
        self._stacks = Stacks(self._memory, layout, process["code_type"])
        self._runtime: int = process["runtime"]
        self._memory.read(self._runtime, 8)  # raises PermissionError here if it may not read
        self._interpreters: list[int] = process["interpreters"]
        self._left_out: int = process["left_out"]
        self._clocks: dict[int, Clock] = {}
        self._looks, self._looked = 0, 0.0
        self.counts: defaultdict[Stack, list[int]] = defaultdict(lambda: [0, 0])
        self._used_before = self._used()
        self._forked = self._forked_thread()
        self._listed: list[int] = []  # the newest thread of each interpreter, when they were listed
        self._threads: list[tuple[int, int, Clock]] = []  # the lock's holder, the thread, and its clock

    def look(self) -> None:
        """Count the stacks of the threads that run."""
        newest = [self._newest(interpreter) for interpreter in self._interpreters]
        if self._looks % _LOOKS_PER_CODE == 0:
            self._stacks.forget()
            self._listed = []
        if newest != self._listed:
            self._list_threads()
            self._listed = newest
        self._looks += 1
        for clock, stack in self._running():
            if clock.owed:  # if not, Linux counts it later
                count = self.counts[stack]
                count[0] += 1
                count[1] += clock.owed
                clock.owed = 0

    def _running(self) -> Iterator[tuple[Clock, Stack]]:
        """Yield the clock and the stack of each thread that computes, with the lock or without.

        Threads that wait for a CPU don't. So this looks which ran in a moment, and then at what they do.
        """
        holders = {lock: self._held(lock) for lock in {lock for lock, _, _ in self._threads}}
        ran = {clock for lock, thread, clock in self._threads if clock.advance() or holders[lock] == thread}
        began = time.monotonic()
        time.sleep(_MOMENT)
        # If this reader got its CPU late, then often because the process had just let go of it.
        if time.monotonic() - began > _LATE and began - self._looked < _PATIENCE:
            return
        # Also those that have begun meanwhile: else the beginning of what they compute would never be seen.
        advanced = {clock: clock.advance() for _, _, clock in self._threads}
        lately = [each for each in self._threads if each[2] in ran or each[2].has_changed]
        if not lately:
            return
        self._looked = began
        # A thread can be in several interpreters. The one whose lock it holds comes first.
        for lock, thread, clock in sorted(lately, key=lambda each: self._held(each[0]) != each[1]):
            with suppress(OSError):  # it has ended, or its frames changed while they were read
                holds = self._held(lock) == thread
                if clock.computes(advanced[clock]):
                    stack = self._stacks.stack(thread)
                    if stack and (self._held(lock) == thread) == holds:
                        yield clock, stack

    def _list_threads(self) -> None:
        """Note the threads and their clocks. Some may be missed if others begin or end meanwhile."""
        self._threads.clear()
        for lock, thread, native_id in self._known_threads():
            with suppress(OSError):  # it has ended
                self._threads.append((lock, thread, self._clock(native_id)))
        listed = {id(clock) for _, _, clock in self._threads}
        for native_id, clock in [*self._clocks.items()]:
            if id(clock) not in listed:
                clock.advance()
                if clock.ended:
                    self._clocks.pop(native_id).close()

    def _clock(self, native_id: int) -> Clock:
        clock = self._clocks.get(native_id)
        if clock is None or clock.ended:
            number = self._pid if native_id == self._forked else native_id
            new = Clock(self._pid, number, self._used_before.pop(number, 0))
            if clock is not None:
                clock.close()
            clock = self._clocks[native_id] = new
        return clock

    def _used(self) -> dict[int, int]:
        """Return the CPU time (ns) of each thread until now, by Linux's number of it."""
        used: dict[int, int] = {}
        for task in os.listdir(f"/proc/{self._pid}/task"):  # noqa: PTH208 - pathlib takes longer to import
            with suppress(OSError), open(f"/proc/{self._pid}/task/{task}/schedstat") as file:  # noqa: PTH123
                used[int(task)] = int(file.read().split()[0])
        return used

    def _forked_thread(self) -> int:
        """Return the number that a forked child's only thread kept from before; 0 in other processes."""
        known = [native_id for _, _, native_id in self._known_threads()]
        return 0 if self._pid in known else next((id_ for id_ in known if id_ not in self._used_before), 0)

    def _known_threads(self) -> Iterator[tuple[int, int, int]]:
        """Yield the address of a thread's lock's holder, that of the thread, and Linux's number of it."""
        layout, word = self._layout, self._memory.word
        self._memory.forget()
        for interpreter in self._interpreters:
            with suppress(OSError):  # it has ended
                through, offset, holder = layout.lock
                lock = word(interpreter + offset) + holder if through else self._runtime + offset
                thread = word(interpreter + layout.threads)
                for _ in range(_MAX_THREADS):
                    if not thread:
                        break
                    native_id = word(thread + layout.native_id)
                    if native_id not in (0, self._left_out):
                        yield lock, thread, native_id
                    thread = word(thread + layout.next)

    def _newest(self, interpreter: int) -> int:
        """Return the address of the thread that an interpreter began last; 0 if the interpreter has ended."""
        with suppress(OSError):
            return self._memory.live(interpreter + self._layout.threads)
        return 0

    def _held(self, lock: int) -> int:
        """Return the address of the thread that holds a lock; 0 if none does."""
        thread, locked = struct.unpack("<Qi", self._memory.read(lock, 12))
        return thread if locked else 0

    def result(self) -> dict[str, Any]:
        """Return the places, and of each stack the numbers of its places, its looks and its CPU time (ns)."""
        places: dict[Place, int] = {}
        stacks = [
            ([places.setdefault(place, len(places)) for place in stack], *count)
            for stack, count in self.counts.items()
        ]
        return {"places": [*places], "stacks": stacks}


def target() -> dict[str, Any]:
    """Return what a reader needs to know of the process in which this is called."""
    interpreters = [_of_c("PyInterpreterState_Head")]
    while following := _of_c("PyInterpreterState_Next", interpreters[-1]):
        interpreters.append(following)
    return {
        "pid": os.getpid(),
        "left_out": threading.get_native_id(),
        "code_type": id(CodeType),
        "runtime": runtime(),
        "interpreters": interpreters,
    }


def _wait(until: Lock) -> None:
    until.acquire()


def checked_layout() -> Layout:
    """Return the layout by which this process can read the stack of a thread of its own."""
    until = Lock()
    with until:
        thread = Thread(target=_wait, args=(until,), daemon=True)
        thread.start()
        while (frame := _frames(thread)[0])[1] != "_wait" or frame[3] == frame[2]:
            time.sleep(0.001)
        layout = Layout(thread)
        address = _of_c("PyInterpreterState_ThreadHead", _of_c("PyInterpreterState_Get"))
        if Stacks(Memory(os.getpid()), layout, id(CodeType)).stack(address) != _frames(thread):
            raise LookupError("this interpreter has an unknown layout")
        return layout


def _frames(thread: Thread) -> Stack:
    """Return the stack of a thread of this process, as Python tells it."""
    frame: FrameType | None = sys._current_frames()[thread.ident or 0]  # noqa: SLF001 - as above
    places: list[Place] = []
    while frame is not None:
        code = frame.f_code
        places.append((code.co_filename, code.co_qualname, code.co_firstlineno, frame.f_lineno or 0))
        frame = frame.f_back
    return tuple(places)


def _short_slice() -> None:
    """Ask Linux for turns that are short and come soon, which it grants since 6.12."""
    number = {"x86_64": 314, "aarch64": 274}.get(os.uname().machine)
    if number is not None:
        size = 48  # of struct sched_attr: size, policy, flags, nice, priority, runtime (ns), deadline, period
        attributes = struct.pack("<IIQiIQQQ", size, 0, 0, 0, 0, 100_000, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)


def main() -> None:
    """Sample until standard input has another line or ends; then write what was counted as a line of JSON.

    The first line in describes the process. The first line out is "ready", or why it can't be read.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that is read decides when to end
    _short_slice()
    process = json.loads(sys.stdin.readline())
    try:
        sampling = Sampling(process, checked_layout())
    except (OSError, LookupError, AttributeError) as error:
        print(error)  # noqa: T201 - an answer
        return
    print("ready", flush=True)  # noqa: T201 - an answer
    # Pauses at random, so as not to keep step with what the process does.
    while not select.select([0], [], [], random.uniform(0, 2 * process["period"]))[0]:  # noqa: S311 - as said
        sampling.look()
        if os.getppid() != process["pid"]:
            return  # it has ended, and children that it had forked keep the input open
    print(json.dumps(sampling.result()))  # noqa: T201 - an answer


if __name__ == "__main__":
    main()
