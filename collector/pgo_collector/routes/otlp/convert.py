"""One profile of OTLP → pprof, as `docs/agents-you-have.md` describes it.

Samples that differ only in what isn't kept, such as the number of a thread, become one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pprof_merge import LimitExceeded, Limits
from pprof_proto import profile_pb2 as pprof

from pgo_collector.engine.start_lines import KnownFunction
from pgo_collector.errors import PushInvalid
from pgo_collector.routes.otlp import export_pb2 as otlp
from pgo_collector.routes.otlp.dictionary import FLAGS, Dictionary, Value, text_of, texts_of
from pgo_collector.routes.otlp.joining import Joined, Known, join, joined_by
from pgo_collector.routes.otlp.naming import DEFAULT_TYPE, matches

_MOST = (1 << 63) - 1
# How many times larger than their request the profiles in it may be, besides some bytes.
_MOST_TIMES = 16
_SMALL_BYTES = 256 << 10
_SAMPLES = ("samples", "count")
_CPU = ("cpu", "nanoseconds")
# The attributes of a profile that pprof has fields for.
_TEXTS = ("doc_url", "drop_frames", "keep_frames")
_COMMENT = "pprof.profile.comment"
_OF_PROFILES = frozenset((_COMMENT, *(f"pprof.profile.{name}" for name in _TEXTS)))

# The stack of a sample, and those of its attributes that become labels.
_Key = tuple[int, tuple[int, ...]]


class Room:
    """The room that is left for all profiles of a request, by the names of limits on one profile.

    They share a dictionary, and may be several times as large as the request, whose `size` is in bytes.
    """

    def __init__(self, limits: Limits, size: int) -> None:
        largest = min(limits.inflated_bytes, _SMALL_BYTES + _MOST_TIMES * size)
        self._limits = limits._replace(inflated_bytes=largest)
        self._taken: dict[str, int] = {}

    def take(self, limit: str, amount: int) -> None:
        """Take so much. Raises LimitExceeded if it isn't there."""
        taken = self._taken[limit] = self._taken.get(limit, 0) + amount
        allowed: int = getattr(self._limits, limit)
        if taken > allowed:
            raise LimitExceeded(limit, allowed)

    def check(self, limit: str, amount: int, where: str) -> None:
        """Raise LimitExceeded if one thing has more than a limit."""
        self._limits.check(limit, amount, where)


class Reading(NamedTuple):
    """How the profiles of a request are read: which wire it is in, and which sample attributes are kept.

    `start_lines` knows the start lines that profiles get.
    """

    is_before_1_10: bool
    kept: frozenset[str]
    start_lines: Known


class Origin(NamedTuple):
    """The service of a profile, and the attributes of its scope."""

    service: str
    scope: Mapping[str, Value]


class Converted(NamedTuple):
    """A profile as bare protobuf of pprof, and its label for where functions got start lines from, if any."""

    content: bytes
    joined_by: str = ""


def to_pprof(
    profile: otlp.Profile,
    dictionary: Dictionary,
    origin: Origin,
    reading: Reading,
    room: Room,
) -> Converted:
    """Return a profile as pprof. Raises PushInvalid and LimitExceeded."""
    totals = _totals(profile, dictionary, reading, room)
    for stack, _ in totals:
        room.take("frames", len(dictionary.stack(stack)))
    weights = ((stack, total) for (stack, _), total in totals.items())
    joined = join(dictionary, reading.start_lines, origin.service, profile.time_unix_nano, weights)
    made = _Made(dictionary, room, joined)
    multipliers = made.add_types(profile)
    for (stack, attributes), total in totals.items():
        made.add_sample(stack, attributes, [total * multiplier for multiplier in multipliers])
    made.finish(profile, origin.scope)
    content = made.profile.SerializeToString()
    room.take("inflated_bytes", len(content))
    return Converted(content, joined_by(joined))


