"""Profile types as Grafana names them, `process_cpu:cpu:nanoseconds:cpu:nanoseconds`, and our types.

A name stands for profiles that can be added up. Cumulative profiles and deltas have different names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from pprof_merge import ValueType
from pprof_merge.analysis import BRANCH_TYPES
from pprof_merge.merging import kind_of

from pgo_collector.engine.sample_types import Kind
from pgo_collector.errors import ParameterInvalid
from pgo_collector.model.profile_types import (
    BLOCK_DELTA,
    BRANCHES,
    CPU,
    LATENCY_TYPES,
    MEMORY_DELTA,
    MUTEX_DELTA,
    OTHER,
    PROCESS_CPU,
    WALL,
)

_LONGEST_ID = 1000
_HEAP = "heap"
_FIVE = "name:type:unit:period_type:period_unit"

# The types whose profiles may measure anything, so that one has to be read to know.
READ = frozenset({WALL, OTHER})
# Those that some clients measure by names of their own, such as Datadog's `cpu-time`, not only as below.
VARIED = frozenset({PROCESS_CPU, MEMORY_DELTA, _HEAP, BLOCK_DELTA, MUTEX_DELTA})


class ProfileType(NamedTuple):
    """A profile's name, what it measures in which unit, and its period."""

    name: str
    sample_type: str
    sample_unit: str
    period_type: str
    period_unit: str

    @property
    def id(self) -> str:
        """Return the five parts, with colons between them."""
        return ":".join(self)

    @property
    def value_type(self) -> ValueType:
        """Return what it measures as the engine has it."""
        return ValueType(self.sample_type.encode(), self.sample_unit.encode())

    def measures_as(self, other: ProfileType) -> bool:
        """Return whether name, sample type and unit are the same. Clients differ in the period."""
        return self[:3] == other[:3]

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels that selectors know a profile type by."""
        return {
            "__name__": self.name,
            "__profile_type__": self.id,
            "__type__": self.sample_type,
            "__unit__": self.sample_unit,
            "__period_type__": self.period_type,
            "__period_unit__": self.period_unit,
        }


# The names of `ProfileType.labels`.
TYPE_LABELS = frozenset(ProfileType("", "", "", "", "").labels)


def parse_profile_type(text: str) -> ProfileType:
    """Return the profile type with this id of five parts, or six: `:delta` is ignored.

    Raises ParameterInvalid.
    """
    parts = text.split(":") if len(text) <= _LONGEST_ID else []
    if len(parts) == 6 and parts[5] == "delta":
        parts.pop()
    if len(parts) != 5 or not all(parts[:3]):
        raise ParameterInvalid(f"profile type {text[:50]!r}: write {_FIVE}")
    name, *others = parts
    return ProfileType(_ALIASES.get(name, name), *others)


def types_of_kind(name: str, period: ValueType, measured: tuple[ValueType, ...]) -> tuple[ProfileType, ...]:
    """Return the profile types of a profile with this period and these sample types."""
    period_parts = [part.decode(errors="replace") for part in period]
    return tuple(
        ProfileType(name, *(part.decode(errors="replace") for part in each), *period_parts)
        for each in measured
    )


_COUNT, _BYTES, _NANOS = b"count", b"bytes", b"nanoseconds"
_CPU_TIME, _SPACE = ValueType(b"cpu", _NANOS), ValueType(b"space", _BYTES)
_CONTENTIONS, _DELAY = ValueType(b"contentions", _COUNT), ValueType(b"delay", _NANOS)
_CPU_SAMPLES = (ValueType(b"samples", _COUNT), _CPU_TIME)
_MEMORY = (
    ValueType(b"alloc_objects", _COUNT),
    ValueType(b"alloc_space", _BYTES),
    ValueType(b"inuse_objects", _COUNT),
    ValueType(b"inuse_space", _BYTES),
)
_WAITS = (_CONTENTIONS, _DELAY)
# Other names that Pyroscope's clients use.
_ALIASES = {"goroutines": "goroutine"}


def _same(name: str) -> tuple[ProfileType, ...]:
    only = ValueType(name.encode(), _COUNT)
    return types_of_kind(name, only, (only,))


def _held(types: tuple[ProfileType, ...]) -> tuple[ProfileType, ...]:
    """Return the types of what a heap holds, by the names that Pyroscope's clients and Grafana use."""
    return tuple(
        each._replace(name="memory") for each in types if kind_of(each.sample_type.encode()) == "state"
    )


_OF_HEAP = types_of_kind(_HEAP, _SPACE, _MEMORY)

# The profile types of each of our types but READ. Profiles of some clients have only part of them, and those
# of VARIED may have others.
PROFILE_TYPES: Mapping[str, tuple[ProfileType, ...]] = MappingProxyType(
    {
        CPU: types_of_kind("process_cpu", _CPU_TIME, _CPU_SAMPLES),
        PROCESS_CPU: types_of_kind("process_cpu", _CPU_TIME, _CPU_SAMPLES),
        MEMORY_DELTA: types_of_kind("memory", _SPACE, _MEMORY),
        _HEAP: _OF_HEAP + _held(_OF_HEAP),
        "allocs": types_of_kind("allocs", _SPACE, _MEMORY),
        BLOCK_DELTA: types_of_kind("block", _CONTENTIONS, _WAITS),
        MUTEX_DELTA: types_of_kind("mutex", _CONTENTIONS, _WAITS),
        "block": types_of_kind("block_total", _CONTENTIONS, _WAITS),
        "mutex": types_of_kind("mutex_total", _CONTENTIONS, _WAITS),
        "goroutine": _same("goroutine"),
        "threadcreate": _same("threadcreate"),
        BRANCHES: types_of_kind(BRANCHES, BRANCH_TYPES[-1], BRANCH_TYPES),
        **{name: types_of_kind(name, _DELAY, _WAITS) for name in LATENCY_TYPES},
    }
)


def types_read(type_: str, name: str, kind: Kind) -> tuple[ProfileType, ...]:
    """Return the profile types of a profile that was read, of one of our types.

    `name` is that of a profile of the type `other`. Where types are listed, the period is theirs. Sample
    types that no id could name are left out.
    """
    period, measured = kind
    listed = PROFILE_TYPES.get(type_)
    if listed is None:
        every = types_of_kind(name or type_, period, measured)
    else:
        usual = listed[0]
        every = tuple(
            usual._replace(sample_type=each.sample_type, sample_unit=each.sample_unit)
            for each in types_of_kind(usual.name, period, measured)
        )
        if type_ == _HEAP:
            every += _held(every)
    return tuple(each for each in every if not any(":" in part for part in each) and all(each[:3]))
