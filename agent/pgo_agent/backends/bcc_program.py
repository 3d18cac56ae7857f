"""Sample processes with bcc until SIGINT: `bcc_program.py FREQUENCY NAME...`.

The agent starts this as a program of its own, with the Python that has bcc. It prints JSON lists, one a line:

    ["started"]                                                once sampling has begun
    ["process", pid, parent, ...]                              when a process is first sampled, and the
                                                               processes that it was forked from, if known
    ["stack", pid, thread, comm, count, [kernel], [user]]      at the end; addresses, leaf first
    ["lost", count]                                            at the end, if samples were lost
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bcc import BPF, PerfSWConfig, PerfType  # type: ignore[import-not-found] # only the distribution's Python has it

# This file is run apart from its package, whose folder Python doesn't search.
sys.path.append(str(Path(__file__).parent))
from forks import family, forks_program  # type: ignore[import-not-found]

_DEPTH = 127  # the kernel's own bound, kernel.perf_event_max_stack
_DRAIN_SECONDS = 0.1

# Each sample carries its whole stack, in a ring buffer that is emptied ten times a second without wake-ups.
# Stack tables in the kernel, as bcc's own tools use, lose stacks whose hashes collide. A thread other than
# the main one can have any name, so the name of its process is looked up outside the kernel.
_TEXT = """
#include <uapi/linux/ptrace.h>
#include <uapi/linux/bpf_perf_event.h>

struct sample {
    u32 process;
    u32 thread;
    u64 comm[2];
    s64 kernel_bytes;
    s64 user_bytes;
    u64 kernel[DEPTH];
    u64 user[DEPTH];
};
BPF_PERCPU_ARRAY(scratch, struct sample, 1);
BPF_RINGBUF_OUTPUT(samples, 4096);
BPF_ARRAY(lost, u64, 1);

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
    sample->kernel_bytes = bpf_get_stack(context, sample->kernel, sizeof(sample->kernel), 0);
    sample->user_bytes = bpf_get_stack(context, sample->user, sizeof(sample->user), BPF_F_USER_STACK);
    if (samples.ringbuf_output(sample, sizeof(*sample), BPF_RB_NO_WAKEUP))
        lost.increment(zero);
    return 0;
}
"""


class _Sample(ctypes.Structure):
    _fields_ = (
        ("process", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("comm", ctypes.c_char * 16),
        ("kernel_bytes", ctypes.c_int64),
        ("user_bytes", ctypes.c_int64),
        ("kernel", ctypes.c_uint64 * _DEPTH),
        ("user", ctypes.c_uint64 * _DEPTH),
    )


class _Counts:
    """How often each stack was sampled, for processes with the wanted names."""

    def __init__(self, names: frozenset[bytes], forked: Any) -> None:
        self._names, self._forked = names, forked
        self._stacks: Counter[tuple[int, int, bytes, bytes, bytes]] = Counter()
        self._processes: set[int] = set()
        self._wanted: dict[int, bool] = {}

    def add(self, _cpu: int, at: int, _size: int) -> None:
        sample = ctypes.cast(at, ctypes.POINTER(_Sample)).contents
        process = sample.process
        if process not in self._wanted:
            self._wanted[process] = self._is_wanted(process, sample.comm)
        if not self._wanted[process]:
            return
        if process not in self._processes:
            self._processes.add(process)
            _print_list("process", *family(self._forked, process))
        kernel = bytes(sample.kernel)[: max(0, sample.kernel_bytes)]
        user = bytes(sample.user)[: max(0, sample.user_bytes)]
        self._stacks[process, sample.thread, sample.comm, kernel, user] += 1

    def forget_names(self) -> None:
        """Forget which processes have a wanted name: a process may run another program by now."""
        self._wanted.clear()

    def print_stacks(self) -> None:
        for (process, thread, comm, kernel, user), count in self._stacks.items():
            addresses = ([*memoryview(stack).cast("Q")] for stack in (kernel, user))
            _print_list("stack", process, thread, comm.decode(errors="surrogateescape"), count, *addresses)

    def _is_wanted(self, process: int, comm: bytes) -> bool:
        try:
            return Path(f"/proc/{process}/comm").read_bytes().rstrip(b"\n") in self._names
        except OSError:  # the process has ended; only the name of this thread is known
            return comm in self._names


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
    """Sample until SIGINT, then print the stacks."""
    stopped = False

    def stop(*_: object) -> None:  # an Event's lock may be held by what the signal interrupts
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGINT, stop)
    frequency, names = int(sys.argv[1]), [name.encode(errors="surrogateescape") for name in sys.argv[2:]]
    wanted = " || ".join(f"({_condition(name)})" for name in names)
    text = _TEXT.replace("WANTED", wanted).replace("DEPTH", str(_DEPTH))
    forks = forks_program()
    try:
        bpf = BPF(text=forks + text)
    except Exception as error:  # noqa: BLE001 - bcc raises no other; what it means is on standard error
        sys.exit(str(error))
    counts = _Counts(frozenset(names), bpf["forked"] if forks else None)
    bpf["samples"].open_ring_buffer(counts.add)
    bpf.attach_perf_event(
        ev_type=PerfType.SOFTWARE,
        ev_config=PerfSWConfig.CPU_CLOCK,
        fn_name="on_sample",
        sample_freq=frequency,
    )
    _print_list("started")
    while not stopped:
        time.sleep(_DRAIN_SECONDS)
        bpf.ring_buffer_consume()
        counts.forget_names()
    bpf.detach_perf_event(ev_type=PerfType.SOFTWARE, ev_config=PerfSWConfig.CPU_CLOCK)
    bpf.ring_buffer_consume()
    counts.print_stacks()
    lost = bpf["lost"][0].value
    if lost:
        _print_list("lost", lost)


if __name__ == "__main__":
    main()