def _totals(profile: otlp.Profile, dictionary: Dictionary, reading: Reading, room: Room) -> dict[_Key, int]:
    """Return the sum of the values of each stack and set of labels."""
    is_kept: dict[int, bool] = {0: False}
    totals: dict[_Key, int] = {}
    room.take("samples", len(profile.samples))
    for sample in profile.samples:
        if reading.is_before_1_10:
            attributes, values = sample.attribute_indices_before, sample.attribute_indices
        else:
            attributes, values = sample.attribute_indices, sample.values
        room.check("nested_messages", len(attributes), "the attributes of a sample")
        kept = []
        for index in attributes:
            if index not in is_kept:
                is_named = matches(dictionary.attribute(index).key, reading.kept)
                is_kept[index] = is_named and bool(text_of(dictionary.value(index)))
            if is_kept[index]:
                kept.append(index)
        key = sample.stack_index, tuple(sorted(kept))
        totals[key] = totals.get(key, 0) + _value_of(values, len(sample.timestamps_unix_nano))
    return totals


def _value_of(values: Sequence[int], timestamps: int) -> int:
    """Return the total of a sample. Raises PushInvalid."""
    if not values:
        if not timestamps:
            raise PushInvalid("a sample has neither values nor timestamps")
        return timestamps
    if timestamps and len(values) != timestamps:
        raise PushInvalid(f"a sample has {len(values)} values and {timestamps} timestamps")
    return sum(values)


