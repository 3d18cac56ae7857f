"""Parse and check what a tracker is to report: its threshold, timeout and filters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

_UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ns|us|ms|s)")
_LONGEST = 3600 * _UNITS["s"]
_LONGEST_COMM = 15  # bytes that the kernel keeps
_MOST_NAMES = 64
_LONGEST_PATH = 4096
_MOST_EVENTS = 1000


@dataclass(frozen=True, slots=True)
class TrackerSettings:
    """Bounds and filters of the events that a tracker reports. Times are in ns.

    An event of at least `threshold` has a stack and is reported; shorter ones are only counted. With a
    `timeout`, 0 for none, what is in flight for longer is reported with the stack that it waits in. `events`
    is the largest number of events a second in the stream.

    Empty filters let everything pass. `comms` are names of threads, `executables` paths or file names of
    programs, `pids` processes, which stand also for those that they fork, and `cgroups` paths as in
    /proc/PID/cgroup. A process passes if it is in `executables` or `pids`, if either is given.
    """

    threshold: int = _UNITS["ms"]
    timeout: int = 0
    comms: tuple[str, ...] = ()
    executables: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    cgroups: tuple[str, ...] = ()
    wakers: bool = False
    events: int = 1

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Return the settings in a JSON object, with defaults for the rest. Raises ValueError."""
        return cls().changed(given)

    def changed(self, given: Mapping[str, Any]) -> Self:
        """Return these settings with the ones of a JSON object in their place. Raises ValueError."""
        unknown = given.keys() - _PARSERS.keys()
        if unknown:
            raise ValueError(f"unknown setting {min(unknown)!r}; the settings are {', '.join(_PARSERS)}")
        parsed: dict[str, Any] = {name: _PARSERS[name](name, value) for name, value in given.items()}
        return replace(self, **parsed)

    def as_json(self) -> dict[str, Any]:
        """Return the settings as `parse` takes them."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return found | {"threshold": format_ns(self.threshold), "timeout": format_ns(self.timeout)}

    def for_program(self) -> dict[str, Any]:
        """Return the settings as latency_program.py takes them: with times in ns."""
        return asdict(self)


def parse_ns(text: str) -> int:
    """Return the nanoseconds in a duration such as 5ms, 250us or 1.5s. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if text != "0" and found is None:
        raise ValueError(f"not a duration such as 5ms, 250us or 1.5s: {text!r}")
    duration = round(float(found[1]) * _UNITS[found[2]]) if found else 0
    if duration > _LONGEST:
        raise ValueError(f"longer than an hour: {text!r}")
    return duration


def format_ns(duration: int) -> str:
    """Return a duration as `parse_ns` takes it, in the largest unit that divides it."""
    unit = next((unit for unit in ("s", "ms", "us") if duration and duration % _UNITS[unit] == 0), "ns")
    return f"{duration // _UNITS[unit]}{unit}"


def _duration(name: str, value: object) -> int:
    if not isinstance(value, str):
        raise ValueError(f'{name} must be a duration such as "5ms"')  # noqa: TRY004 - a value from outside
    try:
        return parse_ns(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _strings(name: str, value: object, longest: int) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MOST_NAMES:
        raise ValueError(f"{name} must be a list of at most {_MOST_NAMES}")
    for item in value:
        if not isinstance(item, str) or not 1 <= len(item.encode(errors="surrogateescape")) <= longest:
            raise ValueError(f"{name}: each must be a string of 1 to {longest} bytes")
        if "\0" in item:
            raise ValueError(f"{name}: no name has a NUL byte")
    return tuple(value)


def _comms(name: str, value: object) -> tuple[str, ...]:
    return _strings(name, value, _LONGEST_COMM)


def _paths(name: str, value: object) -> tuple[str, ...]:
    paths = _strings(name, value, _LONGEST_PATH)
    if any(".." in path.split("/") for path in paths):
        raise ValueError(f"{name}: a path must not have ..")
    return paths


def _pids(name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > _MOST_NAMES:
        raise ValueError(f"{name} must be a list of at most {_MOST_NAMES}")
    if any(type(pid) is not int or not 1 <= pid < 1 << 22 for pid in value):
        raise ValueError(f"{name}: each must be the number of a process")
    return tuple(value)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false")  # noqa: TRY004 - as above
    return value


def _rate(name: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= _MOST_EVENTS:
        raise ValueError(f"{name} must be a whole number from 1 to {_MOST_EVENTS}")
    return value


_PARSERS = {
    "threshold": _duration,
    "timeout": _duration,
    "comms": _comms,
    "executables": _paths,
    "pids": _pids,
    "cgroups": _paths,
    "wakers": _flag,
    "events": _rate,
}
