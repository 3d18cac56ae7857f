"""Sample processes with bcc until SIGINT, or until the input ends: `bcc_program.py NAME...`.

The agent starts this as a program of its own, with the Python that has bcc. It compiles once, for any number
of captures, also at once. Each line of its input is a command for a capture, which has a number:

    ["begin", capture, frequency]
    ["end", capture]
    ["python", pid, numbers]                                a process runs CPython, which has its frames there

It prints JSON lists, one a line. Addresses of stacks are leaf first.

    ["ready"]                                               once it can sample
    ["begun", capture]                                      once sampling has begun
    ["process", capture, pid, parent, ...]                  when a process is first sampled, with those that
                                                            it was forked from, if known
    ["stack", capture, pid, thread, comm, count, [kernel], [user], copy, python]
                                                            while samples are taken; the copy is of registers
                                                            and stack, as `bcc_parts` reads it, and Python's
                                                            frames are as `bcc_python` has them; in base64
    ["lost", capture, count]                                if samples were lost
    ["ended", capture]                                      last
"""

from __future__ import annotations

import base64
import ctypes
import errno
import json
import os
import re
import select
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bcc import BPF, PerfSWConfig, PerfType  # type: ignore[import-not-found] # only the distribution's Python has it

# This file is run apart from its package, whose folder Python doesn't search.
sys.path.append(str(Path(__file__).parent))
from bcc_parts import (  # type: ignore[import-not-found]
    copies_program,
    family,
    forks_program,
    kernel_places,
)
from bcc_python import FRAME_BYTES, MOST_FRAMES, python_program  # type: ignore[import-not-found]

_DEPTH = 127  # the kernel's own bound, kernel.perf_event_max_stack
_DRAIN_SECONDS = 0.1
_IDLE_SECONDS = 1.0  # between two looks for a signal
_SECOND = 1_000_000_000  # ns
_CLOCK = (PerfType.SOFTWARE, PerfSWConfig.CPU_CLOCK)

_SMALLEST_RING, _LARGEST_RING, _RING_OF_A_CPU = 4 << 20, 64 << 20, 1 << 19

# Each sample carries its whole stack, in a ring buffer that is emptied ten times a second without wake-ups.
# Stack tables in the kernel, as bcc's own tools use, lose stacks whose hashes collide. A thread other than
# the main one can have any name, so the name of its process is looked up outside the kernel.
_TEXT = """
#include <uapi/linux/ptrace.h>
#ifdef __x86_64__
// As in uapi/linux/bpf_perf_event.h, which includes most of the kernel: to read that takes a second.
struct bpf_perf_event_data {
    struct pt_regs regs;
    u64 sample_period;
    u64 addr;
};
#else
#include <uapi/linux/bpf_perf_event.h>
#endif

struct sample {
    u32 process;
    u32 thread;
    u64 comm[2];
    u64 period; // ns
    s64 kernel_bytes;
    s64 user_bytes;
    u64 kernel[DEPTH];
    u64 user[DEPTH];
    u64 items;
    struct item python[MOST_FRAMES]; // as many as there are; then follows the copy
    struct copy copy;
};
BPF_PERCPU_ARRAY(scratch, struct sample, 1);
BPF_RINGBUF_OUTPUT(samples, RING_PAGES);
BPF_ARRAY(lost, u64, 1);
BPF_ARRAY(copied, u64, 1); // bytes since the ring buffer was emptied

int on_sample(struct bpf_perf_event_data *context) {
    int zero = 0;
    struct sample *sample = scratch.lookup(&zero);
    if (!sample)
        return 0;
    u64 id = bpf_get_current_pid_tgid();
    sample->process = id >> 32;
    sample->thread = id;
    bpf_get_current_comm(&sample->comm, sizeof(sample->comm));
    u64 *comm = sample->comm;
    if (sample->process == sample->thread && !(WANTED))
        return 0;
    sample->period = context->sample_period;
    sample->kernel_bytes = bpf_get_stack(context, sample->kernel, sizeof(sample->kernel), 0);
    sample->user_bytes = bpf_get_stack(context, sample->user, sizeof(sample->user), BPF_F_USER_STACK);
    u64 *bytes = copied.lookup(&zero);
    u32 stack_bytes = 0, items = 0;
    struct python *python = pythons.lookup(&sample->process);
    sample->items = 0;
    if (python && sample->user_bytes > 0) {
        python_frames(python->words, sample->python, &sample->items);
        items = sample->items > MOST_FRAMES ? 0 : sample->items;
    }
    struct copy *copy = (struct copy *)(sample->python + items);
    if (copy_registers(copy) && sample->user_bytes > 0 && bytes && *bytes < COPIED_BYTES) {
        stack_bytes = copy_stack(copy);
        __sync_fetch_and_add(bytes, stack_bytes);
    }
    if (samples.ringbuf_output(sample, offsetof(struct sample, python) + items * sizeof(struct item)
                               + offsetof(struct copy, stack) + stack_bytes, BPF_RB_NO_WAKEUP))
        lost.increment(zero);
    return 0;
}
"""


