"""Files of speedscope: each of their profiles becomes one of pprof's format, or all together become one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from pprof_merge import Limits, ProfileError, inflate

from pgo_collector.errors import NotPprof, PushInvalid
from pgo_collector.readers.json_text import read_json
from pgo_collector.readers.stack_profile import SampleLabels, StackProfile

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
# Values of the JSON: so many in any, some more for each byte that the body had before it was inflated, and
# the most. Stacks repeat, so that a file may have many values in few bytes.
_ANY_VALUES, _VALUES_OF_BYTE, _MOST_VALUES = 20_000, 20, 300_000
_MOST_PROFILES = 100
# What the merge engine's own files say that they were made by.
_OURS = "pprof-merge"
_LABEL = "profile"

T = TypeVar("T")


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
    return _within(content, limits, lambda file: _profiles(file, app, limits))


def read_whole_speedscope(content: bytes, limits: Limits) -> bytes:
    """Return all profiles in a file as one of bare protobuf, gzip or not.

    The names of its profiles, such as those of threads, become the label `profile` of their samples. In a
    file that the merge engine wrote they are sample types, and become these again. Raises as
    `read_speedscope` does.
    """
    return _within(content, limits, lambda file: _joined(file, limits))


def _within(content: bytes, limits: Limits, read: Callable[[Any], T]) -> T:
    """Return what `read` makes of the JSON of a file; raise NotPprof for what it isn't prepared for."""
    most = min(_ANY_VALUES + _VALUES_OF_BYTE * len(content), _MOST_VALUES)
    try:
        return read(read_json(inflate(content, limits), most))
    except ProfileError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        reason = reason[:200].encode(errors="backslashreplace").decode()
        raise NotPprof(f"the body isn't a file of speedscope that can be read: {reason}") from error


def _profiles(file: Any, app: str, limits: Limits) -> list[SpeedscopeProfile]:
    named, _, measured = app.rpartition(".")
    found = []
    for (name, unit), tree in _trees(file, limits).items():
        kinds = _UNITS[unit].measured
        is_told = named != "" and measured in kinds
        profile = StackProfile([(measured if is_told else kinds[0], _UNITS[unit].name)], limits)
        tree.add_to(profile, file["shared"]["frames"], 0, 1)
        found.append(SpeedscopeProfile(name, named if is_told else app, profile.written()))
    return found


def _joined(file: Any, limits: Limits) -> bytes:
    trees, is_ours = _trees(file, limits), file.get("exporter") == _OURS
    of_each = [(name if is_ours else _UNITS[unit].measured[0], _UNITS[unit].name) for name, unit in trees]
    types = [*dict.fromkeys(of_each)]
    limits.check("sample_types", len(types))
    profile = StackProfile(types, limits)
    if is_ours and (active := file.get("activeProfileIndex")) in range(len(of_each)):
        profile.profile.default_sample_type = profile.text(of_each[active][0])
    for type_, ((name, _), tree) in zip(of_each, trees.items(), strict=True):
        labels = ((_LABEL, name),) if name and not is_ours else ()
        tree.add_to(profile, file["shared"]["frames"], types.index(type_), len(types), labels)
    return profile.written()


def _trees(file: Any, limits: Limits) -> dict[tuple[str, str], _Tree]:
    """Return the stacks of each name and unit of a file."""
    if file["$schema"] != SCHEMA:
        raise ValueError(f"$schema isn't {SCHEMA}")
    frames, profiles = file["shared"]["frames"], file["profiles"]
    if len(profiles) > _MOST_PROFILES:
        raise PushInvalid(f"the file has {len(profiles):,} profiles; the limit is {_MOST_PROFILES}")
    trees: dict[tuple[str, str], _Tree] = {}
    for profile in profiles:
        key = str(profile.get("name") or ""), profile["unit"]
        trees.setdefault(key, _Tree(len(frames), _UNITS[profile["unit"]].factor)).add(profile)
    limits.check("frames", sum(tree.frames for tree in trees.values()))
    return trees


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

    def add_to(
        self,
        profile: StackProfile,
        frames: Sequence[Mapping[str, Any]],
        column: int,
        n_types: int,
        labels: SampleLabels = (),
    ) -> None:
        """Add the stacks as samples with a value of one of the profile's sample types."""
        ids = {}
        for frame in sorted({*self._frame[1:]}):
            of = frames[frame]
            name, file, line = of["name"], of.get("file") or "", int(of.get("line") or 0)
            if not (isinstance(name, str) and isinstance(file, str)):
                raise TypeError("the name or the file of a frame isn't text")
            ids[frame] = profile.location(name, file, line)
        for last, value in enumerate(self._value):
            if value:
                node, stack = last, list[int]()
                while node:
                    stack.append(ids[self._frame[node]])
                    node = self._caller[node]
                values = [0] * n_types
                values[column] = value
                profile.add(stack, values, labels)
