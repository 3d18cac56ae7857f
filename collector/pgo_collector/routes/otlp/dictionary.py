"""The dictionary of an OTLP request: tables that all its profiles share, read with every index checked.

The entry 0 of a table stands for "not set". Entries that nothing refers to are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar, cast

from pprof_merge import Limits

from pgo_collector.errors import PushInvalid
from pgo_collector.routes.otlp import export_pb2 as otlp

Value = str | int | bool | float | tuple["Value", ...] | None
E = TypeVar("E")
# The attributes of a mapping that have a build id, the best first, and what is put before it.
_BUILD_IDS = (
    ("process.executable.build_id.gnu", ""),
    ("process.executable.build_id.go", ""),
    ("process.executable.build_id.htlhash", "htlhash:"),
)
# What a mapping's attributes say of all its locations.
FLAGS = tuple(
    f"pprof.mapping.{name}"
    for name in ("has_functions", "has_filenames", "has_line_numbers", "has_inline_frames")
)
_OF_MAPPINGS = frozenset((*FLAGS, *(key for key, _ in _BUILD_IDS)))
_IS_FOLDED = "pprof.location.is_folded"
# Values of one attribute, in arrays within arrays, too. Comments of a profile may be several.
_MOST_VALUES = 100


class Attribute(NamedTuple):
    """An attribute as it came; its `unit` is empty if unknown."""

    key: str
    given: otlp.AnyValue
    unit: str


class Dictionary:
    """The tables of a request. Methods raise PushInvalid for an index that is in no table."""

    def __init__(self, tables: otlp.Dictionary, limits: Limits) -> None:
        """Check the sizes of the tables. Raises LimitExceeded."""
        limits.check("strings", len(tables.string_table))
        limits.check("locations", len(tables.location_table))
        limits.check("functions", len(tables.function_table))
        limits.check("mappings", len(tables.mapping_table))
        self._tables = tables
        self._limits = limits
        self._attributes: dict[int, Attribute] = {}
        self._values: dict[int, Value] = {}
        self._of_mappings: dict[int, Mapping[str, Value]] = {}
        self._folded: dict[int, bool] = {}

    @cached_property
    def _strings(self) -> Sequence[str]:
        return [*self._tables.string_table]

    def string(self, index: int) -> str:
        """Return a string."""
        return _entry(self._strings, index, "string") if index else ""

    def stack(self, index: int) -> Sequence[int]:
        """Return the locations of a stack, the leaf first."""
        return _entry(self._tables.stack_table, index, "stack").location_indices if index else ()

    def location(self, index: int) -> otlp.Location:
        """Return a location."""
        return _entry(self._tables.location_table, index, "location")

    def mapping(self, index: int) -> otlp.Mapping:
        """Return a mapping."""
        return _entry(self._tables.mapping_table, index, "mapping")

    def build_id(self, mapping: int) -> str:
        """Return the build id of a mapping: GNU's, Go's, or the eBPF profiler's own; empty if unknown."""
        attributes = self.attributes_of_mapping(mapping)
        build_ids = ((text_of(attributes.get(key)), prefix) for key, prefix in _BUILD_IDS)
        return next((prefix + text for text, prefix in build_ids if text), "")

    def is_folded(self, index: int) -> bool:
        """Return whether a location stands for several, by its attributes."""
        if index not in self._folded:
            attributes = self.attributes(self.location(index).attribute_indices, {_IS_FOLDED})
            self._folded[index] = attributes.get(_IS_FOLDED) is True
        return self._folded[index]

    def function(self, index: int) -> otlp.Function:
        """Return a function."""
        return _entry(self._tables.function_table, index, "function")

    def attribute(self, index: int) -> Attribute:
        """Return an attribute; the one of index 0 has no key."""
        known = self._attributes.get(index)
        if known is None:
            entry = _entry(self._tables.attribute_table, index, "attribute")
            unit = self.string(entry.unit_strindex)
            known = Attribute(self.string(entry.key_strindex), entry.value, unit)
            self._attributes[index] = known
        return known

    def value(self, index: int) -> Value:
        """Return the value of an attribute; None if it is of a kind that isn't read."""
        if index not in self._values:
            self._values[index] = self._value(self.attribute(index).given)
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

    def attributes_of_mapping(self, index: int) -> Mapping[str, Value]:
        """Return the attributes of a mapping that are read, by key."""
        if index not in self._of_mappings:
            indexes = self.mapping(index).attribute_indices
            self._of_mappings[index] = self.attributes(indexes, _OF_MAPPINGS)
        return self._of_mappings[index]

    def key_values(
        self, pairs: Iterable[otlp.KeyValue], is_wanted: Callable[[str], bool]
    ) -> dict[str, Value]:
        """Return wanted attributes of a resource or scope by key; where a key comes twice, the first."""
        found: dict[str, Value] = {}
        for pair in pairs:
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


def _entry(table: Sequence[E], index: int, name: str) -> E:
    if not 0 <= index < len(table):
        raise PushInvalid(f"{name} {index} is not in the dictionary, whose table has {len(table)} entries")
    return table[index]
