"""Run `pgo-agent latency`: show where programs on this machine wait, and write a pprof profile of it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from pgo_agent.commands.arguments import add_programs, programs_collector, seconds, send_programs
from pgo_agent.errors import NothingMatches
from pgo_agent.latency import (
    TRACKERS,
    Histogram,
    Recorder,
    Session,
    StackNamer,
    TrackerSettings,
    choose_tracker_backend,
    format_ns,
    parse_ns,
    tracker_backends,
    unmatched,
)
from pgo_agent.streams import say

_TICK_SECONDS = 1.0
_BAR = 40
_TOP = 5
_FRAMES = 16
_CLEAR = "\x1b[H\x1b[2J"
_SHOWN = {"p999": "p99.9"}
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"))


def add_latency(latency: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    latency.description = (
        "Track one kind of latency until Ctrl-C, or for --seconds. On a terminal, show the histogram and the "
        "stacks with the most delay, once a second; at the end, print both."
    )
    measures = "; ".join(f"{tracker.name}: {tracker.measures}" for tracker in TRACKERS.values())
    latency.add_argument("tracker", metavar="TRACKER", choices=[*TRACKERS], help=measures)
    add_tracking(latency)
    add_backend(latency, "--backend")
    latency.add_argument(
        "--seconds", metavar="SECONDS", type=seconds, help="how long to track (default: until Ctrl-C)"
    )
    latency.add_argument(
        "-o", "--output", metavar="OUT", type=Path, help="a file for a gzipped pprof profile"
    )
    latency.add_argument("--json", action="store_true", help="print counts and histogram as JSON at the end")
    add_programs(latency)
    latency.set_defaults(run=_latency)


def add_tracking(command: argparse.ArgumentParser) -> None:
    """Add the arguments that say what is reported: the threshold, the timeout and the filters."""
    command.add_argument(
        "--threshold",
        metavar="TIME",
        type=duration,
        default="1ms",
        help="events of this length have a stack, shorter ones are only counted; such as 5ms, 100us, 0 "
        "(default: %(default)s)",
    )
    command.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration,
        default="0",
        help="report what is in flight for longer than this, before it ends; stacks are then taken when it "
        "begins, which costs more (default: none)",
    )
    command.add_argument(
        "--comm",
        metavar="NAME",
        action="append",
        default=[],
        help="only threads of this name; again for more",
    )
    command.add_argument(
        "--executable",
        metavar="PROGRAM",
        action="append",
        default=[],
        help="only processes of this program, by path or file name; repeatable",
    )
    command.add_argument(
        "--pid",
        metavar="PID",
        type=int,
        action="append",
        default=[],
        help="only this process and those that it forks; repeatable",
    )
    command.add_argument(
        "--cgroup",
        metavar="PATH",
        action="append",
        default=[],
        help="only processes in this cgroup of version 2, a path as in /proc/PID/cgroup; repeatable",
    )
    able = ", ".join(tracker.name for tracker in TRACKERS.values() if tracker.waking)
    command.add_argument(
        "--wakers", action="store_true", help=f"{able}: add the stack of who woke the thread to each stack"
    )


def add_backend(command: argparse._ActionsContainer, option: str) -> None:
    """Add the argument that says what runs the trackers."""
    command.add_argument(
        option,
        choices=[*tracker_backends()],
        help="what runs the trackers in the kernel (default: bcc, and where that can't work, bpftrace)",
    )


def duration(text: str) -> str:
    """Check a duration such as 5ms, for argparse. Raises ArgumentTypeError."""
    try:
        return format_ns(parse_ns(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def tracking(options: argparse.Namespace) -> TrackerSettings:
    """Return the settings in the arguments of `add_tracking`. Raises ValueError."""
    given = {
        "threshold": options.threshold,
        "timeout": options.timeout,
        "comms": options.comm,
        "executables": options.executable,
        "pids": options.pid,
        "cgroups": options.cgroup,
        "wakers": options.wakers,
    }
    return TrackerSettings.parse(given)


def _latency(options: argparse.Namespace) -> int:
    collector = programs_collector(options)
    backend = choose_tracker_backend(options.backend)
    settings = tracking(options)
    session = Session(TRACKERS[options.tracker], settings, backend)
    session.start()
    missing = [*unmatched(settings)]
    for text in missing:  # it may still come
        say(f"pgo-agent: {text}")
    recorder = Recorder(options.tracker)  # its time begins, before the first tick
    session.listen(recorder)
    view = _View(session, recorder)
    try:
        deadline = time.monotonic() + (options.seconds or float("inf"))
        while session.is_running and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _TICK_SECONDS))
            if sys.stdout.isatty() and not options.json:
                print(_CLEAR + view.text(), flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        session.stop()
    if session.failure:
        raise session.failure
    if missing and not recorder.counts.as_json()["seen"]:
        raise NothingMatches(missing)
    if options.output:
        options.output.write_bytes(recorder.profile())
    sent = {"programs": send_programs(collector, recorder.stacks())} if collector else {}
    if options.json:
        counted = recorder.counts.as_json() | recorder.histogram.as_json()
        print(json.dumps({"tracker": options.tracker, **counted, **sent}, indent=2))
    else:
        print((_CLEAR if sys.stdout.isatty() else "") + view.text())
    return 0


class _View:
    """Terminal view of a tracker."""

    def __init__(self, session: Session, recorder: Recorder) -> None:
        self._session, self._recorder = session, recorder
        self._namer = StackNamer()

    def text(self) -> str:
        """Return counts, histogram and the stacks with the most delay."""
        counts = self._recorder.counts.as_json()
        threshold = format_ns(self._session.settings.threshold)
        head = (
            f"{self._session.tracker.name} of at least {threshold}: "
            f"{counts['seen']} seen = {counts['reported']} reported + {counts['below']} below the threshold "
            f"+ {counts['dropped']} dropped; {counts['lost_stacks']} stacks lost"
        )
        return "\n".join((head, "", *_bars(self._recorder.histogram), "", *self._stacks()))

    def _stacks(self) -> list[str]:
        longest = self._recorder.longest(_TOP)
        lines = []
        names = self._namer.names([delay.stack for delay, _, _ in longest])
        for (delay, count, total), functions in zip(longest, names, strict=True):
            labels = " ".join(f"{key}={value}" for key, value in delay.labels)
            lines.append(f"{_time(total)} in {count}: {delay.stack.comm} {delay.stack.pid} {labels}".rstrip())
            lines.extend(f"    {function}" for function in functions[:_FRAMES])
            if len(functions) > _FRAMES:
                lines.append(f"    … {len(functions) - _FRAMES} more")
        return lines


def _bars(histogram: Histogram) -> list[str]:
    """Return a line for each bucket from the first to the last that has any count, and the statistics."""
    found = histogram.as_json()
    if not found["count"]:
        return ["no events"]
    counts = histogram.counts
    most = max(counts.values())
    lines = []
    for bucket in range(min(counts), max(counts) + 1):
        count = counts.get(bucket, 0)
        low, high = _time((1 << bucket) >> 1), _time(1 << bucket)
        lines.append(f"{low:>8} - {high:<8} {count:>9} {'#' * -(-count * _BAR // most)}".rstrip())
    shown = ("min", "average", "p50", "p90", "p99", "p999", "max", "total")
    statistics = ", ".join(f"{_SHOWN.get(name, name)} {_time(found[name + '_ns'])}" for name in shown)
    return [*lines, statistics]


def _time(duration_ns: float) -> str:
    """Return a duration with three digits, such as 1.05 ms."""
    for size, unit in _UNITS:
        if duration_ns >= size:
            return (
                f"{duration_ns / size:.3g} {unit}"
                if duration_ns < 1000 * size
                else f"{duration_ns / size:.0f} {unit}"
            )
    return f"{duration_ns:.0f} ns"
