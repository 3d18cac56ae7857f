"""The content of a profile, independent of ids, orders and string indexes, to compare two profiles."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pprof_proto.profile_pb2 import Label, Mapping, Profile, ValueType

if TYPE_CHECKING:
    from collections.abc import Sequence

Values = tuple[int, ...]


class Binary(NamedTuple):
    """A mapping: the file, and where it is in memory."""

    filename: bytes
    build_id: bytes
    start: int
    limit: int
    offset: int
    flags: tuple[bool, bool, bool, bool]


class Frame(NamedTuple):
    """A source line of a location."""

    function: bytes
    system_name: bytes
    filename: bytes
    start_line: int
    line: int
    column: int


class Place(NamedTuple):
    """A location: its address in the process, its address in the binary, and its lines."""

    binary: Binary | None
    address: int
    relative: int
    folded: bool
    frames: tuple[Frame, ...]


class Tag(NamedTuple):
    """A label: its `text`, or if that is None, `number` in `unit`."""

    key: bytes
    text: bytes | None
    number: int
    unit: bytes


class Stack(NamedTuple):
    """The identity of a sample in a merge: the locations of its stack, the leaf first, and its labels."""

    places: tuple[Place, ...]
    tags: tuple[Tag, ...]


@dataclass(frozen=True)
class Content:
    """A header, and the values of the samples of each stack. A merge has one sample for each stack."""

    header: dict[str, object]
    samples: dict[Stack, list[Values]]

    def total(self) -> Values:
        """Return the sum of all samples' values, one number for each sample type."""
        rows = [values for rows in self.samples.values() for values in rows]
        return tuple(map(sum, zip(*rows, strict=True)))

    def sums(self) -> dict[tuple[object, ...], Values]:
        """Return the sums of stacks without absolute addresses, which a merge has from its first profile."""
        summed: dict[tuple[object, ...], Values] = {}
        for stack, rows in self.samples.items():
            places = tuple(place._replace(binary=None, address=0) for place in stack.places)
            values = summed.get((places, stack.tags), (0,) * len(rows[0]))
            for row in rows:
                values = tuple(a + b for a, b in zip(values, row, strict=True))
            summed[places, stack.tags] = values
        return {stack: values for stack, values in summed.items() if any(values)}


def content(protobuf: bytes) -> Content:
    """Return the content of a valid profile, given as bare protobuf."""
    profile = Profile.FromString(protobuf)
    strings = profile.string_table

    def value_type(of: ValueType) -> tuple[bytes, bytes]:
        return strings[of.type], strings[of.unit]

    mappings = {mapping.id: _binary(mapping, strings) for mapping in profile.mapping}
    header: dict[str, object] = {
        "sample_types": [value_type(of) for of in profile.sample_type],
        "period_type": value_type(profile.period_type),
        "period": profile.period,
        "time_nanos": profile.time_nanos,
        "duration_nanos": profile.duration_nanos,
        "comments": [strings[comment] for comment in profile.comment],
        "default_sample_type": strings[profile.default_sample_type],
        "doc_url": strings[profile.doc_url],
        "drop_frames": strings[profile.drop_frames],
        "keep_frames": strings[profile.keep_frames],
        "main_binary": next(iter(mappings.values()), None),
    }
    places = _places(profile, mappings)
    samples: dict[Stack, list[Values]] = {}
    for sample in profile.sample:
        # A label without string, number and unit counts as none. The order of labels matters only among those
        # with one key.
        labels = (label for label in sample.label if label.str or label.num or label.num_unit)
        tags = sorted((_tag(label, strings) for label in labels), key=lambda tag: (tag.key, tag.text is None))
        stack = Stack(tuple(places[of] for of in sample.location_id), tuple(tags))
        samples.setdefault(stack, []).append(tuple(sample.value))
    return Content(header, {stack: sorted(rows) for stack, rows in samples.items()})


def difference(ours: Content, theirs: Content) -> str:
    """Return the differences in words, with two examples of each kind; empty if there is none."""
    lines = [
        f"{name}: {ours.header[name]!r} instead of {theirs.header[name]!r}"
        for name in ours.header
        if ours.header[name] != theirs.header[name]
    ]
    kinds: Counter[str] = Counter()
    for stack in ours.samples.keys() | theirs.samples.keys():
        mine, other = ours.samples.get(stack), theirs.samples.get(stack)
        if mine == other:
            continue
        kind = "missing" if mine is None else "too many" if other is None else "other values"
        kinds[kind] += 1
        if kinds[kind] <= 2:
            lines.append(f"{kind}: {mine} instead of {other} at {stack}")
    return "\n".join([*lines, *(f"{kind}: {count} in all" for kind, count in kinds.items())])


def _binary(mapping: Mapping, strings: Sequence[bytes]) -> Binary:
    flags = (
        mapping.has_functions,
        mapping.has_filenames,
        mapping.has_line_numbers,
        mapping.has_inline_frames,
    )
    return Binary(
        strings[mapping.filename],
        strings[mapping.build_id],
        mapping.memory_start,
        mapping.memory_limit,
        mapping.file_offset,
        flags,
    )


def _places(profile: Profile, binaries: dict[int, Binary]) -> dict[int, Place]:
    strings = profile.string_table
    functions = {
        function.id: Frame(
            strings[function.name],
            strings[function.system_name],
            strings[function.filename],
            function.start_line,
            0,
            0,
        )
        for function in profile.function
    }
    places = {}
    for location in profile.location:
        binary = binaries.get(location.mapping_id)
        relative = (location.address - (binary.start if binary else 0)) % (1 << 64)
        frames = tuple(
            functions[line.function_id]._replace(line=line.line, column=line.column) for line in location.line
        )
        places[location.id] = Place(binary, location.address, relative, location.is_folded, frames)
    return places


def _tag(label: Label, strings: Sequence[bytes]) -> Tag:
    if label.str:
        return Tag(strings[label.key], strings[label.str], 0, b"")
    return Tag(strings[label.key], None, label.num, strings[label.num_unit])
