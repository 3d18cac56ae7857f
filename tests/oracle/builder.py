"""Random profiles that cover everything that pprof allows. Every choice comes from a `random.Random`.

A `World` holds what the profiles of one list share (binaries, functions, lines, labels), so that they have
stacks in common. The profiles differ in their ids, the addresses of their binaries, and the layout in which
they are written. With hypothesis's `randoms()` as the source, a failing list shrinks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, cast

from google.protobuf.descriptor import FieldDescriptor
from pprof_proto.profile_pb2 import Function, Line, Location, Mapping, Profile, Sample

from tests.oracle import wire

if TYPE_CHECKING:
    from google.protobuf.message import Message

HUGE = (1 << 63) - 1
NAMES = (
    b"main.run",
    b"net/http.(*conn).serve",
    b"go.shape.interface { Info() }",
    b"_Z3foov",
    b"f\xff\xfe",
    b"",
)
FILES = (b"/src/main.go", b"/src/net.go", b"")
BINARIES = (b"/bin/service", b"/lib/libc.so.6", b"[vdso]", b"[kernel.kallsyms]_text", b"")
TEXTS = (b"a", b"b", b"caf\xc3\xa9", b"\x80")
COMMENTS = (b"first", b"second", b"third", b"")
PAGE = 0x1000


def seeded(seed: int) -> Random:
    """Return a source of choices that are the same in every run, so that failures can be repeated."""
    return Random(seed)  # noqa: S311 - no secret depends on them


@dataclass
class Names:
    """A string table to build: calling it with a string adds the string and returns its index.

    With `doubled`, some strings are there twice; with `empties`, the empty string too.
    """

    random: Random
    doubled: bool
    empties: bool
    table: list[bytes] = field(default_factory=lambda: [b""])

    def __call__(self, name: bytes) -> int:
        again = (self.doubled if name else self.empties) and self.random.randrange(4) == 0
        if name in self.table and not again:
            return self.table.index(name)
        self.table.append(name)
        return len(self.table) - 1


class World:
    """The common properties of the profiles of one list, and which rare features they use."""

    def __init__(self, random: Random, *, empty_strings: bool = False) -> None:
        self.random = random
        self.empty_strings = empty_strings
        self.relocated = self._often()
        self.sparse_ids = self._often()
        self.folded = self._often()
        self.columns = self._often()
        self.labelled = self._often()
        self.cancelling = self._often()
        self.wrapping = self._often()
        self.doubled_strings = self._often()
        self.remarks = self._often()
        self.sample_types = random.choice(
            [
                ((b"samples", b"count"), (b"cpu", b"nanoseconds")),
                ((b"cpu", b"nanoseconds"),),
                ((b"x", b""),) * 2,
            ]
        )
        self.period_type = random.choice([(b"cpu", b"nanoseconds"), (b"", b""), None])
        self.binaries = [self._binary() for _ in range(random.randrange(4))]
        self.functions = [self._function() for _ in range(1 + random.randrange(5))]
        self.lines = [(random.randrange(len(self.functions)), self._line()) for _ in range(5)]

    def profile(self) -> bytes:
        """Return a profile of this world, in one of the layouts that the wire format allows."""
        random = self.random
        names = Names(random, self.doubled_strings, self.empty_strings)
        profile = Profile()
        for name, unit in self.sample_types:
            profile.sample_type.add(type=names(name), unit=names(unit))
        if self.period_type is not None:
            name, unit = self.period_type
            profile.period_type.type, profile.period_type.unit = names(name), names(unit)
        self._fill_header(profile, names)
        self._fill_tables(profile, names)
        for _ in range(random.randrange(8)):
            profile.sample.append(self._sample(profile, names))
        profile.string_table.extend(names.table)
        return Form(random).write(profile)

    def _often(self) -> bool:
        return self.random.randrange(2) == 1

    def _binary(self) -> tuple[bytes, bytes, int, int, int]:
        choice = self.random.choice
        size = choice([0, 1, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE])
        return (
            choice(BINARIES),
            choice([b"", b"", b"5eed"]),
            16 * PAGE * choice([0, 1, 2]),
            size,
            PAGE * choice([0, 1]),
        )

    def _function(self) -> tuple[bytes, bytes, bytes, int]:
        choice = self.random.choice
        name = choice(NAMES)
        return name, choice([name, name, b"", b"_Zf"]), choice(FILES), choice([0, 1, 1, 20, -1])

    def _line(self) -> int:
        return self.random.choice([0, 1, 12, 300, -5, HUGE])

    def _fill_header(self, profile: Profile, names: Names) -> None:
        choice = self.random.choice
        profile.time_nanos = choice([0, 5, 7, 1_700_000_000_000_000_000, -1])
        profile.duration_nanos = choice([0, 10_000_000_000, HUGE, -5])
        profile.period = choice([0, 10_000_000, 4_000_000, -1])
        if self.remarks:
            for _ in range(self.random.randrange(5)):
                profile.comment.append(names(choice(COMMENTS)))
            profile.default_sample_type = names(choice([b"", b"cpu", b"samples"]))
            profile.doc_url = names(choice([b"", b"https://one.example", b"https://two.example"]))
            profile.drop_frames = names(choice([b"", b"runtime[.].*"]))
            profile.keep_frames = names(choice([b"", b"runtime[.]main"]))

    def _fill_tables(self, profile: Profile, names: Names) -> None:
        random = self.random
        ids = self._ids(len(self.binaries))
        for id_, (filename, build_id, start, size, offset) in zip(ids, self.binaries, strict=True):
            moved = random.choice([0, PAGE, 0x7F0000000000, -2 * PAGE]) if self.relocated else 0
            lies = (start + moved) % (1 << 64)
            profile.mapping.append(
                Mapping(
                    id=id_,
                    memory_start=lies,
                    memory_limit=(lies + size - random.choice([0, 0, min(size, 1)])) % (1 << 64),
                    file_offset=offset,
                    filename=names(filename),
                    build_id=names(build_id),
                    has_functions=self._often(),
                    has_filenames=self._often(),
                    has_line_numbers=self._often(),
                    has_inline_frames=self._often(),
                )
            )
        random.shuffle(ids := self._ids(len(self.functions)))
        for id_, (name, system_name, filename, start_line) in zip(ids, self.functions, strict=True):
            profile.function.append(
                Function(
                    id=id_,
                    name=names(name),
                    system_name=names(system_name),
                    filename=names(filename),
                    start_line=start_line,
                )
            )
        random.shuffle(ids := self._ids(1 + random.randrange(8)))
        profile.location.extend(self._location(id_, profile) for id_ in ids)

    def _ids(self, count: int) -> list[int]:
        if not self.sparse_ids:
            return list(range(1, count + 1))
        first = self.random.choice([1, 2, 1 << 32, (1 << 64) - 1000])
        return [first + 7 * row for row in range(count)]

    def _location(self, id_: int, profile: Profile) -> Location:
        random = self.random
        location = Location(id=id_, address=random.choice([0, 16, 16, 32, (1 << 64) - 1]))
        if profile.mapping and random.randrange(5):
            mapping = random.choice(profile.mapping)
            location.mapping_id = mapping.id
            location.address = (location.address + mapping.memory_start) % (1 << 64)
        elif random.randrange(4) == 0:
            location.mapping_id = 77  # an unknown mapping is the same as none
        location.is_folded = self.folded and self._often()
        for _ in range(random.randrange(3)):
            row, line = random.choice(self.lines)
            # Columns depend on the line here. For others see
            # test_the_largest_columns_of_inlined_lines_are_kept.
            column = line % 3 if self.columns else 0
            location.line.append(Line(function_id=profile.function[row].id, line=line, column=column))
        if self.columns and location.line:
            location.line[-1].column = random.choice([0, 1, -1])
        return location

    def _sample(self, profile: Profile, names: Names) -> Sample:
        random = self.random
        values = [0, 1, 1, 2, 10_000_000]
        if self.cancelling:
            values += [-1, -1, -2]
        if self.wrapping:
            values += [HUGE, -HUGE - 1, -HUGE]
        sample = Sample(
            location_id=[random.choice(profile.location).id for _ in range(random.randrange(5))],
            value=[random.choice(values) for _ in self.sample_types],
        )
        for _ in range(random.randrange(4) if self.labelled else 0):
            key = names(random.choice([b"path", b"size", b""]))
            if self._often():
                sample.label.add(key=key, str=names(random.choice(TEXTS)))
            else:
                unit = names(random.choice([b"", b"bytes", b"ms"]))
                sample.label.add(key=key, num=random.choice([0, 1, 1, -7, HUGE]), num_unit=unit)
        return sample


class Form:
    """A layout of messages: the choices that protobuf leaves to the writer, made once for a profile."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.packed = random.choice([0, 1, 3, 1000])  # pack repeated fields with at least this many numbers
        self.zeros = random.randrange(4) == 0  # write fields that are 0
        self.unknown = random.randrange(4) == 0  # add fields that the schema lacks
        self.order = random.choice(["ascending", "descending", "shuffled"])

    def write(self, message: Message) -> bytes:
        """Return the bytes of the message. The entries of a repeated field stay in order."""
        fields = cast("list[FieldDescriptor]", list(message.DESCRIPTOR.fields))
        fields.sort(key=attrgetter("number"), reverse=self.order == "descending")
        pieces = [piece for of in fields for piece in self._field(of, getattr(message, of.name))]
        if self.unknown:
            pieces += [(99, wire.number(99, 1)), (100, wire.record(100, b"x")), (101, b"\xad\x06abcd")]
        if self.order == "shuffled":
            # Shuffle the field numbers, and then put each field's pieces, in order, where its number is.
            numbers = [number for number, _ in pieces]
            self.random.shuffle(numbers)
            left = {number: iter([body for of, body in pieces if of == number]) for number in numbers}
            return b"".join(next(left[number]) for number in numbers)
        return b"".join(body for _, body in pieces)

    def _field(self, of: FieldDescriptor, value: object) -> list[tuple[int, bytes]]:
        """Return the encoded pieces of one field, each with the field's number."""
        number = of.number
        if not of.is_repeated and of.type != FieldDescriptor.TYPE_MESSAGE:
            pieces = [wire.number(number, cast("int", value))] if value or self.zeros else []
        elif of.type == FieldDescriptor.TYPE_MESSAGE:
            messages = cast("list[Message]", value) if of.is_repeated else [cast("Message", value)]
            written = [self.write(message) for message in messages if of.is_repeated or message.ByteSize()]
            pieces = [wire.record(number, body) for body in written]
        elif of.type == FieldDescriptor.TYPE_BYTES:
            pieces = [wire.record(number, string) for string in cast("list[bytes]", value)]
        else:
            numbers = cast("list[int]", value)
            if len(numbers) >= self.packed:
                pieces = [wire.packed(number, *numbers)]
            else:
                pieces = [wire.number(number, entry) for entry in numbers]
        return [(number, piece) for piece in pieces]