class _Made:
    """A pprof profile that is being made. Its ids count from 1, in the order of first use."""

    def __init__(self, dictionary: Dictionary, room: Room, joined: Joined) -> None:
        self._joined = joined
        self.profile = pprof.Profile(string_table=[b""])
        self._dictionary = dictionary
        self._room = room
        self._strings = {"": 0}
        self._ids: dict[str, dict[int, int]] = {"location": {}, "mapping": {}}
        self._functions: dict[tuple[int, KnownFunction | None], int] = {}

    def add_types(self, profile: otlp.Profile) -> list[int]:
        """Add what the profile measures; return by what a total is multiplied for each value of a sample."""
        measured = self._type_of(profile.sample_type)
        period = self._type_of(profile.period_type)
        self.profile.period = profile.period
        if any(period):
            self.profile.period_type.type, self.profile.period_type.unit = map(self._string, period)
        self._add_type(measured)
        if (measured, period) != (_SAMPLES, _CPU) or profile.period <= 0:
            return [1]
        self._add_type(_CPU)
        return [1, profile.period]

    def add_sample(self, stack: int, attributes: Iterable[int], values: list[int]) -> None:
        """Add a sample. Raises PushInvalid and LimitExceeded."""
        if not all(-_MOST <= value <= _MOST for value in values):
            raise PushInvalid("the values of a stack add up to more than 63 bits")
        locations = self._dictionary.stack(stack)
        sample = self.profile.sample.add(value=values)
        known = self._ids["location"]
        sample.location_id.extend([known.get(index) or self._location(index) for index in locations if index])
        for index in attributes:
            self._room.take("labels", 1)
            key, _, unit = self._dictionary.attribute(index)
            value = self._dictionary.value(index)
            if isinstance(value, int) and not isinstance(value, bool):
                number_unit = self._string(unit)
                sample.label.add(key=self._string(key), num=value, num_unit=number_unit)
            else:
                sample.label.add(key=self._string(key), str=self._string(text_of(value)))

    def finish(self, profile: otlp.Profile, scope: Mapping[str, Value]) -> None:
        """Add times, what the attributes say of the profile, and the flags of mappings."""
        if max(profile.time_unix_nano, profile.duration_nano) > _MOST:
            raise PushInvalid("the time or the duration has more than 63 bits")
        made = self.profile
        attributes = self._dictionary.attributes(profile.attribute_indices, _OF_PROFILES)
        made.time_nanos, made.duration_nanos = profile.time_unix_nano, profile.duration_nano
        made.comment.extend(map(self._string, texts_of(attributes.get(_COMMENT))))
        for name in _TEXTS:
            setattr(made, name, self._string(text_of(attributes.get(f"pprof.profile.{name}"))))
        made.default_sample_type = self._string(text_of(scope.get(DEFAULT_TYPE)))
        self._set_flags()

    def _set_flags(self) -> None:
        """Say of each mapping whether all its locations have names, files, lines, and any has inlined calls.

        The mapping's own attributes count more.
        """
        found = {mapping.id: [True, True, True, False] for mapping in self.profile.mapping}
        files = {function.id: function.filename for function in self.profile.function}
        for location in self.profile.location:
            if location.mapping_id:
                flags, lines = found[location.mapping_id], location.line
                flags[0] &= bool(lines)
                flags[1] &= bool(lines) and all(files.get(line.function_id) for line in lines)
                flags[2] &= bool(lines) and all(line.line for line in lines)
                flags[3] |= len(lines) > 1
        for index, id_ in self._ids["mapping"].items():
            given = self._dictionary.attributes_of_mapping(index)
            for name, flag in zip(FLAGS, found[id_], strict=True):
                told = given.get(name)
                field = name.rpartition(".")[2]
                setattr(self.profile.mapping[id_ - 1], field, told if isinstance(told, bool) else flag)

    def _location(self, index: int) -> int:
        """Add a location and what it refers to; return its id."""
        ids = self._ids["location"]
        given = self._dictionary.location(index)
        mapping = self._mapping(given.mapping_index) if given.mapping_index else 0
        lines = given.lines
        self._room.take("lines", len(lines))
        known = self._joined.get(index) or [None] * len(lines)
        ids[index] = id_ = len(ids) + 1
        made = self.profile.location.add(id=id_, mapping_id=mapping, address=given.address)
        for line, of_line in zip(lines, known, strict=True):
            if function := self._function(line.function_index, of_line):
                made.line.add(function_id=function, line=line.line, column=line.column)
        if given.attribute_indices:
            made.is_folded = self._dictionary.is_folded(index)
        return id_

    def _mapping(self, index: int) -> int:
        ids = self._ids["mapping"]
        if index not in ids:
            given = self._dictionary.mapping(index)
            filename = self._string(self._dictionary.string(given.filename_strindex))
            ids[index] = id_ = len(ids) + 1
            self.profile.mapping.add(
                id=id_,
                memory_start=given.memory_start,
                memory_limit=given.memory_limit,
                file_offset=given.file_offset,
                filename=filename,
                build_id=self._string(self._dictionary.build_id(index)),
            )
        return ids[index]

    def _function(self, index: int, known: KnownFunction | None) -> int:
        """Return the id of a function, which begins where a known one does; 0 if it isn't set."""
        if not index:
            return 0
        ids = self._functions
        if (index, known) not in ids:
            given = self._dictionary.function(index)
            texts = (given.name_strindex, given.system_name_strindex, given.filename_strindex)
            name, system_name, filename = (self._string(self._dictionary.string(text)) for text in texts)
            ids[index, known] = id_ = len(ids) + 1
            self.profile.function.add(
                id=id_,
                name=name,
                system_name=name if known else system_name,
                filename=filename,
                start_line=known.start_line if known else given.start_line,
            )
        return ids[index, known]

    def _type_of(self, given: otlp.ValueType) -> tuple[str, str]:
        return self._dictionary.string(given.type_strindex), self._dictionary.string(given.unit_strindex)

    def _add_type(self, measured: tuple[str, str]) -> None:
        type_, unit = map(self._string, measured)
        self.profile.sample_type.add(type=type_, unit=unit)

    def _string(self, text: str) -> int:
        known = self._strings.get(text)
        if known is None:
            known = self._strings[text] = len(self._strings)
            self.profile.string_table.append(text.encode())
        return known
