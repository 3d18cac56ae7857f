"""List the trackers: what each one measures, the tracepoints that it needs, and the labels of its events."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.latency.syscall_names import syscall_name

KERNEL_DEPTH = 64
USER_DEPTH = 127
ENTRIES = 10_240  # things in flight
_STACKS = 4096  # stacks that are kept from the begin to the end
_RING_PAGES = 2048  # of 4 KiB
_SOURCES = Path(__file__).with_name("bpf")
_COMMON = ("sched:sched_process_fork",)
_ARRIVAL = ("irq_vectors:irq_work_entry",)
_SOFTIRQS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
_WAITS = {1: "blocked", 2: "preempted"}
_TRANSFERS = {3: "receive", 4: "send", 5: "connect"}
_REQUESTS = {"R": "read", "W": "write", "D": "discard", "F": "flush"}
_MINOR_BITS = 20  # of a device number in the kernel

Labels = tuple[tuple[str, str], ...]  # (label, value) pairs


@dataclass(frozen=True, slots=True)
class Tracker:
    """One kind of latency. `measures` says from when until when, and `stack` whose stack an event has.

    `tracepoints` are those that it needs. `labels` turns the number, name and operation of an event into the
    labels of its sample.
    """

    name: str
    measures: str
    stack: str
    tracepoints: tuple[str, ...]
    labels: Callable[[int, str, int], Labels]

    @property
    def profile_type(self) -> str:
        """Return the type of its profiles in the collector, where `block` is Go's profile of other waits."""
        return "blockio" if self.name == "block" else self.name

    @property
    def uses_interrupts(self) -> bool:
        """Return whether stacks are taken in an interrupt after the switch to the thread."""
        return _ARRIVAL[0] in self.tracepoints

    def source(self) -> str:
        """Return the text of the tracker's C program."""
        files = ("common", *(("arrival",) if self.uses_interrupts else ()), self.name)
        text = "".join((_SOURCES / f"{file}.c").read_text() for file in files)
        sizes = {
            "KERNEL_DEPTH": KERNEL_DEPTH,
            "USER_DEPTH": USER_DEPTH,
            "ENTRIES": ENTRIES,
            "STACKS": _STACKS,
            "RING_PAGES": _RING_PAGES,
        }
        return re.sub(rf"\b({'|'.join(sizes)})\b", lambda found: str(sizes[found[1]]), text)


def _offcpu_labels(_number: int, _name: str, operation: int) -> Labels:
    return (("operation", _WAITS[operation]),)


def _no_labels(_number: int, _name: str, _operation: int) -> Labels:
    return ()


def _syscall_labels(number: int, _name: str, _operation: int) -> Labels:
    return (("syscall", syscall_name(number)),)


def _block_labels(number: int, name: str, _operation: int) -> Labels:
    operation = next((_REQUESTS[letter] for letter in name if letter in _REQUESTS), "other")
    return ("device", _device(number)), ("operation", operation)


def _irq_labels(number: int, name: str, _operation: int) -> Labels:
    return (("vector", name or str(number)),)


def _softirq_labels(number: int, _name: str, _operation: int) -> Labels:
    return (("vector", _SOFTIRQS[number] if number < len(_SOFTIRQS) else str(number)),)


def _network_labels(_number: int, name: str, operation: int) -> Labels:
    device = (("device", name),) if name else ()
    return (*device, ("operation", _TRANSFERS[operation]))


def _device(number: int) -> str:
    """Return the name of a block device, or its numbers if it is gone."""
    numbers = f"{number >> _MINOR_BITS}:{number & ((1 << _MINOR_BITS) - 1)}"
    try:
        return Path(f"/sys/dev/block/{numbers}").resolve(strict=True).name
    except OSError:
        return numbers


_ALL = (
    Tracker(
        "offcpu",
        "from a thread's leaving the CPU until it runs again",
        "the thread, as it waited",
        (*_COMMON, "sched:sched_switch", "sched:sched_waking", *_ARRIVAL),
        _offcpu_labels,
    ),
    Tracker(
        "wakeup",
        "from a thread's wake-up until it runs",
        "the thread, as it waited",
        (*_COMMON, "sched:sched_switch", "sched:sched_wakeup", *_ARRIVAL),
        _no_labels,
    ),
    Tracker(
        "syscall",
        "from a system call's entry until its exit",
        "the caller",
        (*_COMMON, "raw_syscalls:sys_enter", "raw_syscalls:sys_exit", "sched:sched_process_exit"),
        _syscall_labels,
    ),
    Tracker(
        "block",
        "from the issue of a request to a block device until its completion",
        "the thread that issued it",
        (*_COMMON, "block:block_rq_issue", "block:block_rq_complete"),
        _block_labels,
    ),
    Tracker(
        "irq",
        "from the entry of an interrupt handler until its exit",
        "what it interrupted",
        (*_COMMON, "irq:irq_handler_entry", "irq:irq_handler_exit"),
        _irq_labels,
    ),
    Tracker(
        "softirq",
        "from the entry of a soft interrupt's handler until its exit",
        "what it interrupted",
        (*_COMMON, "irq:softirq_entry", "irq:softirq_exit"),
        _softirq_labels,
    ),
    Tracker(
        "network",
        "packets from the device until they are read, and from the queue until the driver has them; "
        "connections until they are established",
        "the reader, the sender, or who connects",
        (
            *_COMMON,
            "net:netif_receive_skb",
            "skb:skb_copy_datagram_iovec",
            "skb:consume_skb",
            "net:net_dev_queue",
            "qdisc:qdisc_enqueue",
            "net:net_dev_xmit",
            "sock:inet_sock_set_state",
        ),
        _network_labels,
    ),
)
TRACKERS: Mapping[str, Tracker] = {tracker.name: tracker for tracker in _ALL}
