"""The same message spelled in another way that protobuf allows, which every reader must take for the same."""

from __future__ import annotations

import struct
from collections.abc import Container
from random import Random

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.oracle.wire import FIXED64, VARINT, number, record, tag, varint

_FIXED = {FieldDescriptor.TYPE_FIXED64: "<Q", FieldDescriptor.TYPE_DOUBLE: "<d"}
# A field that no schema has, and the next.
_UNKNOWN = 1000


def respelled(message: Message, random: Random, whole: Container[str] = ()) -> bytes:
    """Return the bytes of a message: fields in another order, numbers packed or not, or packed in pieces,
    messages in pieces, and fields that nobody knows.

    Messages in the fields `whole` stay whole.
    """
    return b"".join(_shuffled(_fields(message, random, whole), random))


def _shuffled(fields: list[list[bytes]], random: Random) -> list[bytes]:
    """Return the pieces of all fields in any order, but those of one field in theirs."""
    order = [number for number, pieces in enumerate(fields) for _ in pieces]
    random.shuffle(order)
    rests = [iter(pieces) for pieces in fields]
    return [next(rests[number]) for number in order]


def _fields(message: Message, random: Random, whole: Container[str]) -> list[list[bytes]]:
    """Return the pieces of each field."""
    fields = []
    for field, value in message.ListFields():
        values = [*value] if field.is_repeated else [value]
        if field.message_type is not None:
            fields.append([part for each in values for part in _messages(field, each, random, whole)])
        elif isinstance(values[0], str | bytes):
            texts = (each.encode() if isinstance(each, str) else each for each in values)
            fields.append([record(field.number, text) for text in texts])
        else:
            fields.append(_numbers(field, values, random))
    if random.random() < 0.3:
        fields.append([record(_UNKNOWN, b"unknown"), number(_UNKNOWN + 1, random.getrandbits(40))])
    return fields


def _messages(field: FieldDescriptor, message: Message, random: Random, whole: Container[str]) -> list[bytes]:
    """Return a message, or two that a reader merges where there is one."""
    parts = _shuffled(_fields(message, random, whole), random)
    if field.is_repeated or field.name in whole or len(parts) < 2 or random.random() < 0.5:
        return [record(field.number, *parts)]
    cut = random.randint(1, len(parts) - 1)
    return [record(field.number, *parts[:cut]), record(field.number, *parts[cut:])]


def _numbers(field: FieldDescriptor, values: list[int | float], random: Random) -> list[bytes]:
    """Return each number as a field, or some together if there may be several."""
    format_ = _FIXED.get(field.type)
    kind = VARINT if format_ is None else FIXED64
    contents = [varint(int(each)) if format_ is None else struct.pack(format_, each) for each in values]
    pieces = []
    while contents:
        count = random.randint(1, len(contents))
        some, contents = contents[:count], contents[count:]
        if field.is_repeated and random.random() < 0.5:
            pieces.append(record(field.number, *some))
        else:
            pieces += [tag(field.number, kind) + each for each in some]
    return pieces
