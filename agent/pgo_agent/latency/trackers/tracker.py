"""Define what a tracker is: all that the agent, its documentation and the collector's pages know of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Labels = tuple[tuple[str, str], ...]  # (label, value) pairs


def no_labels(_number: int, _name: str, _operation: int) -> Labels:
    """Return no labels, for events that have none."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracker:
    """One kind of latency.

    For people: `title` is what the collector's pages call it, `measures` says from when until when, `stack`
    whose stack an event has, and `labels_text` (Markdown) what `labels` returns. `labels` turns the number,
    name and operation of an event into the labels of its sample.

    For the kernel: `tracepoints` are those that it needs. `program` is its C for bcc, which follows
    bpf/common.c; `script` is its bpftrace program, which follows bpf/common.bt, or is empty if bpftrace can't
    run the tracker.

    Some trackers need more than that:

    - `sent_as`: the type of its profiles in the collector, if that isn't its name.
    - `uses_interrupts`: whether `program` has stacks taken in an interrupt, by its table `interrupts`.
    - `waking`: the tracepoint of `take_waker` in `program`, which runs while the stacks of wakers are wanted.
    - `filtered_at_end`: operations whose process isn't known before they end, so filters apply then.
    - `not_counted`: beginnings of kernel functions; an event with one of them in its stack isn't counted.
    - `forgotten_after`: how long something may be in flight before it is forgotten (ns), 0 for ever.
    """

    name: str
    title: str
    measures: str
    stack: str
    tracepoints: tuple[str, ...]
    program: str
    script: str = ""
    labels: Callable[[int, str, int], Labels] = no_labels
    labels_text: str = ""
    sent_as: str = ""
    uses_interrupts: bool = False
    waking: str = ""
    filtered_at_end: tuple[int, ...] = ()
    not_counted: tuple[str, ...] = ()
    forgotten_after: int = 0

    @property
    def profile_type(self) -> str:
        """Return the type of its profiles in the collector."""
        return self.sent_as or self.name
