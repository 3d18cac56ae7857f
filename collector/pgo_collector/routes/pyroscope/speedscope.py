"""Files of speedscope, as `/ingest` takes them: each of their profiles becomes one of pprof's format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from pprof_merge import Limits, ProfileError, inflate
from pprof_proto.profile_pb2 import Profile

from pgo_collector.errors import NotPprof, PushInvalid
from pgo_collector.routes.push.connect import read_json

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
# Values of the JSON: so many in any, some more for each byte that the body had before it was inflated, and
# the most. Stacks repeat, so that a file may have many values in few bytes.
_ANY_VALUES, _VALUES_OF_BYTE, _MOST_VALUES = 20_000, 20, 300_000
_MOST_PROFILES = 100
_MOST_AMOUNT = 1 << 63


class _Unit(NamedTuple):
    """A unit in pprof's words, how many of it one is, and what it may measure; the first is the usual."""

    name: str
    factor: int
    measured: tuple[str, ...]


_UNITS: Mapping[str, _Unit] = MappingProxyType(
    {
        "nanoseconds": _Unit("nanoseconds", 1, ("cpu", "wall")),
        "microseconds": _Unit("nanoseconds", 10**3, ("cpu", "wall")),
        "milliseconds": _Unit("nanoseconds", 10**6, ("cpu", "wall")),
        "seconds": _Unit("nanoseconds", 10**9, ("cpu", "wall")),
        "bytes": _Unit("bytes", 1, ("alloc_space", "inuse_space")),
        "none": _Unit("count", 1, ("samples", "alloc_objects", "inuse_objects")),
    }
)


class SpeedscopeProfile(NamedTuple):
    """A profile of a file: its name, the name of the app without what it measures, and bare protobuf."""

    name: str
    app: str
    content: bytes


def read_speedscope(content: bytes, app: str, limits: Limits) -> list[SpeedscopeProfile]:
    """Return the profiles in a file, gzip or not; those with one name and unit are one, as Pyroscope has it.

    What is measured stands behind the last dot of the app's name, if the unit is one of that. Raises
    NotPprof, PushInvalid or ProfileError.
    """
    most = min(_ANY_VALUES + _VALUES_OF_BYTE * len(content), _MOST_VALUES)
    try:
        return _profiles(read_json(inflate(content, limits), most), app, limits)
    except ProfileError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        reason = reason[:200].encode(errors="backslashreplace").decode()
        raise NotPprof(f"the body isn't a file of speedscope that can be read: {reason}") from error


def _profiles(file: Any, app: str, limits: Limits) -> list[SpeedscopeProfile]:
    if file["$schema"] != _SCHEMA:
        raise ValueError(f"$schema isn't {_SCHEMA}")
    frames, profiles = file["shared"]["frames"], file["profiles"]
    if len(profiles) > _MOST_PROFILES:
        raise PushInvalid(f"the file has {len(profiles):,} profiles; the limit is {_MOST_PROFILES}")
    trees: dict[tuple[str, str], _Tree] = {}
    for profile in profiles:
        key = str(profile.get("name") or ""), profile["unit"]
        trees.setdefault(key, _Tree(len(frames), _UNITS[profile["unit"]].factor)).add(profile)
    limits.check("frames", sum(tree.frames for tree in trees.values()))
    named, _, measured = app.rpartition(".")
    found = []
    for (name, unit), tree in trees.items():
        kinds = _UNITS[unit].measured
        is_told = named != "" and measured in kinds
        content = tree.written(frames, measured if is_told else kinds[0], _UNITS[unit].name)
        found.append(SpeedscopeProfile(name, named if is_told else app, content))
    return found


class _Tree:
    """The values of stacks, as a tree of calls: a node is a stack, and the first is the empty one."""

    def __init__(self, n_frames: int, factor: int) -> None:
        self._n_frames = n_frames
        self._factor = factor
        self._nodes: dict[tuple[int, int], int] = {}
        self._frame, self._caller, self._depth, self._value = [-1], [0], [0], [0]

    def add(self, profile: Mapping[str, Any]) -> None:
        """Add the values of a profile of a file."""
        match profile["type"]:
            case "sampled":
                self._add_samples(profile["samples"], profile["weights"])
            case "evented":
                self._add_events(profile["events"], profile.get("startValue", 0))
            case other:
                raise ValueError(f"profiles of the type {other} aren't known")

    def _add_samples(self, samples: Sequence[Sequence[int]], weights: Sequence[float]) -> None:
        for stack, weight in zip(samples, weights, strict=True):
            node = 0
            for frame in stack:
                node = self._called(node, frame)
            self._value[node] += self._amount(weight)

    def _add_events(self, events: Iterable[Mapping[str, Any]], start: float) -> None:
        node, last = 0, self._amount(start)
        for event in events:
            frame, at = event["frame"], self._amount(event["at"])
            if at < last:
                raise ValueError("the events aren't in the order of time")
            if node:  # time outside of all frames is no sample's
                self._value[node] += at - last
            last = at
            if event["type"] == "O":
                node = self._called(node, frame)
            elif event["type"] == "C" and node and self._frame[node] == frame:
                node = self._caller[node]
            else:
                raise ValueError("an event neither opens a frame nor closes the one that was opened last")

    def _called(self, caller: int, frame: int) -> int:
        """Return the node of a frame that a node calls."""
        if (caller, frame) not in self._nodes:
            if type(frame) is not int or not 0 <= frame < self._n_frames:
                raise ValueError("a number is no frame's")
            self._nodes[caller, frame] = len(self._frame)
            self._frame.append(frame)
            self._caller.append(caller)
            self._depth.append(self._depth[caller] + 1)
            self._value.append(0)
        return self._nodes[caller, frame]

    def _amount(self, number: float) -> int:
        """Return a weight or a time in the unit of pprof."""
        if number < 0 or not math.isfinite(number):
            raise ValueError("a weight or a time is negative, or no number")
        return round(number * self._factor)

    @property
    def frames(self) -> int:
        """Return the number of frames in all stacks with values."""
        return sum(depth for depth, value in zip(self._depth, self._value, strict=True) if value)

    def written(self, frames: Sequence[Mapping[str, Any]], kind: str, unit: str) -> bytes:
        """Return the profile, which measures one thing."""
        profile, texts = Profile(), {"": 0}

        def text(string: str) -> int:
            return texts.setdefault(string, len(texts))

        profile.sample_type.add(type=text(kind), unit=text(unit))
        for frame in sorted({*self._frame[1:]}):
            of = frames[frame]
            name = text(of["name"])
            profile.function.add(
                id=frame + 1, name=name, system_name=name, filename=text(of.get("file") or "")
            )
            line = of.get("line") or 0
            profile.location.add(id=frame + 1).line.add(function_id=frame + 1, line=int(line))
        for last, value in enumerate(self._value):
            if value >= _MOST_AMOUNT:
                raise ValueError("a value takes more than 64 bits")
            if value:
                node, stack = last, list[int]()
                while node:
                    stack.append(self._frame[node] + 1)
                    node = self._caller[node]
                profile.sample.add(location_id=stack, value=[value])
        profile.string_table.extend(each.encode(errors="backslashreplace") for each in texts)
        return profile.SerializeToString()
