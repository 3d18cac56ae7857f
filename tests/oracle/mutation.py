"""Mutations of profiles: bytes changed anywhere, or fields changed with knowledge of the schema.

Most profiles with changed bytes are refused at once. Changed fields keep all lengths correct, so that the
flaw is deep inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from random import Random

from tests.oracle import wire

# The fields that are messages, by number. Other fields are numbers, strings or packed numbers.
Schema = dict[int, "Schema"]
PROFILE: Schema = {1: {}, 2: {3: {}}, 3: {}, 4: {4: {}}, 5: {}, 11: {}}

INTERESTING_BYTES = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    wire.varint(1 << 63),
)
_INTERESTING_NUMBERS = (0, 1, 2, 3, 5, 127, 128, 300, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, -1, -2)
_WIRE_TYPES = (wire.VARINT, wire.FIXED64, wire.BYTES, wire.GROUP_START, wire.GROUP_END, wire.FIXED32)


@dataclass
class Field:
    """A field: `body` is the fields of a message, or else the encoded value without its length."""

    number: int
    wire_type: int
    body: bytes | list[Field]

    def copy(self) -> Field:
        """Return a copy of the field and of all fields in it."""
        body = self.body if isinstance(self.body, bytes) else [field.copy() for field in self.body]
        return Field(self.number, self.wire_type, body)


def read(message: bytes, schema: Schema = PROFILE) -> list[Field]:
    """Return the fields of a valid message."""
    fields = []
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == wire.BYTES:
            length, position = _varint(message, position)
            end = position + length
        elif wire_type == wire.VARINT:
            end = _varint(message, position)[1]
        else:
            end = position + (8 if wire_type == wire.FIXED64 else 4)
        body: bytes | list[Field] = message[position:end]
        if wire_type == wire.BYTES and number in schema:
            body = read(message[position:end], schema[number])
        fields.append(Field(number, wire_type, body))
        position = end
    return fields


def write(fields: list[Field]) -> bytes:
    """Return the bytes of a message with these fields."""
    return b"".join(map(_written, fields))


def mutate_fields(random: Random, profile: bytes, schema: Schema = PROFILE) -> bytes:
    """Return the profile, or message of another schema, which must be valid, with 1 to 3 fields changed."""
    fields = read(profile, schema)
    for _ in range(1 + random.randrange(3)):
        message = _any_message(random, fields)
        if message:
            random.choice(_CHANGES)(random, message, fields)
    return write(fields)


def mutate_bytes(random: Random, profile: bytes) -> bytes:
    """Return the profile with one to three changes: bytes changed, removed, repeated, added, or cut off."""
    mutant = bytearray(profile)
    for _ in range(1 + random.randrange(3)):
        at = random.randrange(len(mutant) + 1)
        size = random.choice([1, 1, 2, 5, 20])
        kind = random.randrange(6)
        if kind == 0 and at < len(mutant):
            mutant[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            mutant[at : at + 1] = random.choice(INTERESTING_BYTES)
        elif kind == 2:
            mutant[at:at] = random.choice(INTERESTING_BYTES)
        elif kind == 3:
            del mutant[at : at + size]
        elif kind == 4:
            mutant[at:at] = mutant[at : at + size]
        elif random.randrange(8) == 0:
            del mutant[at:]
    return bytes(mutant)


def _written(field: Field) -> bytes:
    body = field.body if isinstance(field.body, bytes) else write(field.body)
    if field.wire_type == wire.BYTES:
        return wire.record(field.number, body)
    return wire.tag(field.number, field.wire_type) + body


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the varint at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _any_message(random: Random, fields: list[Field]) -> list[Field]:
    """Return the profile, a message in it, or a message in that one."""
    message = fields
    while random.randrange(3):
        inner = [field.body for field in message if isinstance(field.body, list)]
        if not inner:
            break
        message = random.choice(inner)
    return message


def _remove(random: Random, message: list[Field], _: list[Field]) -> None:
    del message[random.randrange(len(message))]


def _repeat(random: Random, message: list[Field], _: list[Field]) -> None:
    message.insert(random.randrange(len(message) + 1), random.choice(message).copy())


def _move(random: Random, message: list[Field], _: list[Field]) -> None:
    field = message.pop(random.randrange(len(message)))
    message.insert(random.randrange(len(message) + 1), field)


def _graft(random: Random, message: list[Field], profile: list[Field]) -> None:
    """Insert a field of another message, perhaps of another kind."""
    if other := _any_message(random, profile):
        message.insert(random.randrange(len(message) + 1), random.choice(other).copy())


def _renumber(random: Random, message: list[Field], _: list[Field]) -> None:
    random.choice(message).number = random.choice(
        [0, 1, 2, 3, 4, 5, 6, 9, 13, 16, 99, (1 << 29) - 1, 1 << 29]
    )


def _retype(random: Random, message: list[Field], _: list[Field]) -> None:
    field = random.choice(message)
    body = field.body if isinstance(field.body, bytes) else write(field.body)
    field.wire_type = random.choice(_WIRE_TYPES)
    sizes = {wire.FIXED64: 8, wire.FIXED32: 4}
    size = sizes.get(field.wire_type)
    field.body = body if size is None else body[:size].ljust(size, b"\0")


def _change_number(random: Random, message: list[Field], _: list[Field]) -> None:
    """Replace a number, mostly an id, an index or a value."""
    numbers = [field for field in message if field.wire_type == wire.VARINT]
    if numbers:
        random.choice(numbers).body = wire.varint(random.choice(_INTERESTING_NUMBERS))


def _change_length_of_number(random: Random, message: list[Field], _: list[Field]) -> None:
    """Make a varint longer than necessary, sometimes longer than allowed."""
    numbers = [field for field in message if field.wire_type == wire.VARINT and field.body]
    if not numbers:
        return
    field = random.choice(numbers)
    assert isinstance(field.body, bytes)
    more = random.choice([1, 2, 10 - len(field.body), 11 - len(field.body)])
    field.body = field.body[:-1] + bytes([field.body[-1] | 0x80]) + b"\x80" * (more - 1) + b"\x00"


def _change_run(random: Random, message: list[Field], _: list[Field]) -> None:
    """Change packed numbers: add one, cut them, split them in two fields, or write each as a field."""
    runs = [
        at
        for at, field in enumerate(message)
        if field.wire_type == wire.BYTES and isinstance(field.body, bytes)
    ]
    if not runs:
        return
    at = random.choice(runs)
    field = message[at]
    assert isinstance(field.body, bytes)
    cut = random.randrange(len(field.body) + 1)
    kind = random.randrange(4)
    if kind == 0:
        field.body = field.body[:cut] + wire.varint(random.choice(_INTERESTING_NUMBERS)) + field.body[cut:]
    elif kind == 1:
        field.body = field.body[:cut]
    elif kind == 2:
        message[at : at + 1] = [
            Field(field.number, wire.BYTES, part) for part in (field.body[:cut], field.body[cut:])
        ]
    elif field.body and field.body[-1] < 0x80:
        ends = [0, *(end for end, byte in enumerate(field.body, start=1) if byte < 0x80)]
        message[at : at + 1] = [
            Field(field.number, wire.VARINT, field.body[begin:end]) for begin, end in pairwise(ends)
        ]


def _add_unknown(random: Random, message: list[Field], _: list[Field]) -> None:
    number = random.choice([6, 12, 16, 99, 1 << 20])
    field = random.choice(
        [
            Field(number, wire.VARINT, b"\x07"),
            Field(number, wire.BYTES, b"text"),
            Field(number, wire.FIXED32, bytes(4)),
            Field(number, wire.FIXED64, bytes(8)),
        ]
    )
    message.insert(random.randrange(len(message) + 1), field)


_CHANGES = (
    _remove,
    _repeat,
    _move,
    _graft,
    _renumber,
    _retype,
    _change_number,
    _change_number,
    _change_length_of_number,
    _change_run,
    _change_run,
    _add_unknown,
)
