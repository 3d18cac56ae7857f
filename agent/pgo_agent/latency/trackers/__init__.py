"""Trackers: a description of each tracker, with its programs for the kernel, by subject.

`tracker` says what a description has. `scheduler` has off-CPU time and run-queue delay, `syscalls` system
calls, `devices` requests to disks, interrupts, packets and connections. Others use `TRACKERS`, `Tracker` and
`Labels`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgo_agent.latency.trackers import devices, scheduler, syscalls
from pgo_agent.latency.trackers.tracker import Labels, Tracker

__all__ = ["TRACKERS", "Labels", "Tracker"]

TRACKERS: Mapping[str, Tracker] = {
    tracker.name: tracker for tracker in (*scheduler.TRACKERS, *syscalls.TRACKERS, *devices.TRACKERS)
}