class _Sample(ctypes.Structure):
    _fields_ = (
        ("process", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("comm", ctypes.c_char * 16),
        ("period", ctypes.c_uint64),
        ("kernel_bytes", ctypes.c_int64),
        ("user_bytes", ctypes.c_int64),
        ("kernel", ctypes.c_uint64 * _DEPTH),
        ("user", ctypes.c_uint64 * _DEPTH),
        ("items", ctypes.c_uint64),
    )


_REGISTER_BYTES = 21 * 8  # of a copy, which its size follows, and then the stack


class _Capture:
    """How often each stack was sampled at one frequency, for processes with the wanted names."""

    def __init__(self, frequency: int, lost: int) -> None:
        self.frequency, self.lost_before = frequency, lost
        self._stacks: Counter[tuple[int, int, bytes, bytes, bytes, bytes, bytes]] = Counter()
        self._processes: set[int] = set()

    def add(self, sample: _Sample, copy: bytes, python: bytes) -> bool:
        """Count a sample; return whether it is the first of its process."""
        is_first = sample.process not in self._processes
        self._processes.add(sample.process)
        kernel = bytes(sample.kernel)[: max(0, sample.kernel_bytes)]
        user = bytes(sample.user)[: max(0, sample.user_bytes)]
        self._stacks[sample.process, sample.thread, sample.comm, kernel, user, copy, python] += 1
        return is_first

    def stacks(self, number: int) -> Iterator[str]:
        """Yield the lines of the stacks since the last call."""
        for (process, thread, comm, kernel, user, *more), count in self._stacks.items():
            addresses = ([*memoryview(stack).cast("Q")] for stack in (kernel, user))
            text, encoded = (
                comm.decode(errors="surrogateescape"),
                (base64.b64encode(of).decode() for of in more),
            )
            yield json.dumps(("stack", number, process, thread, text, count, *addresses, *encoded))
        self._stacks.clear()


class _Sampler:
    """The loaded C program, and the captures that run, by number."""

    def __init__(self, names: list[bytes]) -> None:
        self._names = frozenset(names)
        self._wanted: dict[int, bool] = {}
        self._captures: dict[int, _Capture] = {}
        self._attached: dict[int, Any] = {}  # what bcc knows of the events of a frequency
        wanted = " || ".join(f"({_condition(name)})" for name in names)
        forks = forks_program()
        wanted_bytes = min(max(_SMALLEST_RING, (os.cpu_count() or 1) * _RING_OF_A_CPU), _LARGEST_RING)
        ring = 1 << (wanted_bytes - 1).bit_length()
        # Half of it is for copies of stacks, so that there is always room for samples without.
        words = {"WANTED": wanted, "DEPTH": _DEPTH, "COPIED_BYTES": ring // 2, "RING_PAGES": ring >> 12}
        words |= {"MOST_FRAMES": MOST_FRAMES}
        text = re.sub(rf"\b({'|'.join(words)})\b", lambda found: str(words[found[0]]), _TEXT)
        with_python, without = (
            forks + copies_program() + python_program(fsbase) + text
            for fsbase in (kernel_places().get("FSBASE"), None)
        )
        try:
            self._bpf = _loaded(with_python)
        except Exception as error:  # bcc raises no other
            if os.strerror(errno.EPERM) in str(error):
                raise
            self._bpf = _loaded(without)  # an older kernel's verifier may give up on long loops
        ctypes.CDLL(None).malloc_trim(0)  # the compiler has freed 50 MiB
        self._forked = self._bpf["forked"] if forks else None
        self._bpf["samples"].open_ring_buffer(self._add)

    @property
    def is_idle(self) -> bool:
        return not self._captures

    def begin(self, number: int, frequency: int) -> None:
        self.drain()
        self._captures[number] = _Capture(frequency, self._bpf["lost"][0].value)
        if frequency not in self._attached:
            self._bpf.attach_perf_event(
                ev_type=PerfType.SOFTWARE,
                ev_config=PerfSWConfig.CPU_CLOCK,
                fn_name="on_sample",
                sample_freq=frequency,
            )
            # bcc keeps one set of events of a kind; here is one for each frequency.
            self._attached[frequency] = self._bpf.open_perf_events.pop(_CLOCK)
        _print_list("begun", number)

    def read_python(self, process: int, numbers: list[int]) -> None:
        """Read the Python frames of a process from now on."""
        table = self._bpf["pythons"]
        leaf = table.Leaf()
        leaf.words[: len(numbers)] = numbers[: len(leaf.words)]
        table[table.Key(process)] = leaf

    def end(self, number: int) -> None:
        capture = self._captures[number]
        if [one.frequency for one in self._captures.values()].count(capture.frequency) == 1:
            self._bpf.open_perf_events[_CLOCK] = self._attached.pop(capture.frequency)
            self._bpf.detach_perf_event(ev_type=PerfType.SOFTWARE, ev_config=PerfSWConfig.CPU_CLOCK)
        self.drain()
        del self._captures[number]
        if lost := self._bpf["lost"][0].value - capture.lost_before:
            _print_list("lost", number, lost)
        _print_list("ended", number)

    def drain(self) -> None:
        """Read the samples so far, and forget which processes have a wanted name: it may change."""
        self._bpf.ring_buffer_consume()
        self._wanted.clear()
        lines = [line for number, capture in self._captures.items() for line in capture.stacks(number)]
        if lines:  # at once: each time, the agent's thread has to wake up
            print("\n".join(lines), flush=True)  # noqa: T201 - printing is this program's interface
        self._bpf["copied"][0] = ctypes.c_uint64(0)

    def _add(self, _cpu: int, at: int, _size: int) -> None:
        sample = ctypes.cast(at, ctypes.POINTER(_Sample)).contents
        process = sample.process
        if process not in self._wanted:
            self._wanted[process] = self._is_wanted(process, sample.comm)
        if not self._wanted[process]:
            return
        python = ctypes.string_at(at + ctypes.sizeof(_Sample), sample.items * FRAME_BYTES)
        copied = at + ctypes.sizeof(_Sample) + len(python)
        stack_bytes = ctypes.c_uint64.from_address(copied + _REGISTER_BYTES).value
        copy = ctypes.string_at(copied, _REGISTER_BYTES + 8 + stack_bytes) if stack_bytes else b""
        for number, capture in self._captures.items():
            if sample.period == _SECOND // capture.frequency and capture.add(sample, copy, python):
                _print_list("process", number, *family(self._forked, process))

    def _is_wanted(self, process: int, comm: bytes) -> bool:
        try:
            return Path(f"/proc/{process}/comm").read_bytes().rstrip(b"\n") in self._names
        except OSError:  # the process has ended; only the name of this thread is known
            return comm in self._names


def _loaded(text: str) -> Any:
    """Return the program, compiled and accepted by the kernel."""
    bpf = BPF(text=text)
    bpf.load_func("on_sample", BPF.PERF_EVENT)
    return bpf


def _print_list(*items: object) -> None:
    print(json.dumps(items), flush=True)  # noqa: T201 - printing is this program's interface


def _condition(name: bytes) -> str:
    """Return a C expression that is true if the thread has this name."""
    halves = name.ljust(16, b"\0")
    return " && ".join(
        f"comm[{half}] == {int.from_bytes(halves[8 * half : 8 * half + 8], sys.byteorder)}ULL"
        for half in (0, 1)
    )


def main() -> None:
    """Sample as the commands say, until SIGINT or the end of the input."""
    stopped = False

    def stop(*_: object) -> None:  # an Event's lock may be held by what the signal interrupts
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGINT, stop)
    try:
        sampler = _Sampler([name.encode(errors="surrogateescape") for name in sys.argv[1:]])
    except Exception as error:  # noqa: BLE001 - bcc raises no other; what it means is on standard error
        sys.exit(str(error))
    _print_list("ready")
    commands_of: dict[str, Callable[..., None]] = {
        "begin": sampler.begin,
        "end": sampler.end,
        "python": sampler.read_python,
    }
    commands, unread = sys.stdin.fileno(), b""
    while not stopped:
        if select.select([commands], [], [], _IDLE_SECONDS if sampler.is_idle else _DRAIN_SECONDS)[0]:
            piece = os.read(commands, 1 << 16)
            if not piece:
                break
            *lines, unread = (unread + piece).split(b"\n")
            for line in lines:
                what, *numbers = json.loads(line)
                commands_of[what](*numbers)
        if not sampler.is_idle:
            sampler.drain()


if __name__ == "__main__":
    main()
