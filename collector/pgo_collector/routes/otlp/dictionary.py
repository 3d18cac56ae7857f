"""The dictionary of an OTLP request: what all its profiles share, read with every index checked.

The entry 0 of a table stands for "not set". Entries that nothing refers to are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar, cast

from google.protobuf.message import DecodeError
from pprof_merge import Limits, MalformedProfile
from pprof_merge.codec import DictionaryTables

from pgo_collector.errors import PushInvalid
from pgo_collector.routes.otlp import export_pb2 as otlp

M = TypeVar("M", otlp.KeyValue, otlp.KeyValueAndUnit)
Value = str | int | bool | float | tuple["Value", ...] | None
# The fields of a dictionary with its strings and its attributes.
_STRINGS, _ATTRIBUTES = 5, 6
# The attributes of a mapping that have a build id, the best first, and what is put before it.
_BUILD_IDS = (
    ("process.executable.build_id.gnu", ""),
    ("process.executable.build_id.go", ""),
    ("process.executable.build_id.htlhash", "htlhash:"),
)
# What a mapping's attributes say of all its locations.
_FLAGS = tuple(
    f"pprof.mapping.{name}"
    for name in ("has_functions", "has_filenames", "has_line_numbers", "has_inline_frames")
)
_OF_MAPPINGS = frozenset((*_FLAGS, *(key for key, _ in _BUILD_IDS)))
_IS_FOLDED = "pprof.location.is_folded"
# Values of one attribute, in arrays within arrays, too. Comments of a profile may be several.
_MOST_VALUES = 100
# The bytes of one attribute. It is parsed by itself: two of its bytes may become an object of forty.
_LONGEST = 256 << 10


# What `Dictionary.mapping` returns.
MappingTexts = tuple[bytes, int, int, int, int]


class Attribute(NamedTuple):
    """The key of an attribute, and its unit, which is empty if unknown."""

    key: str
    unit: str


class Dictionary:
    """Reads the tables of a request. Methods raise PushInvalid for an index that is in no table."""

    def __init__(self, tables: DictionaryTables, limits: Limits, is_label: Callable[[str], bool]) -> None:
        """Take the tables, and what tells by its key whether an attribute of samples becomes a label."""
        self._tables = tables
        self._limits = limits
        self._is_label = is_label
        self._attributes: dict[int, Attribute] = {}
        self._values: dict[int, Value] = {}
        self._mappings: dict[int, MappingTexts] = {}
        self._taken = 0  # attributes of all mappings

    def string(self, index: int) -> str:
        """Return a string."""
        try:
            return self._entry(_STRINGS, index).decode() if index else ""
        except UnicodeDecodeError as error:
            raise PushInvalid(f"string {index} isn't UTF-8") from error

    def build_id(self, mapping: int) -> str:
        """Return the build id of a mapping: GNU's, Go's, or the eBPF profiler's own; empty if unknown."""
        return self.mapping(mapping)[0].decode()

    def mapping(self, index: int) -> MappingTexts:
        """Return the build id of a mapping, and whether it has what _FLAGS say: 1, 0, or -1 if unknown."""
        if index not in self._mappings:
            indexes = self._tables.attributes_of_mapping(index, self._limits.nested_messages)
            self._taken += len(indexes)
            self._limits.check("labels", self._taken, "the attributes of mappings")
            given = self.attributes(indexes, _OF_MAPPINGS)
            build_ids = ((text_of(given.get(key)), prefix) for key, prefix in _BUILD_IDS)
            build_id = next((prefix + text for text, prefix in build_ids if text), "")
            functions, filenames, lines, inlined = (
                int(told) if isinstance(told := given.get(name), bool) else -1 for name in _FLAGS
            )
            self._mappings[index] = build_id.encode(), functions, filenames, lines, inlined
        return self._mappings[index]

    def folded(self, index: int) -> int:
        """Return 2 if an attribute says that its location stands for several, 3 if not, 1 for any other."""
        if self.attribute(index).key != _IS_FOLDED:
            return 1
        return 2 if self.value(index) is True else 3

    def label(self, index: int) -> tuple[bytes, bytes, int, bytes] | None:
        """Return the key, the text, the number and the unit of an attribute; None if it becomes no label."""
        key, unit = self.attribute(index)
        if not self._is_label(key):
            return None
        value = self.value(index)
        if isinstance(value, int) and not isinstance(value, bool):
            return key.encode(), b"", value, unit.encode()
        text = text_of(value)
        return (key.encode(), text.encode(), 0, b"") if text else None

    def attribute(self, index: int) -> Attribute:
        """Return an attribute; the one of index 0 has no key."""
        known = self._attributes.get(index)
        if known is None:
            entry = parsed(otlp.KeyValueAndUnit, self._entry(_ATTRIBUTES, index))
            known = Attribute(self.string(entry.key_strindex), self.string(entry.unit_strindex))
            self._attributes[index] = known
        return known

    def value(self, index: int) -> Value:
        """Return the value of an attribute; None if it is of a kind that isn't read."""
        if index not in self._values:  # parsed again: what isn't asked for may be large
            entry = parsed(otlp.KeyValueAndUnit, self._entry(_ATTRIBUTES, index))
            self._values[index] = self._value(entry.value)
        return self._values[index]

    def attributes(self, indexes: Sequence[int], wanted: Container[str]) -> dict[str, Value]:
        """Return the attributes with wanted keys by key. Where a key comes twice, the first counts.

        Raises LimitExceeded if one profile, mapping or location has too many.
        """
        self._limits.check("nested_messages", len(indexes), "attribute_indices")
        found: dict[str, Value] = {}
        for index in indexes:
            if index and (key := self.attribute(index).key) in wanted and key not in found:
                found[key] = self.value(index)
        return found

    def _entry(self, table: int, index: int) -> bytes:
        try:
            return self._tables.content(table, index)
        except MalformedProfile as error:
            raise PushInvalid(str(error)) from error

    def key_values(self, pairs: Iterable[bytes], is_wanted: Callable[[str], bool]) -> dict[str, Value]:
        """Return wanted attributes of a resource or scope by key; where a key comes twice, the first."""
        found: dict[str, Value] = {}
        for pair in map(partial(parsed, otlp.KeyValue), pairs):
            key = pair.key or self.string(pair.key_strindex)
            if key not in found and is_wanted(key):
                found[key] = self._value(pair.value)
        return found

    def _value(self, given: otlp.AnyValue, most: int = _MOST_VALUES) -> Value:
        match given.WhichOneof("value"):
            case None:
                return None
            case "string_value_strindex":
                return self.string(given.string_value_strindex)
            case "array_value":
                values = given.array_value.values
                if len(values) > most:
                    raise PushInvalid(f"an attribute has more than {_MOST_VALUES} values")
                return tuple(self._value(each, most // max(len(values), 1)) for each in values)
            case plain:
                return cast("str | int | bool | float", getattr(given, plain))


def parsed(kind: type[M], attribute: bytes) -> M:
    """Return an attribute. Raises PushInvalid."""
    if len(attribute) > _LONGEST:
        raise PushInvalid(f"an attribute has {len(attribute):,} bytes; the limit is {_LONGEST:,}")
    try:
        return kind.FromString(attribute)
    except DecodeError as error:
        raise PushInvalid(f"an attribute is malformed: {error}") from error


def text_of(value: Value) -> str:
    """Return the value of an attribute as a label has it; empty if a label can't have it."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case (only,):
            return text_of(only)
    return ""


def texts_of(value: Value) -> tuple[str, ...]:
    """Return the texts of an attribute that has one or several."""
    return tuple(map(text_of, value)) if isinstance(value, tuple) else (text_of(value),) if value else ()
