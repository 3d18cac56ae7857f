"""What a profile says, free of ids, orders and string indexes, so that two can be told apart in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pprof_proto.profile_pb2 import Label, Mapping, Profile, ValueType

if TYPE_CHECKING:
    from collections.abc import Sequence

Values = tuple[int, ...]


class Binary(NamedTuple):
    """What is mapped, and where."""

    filename: bytes
    build_id: bytes
    start: int
    limit: int
    offset: int
    flags: tuple[bool, bool, bool, bool]


class Frame(NamedTuple):
    """One source line of a location."""

    function: bytes
    system_name: bytes
    filename: bytes
    start_line: int
    line: int
    column: int


class Place(NamedTuple):
    """One location: its address in the process, and in the binary."""

    binary: Binary | None
    address: int
    relative: int
    folded: bool
    frames: tuple[Frame, ...]


class Tag(NamedTuple):
    """One label: `text`, or where that is None, `number` in `unit`."""

    key: bytes
    text: bytes | None
    number: int
    unit: bytes


class Stack(NamedTuple):
    """What tells a sample from another: where it was taken, the leaf first, and its labels."""

    places: tuple[Place, ...]
    tags: tuple[Tag, ...]


@dataclass(frozen=True)
class Content:
    """`samples` maps each stack to the values of its samples; a merge has one sample a stack."""

    header: dict[str, object]
    samples: dict[Stack, list[Values]]

    def total(self) -> Values:
        """The sum of all samples, one number a sample type."""
        rows = [values for rows in self.samples.values() for values in rows]
        return tuple(map(sum, zip(*rows, strict=True)))

    def sums(self) -> dict[tuple[object, ...], Values]:
        """Stacks without their absolute addresses, which are those of the first profile that is merged."""
        summed: dict[tuple[object, ...], Values] = {}
        for stack, rows in self.samples.items():
            places = tuple(place._replace(binary=None, address=0) for place in stack.places)
            values = summed.get((places, stack.tags), (0,) * len(rows[0]))
            for row in rows:
                values = tuple(a + b for a, b in zip(values, row, strict=True))
            summed[places, stack.tags] = values
        return {stack: values for stack, values in summed.items() if any(values)}


def content(protobuf: bytes) -> Content:
    """Of a consistent profile in bare protobuf."""
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
        # A label with neither string nor number nor unit is none, to every reader; and of the order of
        # labels, only that of one key's values means something.
        labels = (label for label in sample.label if label.str or label.num or label.num_unit)
        tags = sorted((_tag(label, strings) for label in labels), key=lambda tag: (tag.key, tag.text is None))
        stack = Stack(tuple(places[of] for of in sample.location_id), tuple(tags))
        samples.setdefault(stack, []).append(tuple(sample.value))
    return Content(header, {stack: sorted(rows) for stack, rows in samples.items()})


def difference(ours: Content, theirs: Content) -> str:
    """In words, two examples a kind; empty if there is none."""
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
