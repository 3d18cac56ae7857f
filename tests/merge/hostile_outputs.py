"""Profiles that are within all limits, but whose outputs would be enormous: long names in many stacks, many
inlined calls in each location, many labels.
"""

from __future__ import annotations

from itertools import chain, count, repeat
from random import Random
from typing import TYPE_CHECKING

from pprof_merge import Limits

from tests.oracle.wire import number, packed, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LIMITS = Limits()
_LONG = LIMITS.name_bytes
_DEEP = LIMITS.stack_depth
_LINES = LIMITS.nested_messages

# The strings that every profile begins with; an input's own strings come after them.
_WORDS = (b"", b"samples", b"count", b"cpu", b"nanoseconds", b"/bin/service", b"instance", b"main.go")
_FIRST = len(_WORDS)
_FILE, _INSTANCE = 7, 6


def _profile(strings: Iterable[bytes], *records: Iterable[bytes], types: int = 0) -> bytes:
    """Return a CPU profile with `types` more sample types."""
    names = [*_WORDS, *strings]
    further = [number(1, 1 + row % 4) + number(2, 2) for row in range(types)]
    values = [number(1, 1) + number(2, 2), number(1, 3) + number(2, 4), *further]
    return b"".join(
        (
            *(record(1, value) for value in values),
            record(3, number(1, 1), number(3, 1 << 40), number(5, 5)),
            *chain.from_iterable(records),
            *(record(6, name) for name in names),
            number(9, 17),
            record(11, number(1, 3), number(2, 4)),
            number(12, 10_000_000),
        )
    )


def _functions(names: Iterable[int], file: int = _FILE) -> Iterator[bytes]:
    """Yield a function for each name; each begins at a different line."""
    for id_, name in enumerate(names, 1):
        yield record(5, number(1, id_), number(2, name), number(3, name), number(4, file), number(5, id_))


def _locations(functions: Iterable[Iterable[int]]) -> Iterator[bytes]:
    """Yield a location for each list of functions, the innermost function first."""
    for id_, inlined in enumerate(functions, 1):
        lines = (record(4, number(1, function), number(2, function + 3)) for function in inlined)
        yield record(4, number(1, id_), number(2, 1), number(3, 16 * id_), *lines)


def _each(count_: int) -> Iterator[tuple[int]]:
    """Yield the functions of a number of locations: each has the function with its id."""
    return ((id_,) for id_ in range(1, count_ + 1))


def _samples(stacks: Iterable[Iterable[int]], values: int = 2, label: bytes = b"") -> Iterator[bytes]:
    """Yield a sample for each stack of locations, the leaf first."""
    for stack in stacks:
        yield record(2, packed(1, *stack), packed(2, *repeat(1, values)), label)


def _longest(places: Iterable[int], length: int = _LONG, letter: bytes = b"x") -> Iterator[bytes]:
    """Yield names of the given length, by default the longest allowed, that differ only at the end."""
    return ((letter * length)[: length - 8] + b"%08d" % place for place in places)


def _random_stacks(n_locations: int, depth: int, n_stacks: int) -> Iterator[list[int]]:
    """Return random stacks of the given depth."""
    random = Random(1)  # noqa: S311 - the same stacks each time
    return (random.choices(range(1, n_locations + 1), k=depth) for _ in range(n_stacks))


def _named(names: int, length: int, letter: bytes, depth: int, stacks: int) -> Callable[[], bytes]:
    return lambda: _profile(
        _longest(range(names), length, letter),
        _functions(range(_FIRST, _FIRST + names)),
        _locations(_each(names)),
        _samples(_random_stacks(names, depth, stacks)),
    )


def _inlined(depth: int, stacks: int, n_locations: int = 1000, n_lines: int = _LINES) -> Callable[[], bytes]:
    """Return a maker of a profile whose locations have many inlined calls each."""
    n_functions = 1000

    def make() -> bytes:
        calls = ([1 + (row * 7 + at) % n_functions for at in range(n_lines)] for row in range(n_locations))
        return _profile(
            (b"f%d" % row for row in range(n_functions)),
            _functions(range(_FIRST, _FIRST + n_functions)),
            _locations(calls),
            _samples(_random_stacks(n_locations, depth, stacks)),
        )

    return make


def _many_functions(names: Iterator[bytes], name_of: Callable[[int], int], file: int) -> Callable[[], bytes]:
    n_functions = 40_000
    strings = [*names]
    return lambda: _profile(
        strings,
        _functions(map(name_of, range(n_functions)), file),
        _locations(_each(n_functions)),
        _samples([*range(row, n_functions + 1, 10)] for row in range(1, 11)),
    )


def _types() -> bytes:
    n_functions, further = 20_000, LIMITS.sample_types - 2
    return _profile(
        (b"f%d" % row for row in range(n_functions)),
        _functions(range(_FIRST, _FIRST + n_functions)),
        _locations(_each(n_functions)),
        _samples((range(row, n_functions + 1, 4) for row in range(1, 5)), 2 + further),
        types=further,
    )


def _labelled() -> bytes:
    n_samples, n_values = 40_000, 40_000
    label = (record(3, number(1, _INSTANCE), number(2, _FIRST + 1 + row)) for row in count())
    return _profile(
        chain([b"main.main"], (b"%d" % row for row in range(n_values))),
        _functions([_FIRST]),
        _locations(_each(1)),
        chain.from_iterable(_samples([[1]], label=next(label)) for _ in range(n_samples)),
    )


def _mapped() -> bytes:
    n_mappings = LIMITS.mappings - 1
    locations = (
        record(4, number(1, id_), number(2, id_ + 1), number(3, 16 * id_)) for id_ in range(1, n_mappings)
    )
    mappings = (
        record(3, number(1, id_), number(2, id_ << 12), number(3, (id_ + 1) << 12), number(5, _FIRST))
        for id_ in range(2, n_mappings + 1)
    )
    return _profile(_longest([0]), mappings, locations, _samples(_random_stacks(n_mappings - 1, 5000, 100)))


HOSTILE_OUTPUTS: dict[str, Callable[[], bytes]] = {
    "long names in deep stacks": _named(100, _LONG, b"x", 1000, 50),
    "names of 4,000 letters in deep stacks": _named(2, 4000, b"x", 500, 200),
    "long names in many samples": _named(300, 4000, b"x", 4, 40_000),
    "long names that aren't UTF-8": _named(20, _LONG, b"\xff", 1000, 50),
    "long names of control characters": _named(100, _LONG, b"\x01", 1000, 50),
    "long names that begin with <": _named(20, _LONG, b"<", 1000, 50),
    "long names of suffixes": _named(20, _LONG, b".cold", 10, 10),
    "deep stacks": _named(1000, 16, b"x", _DEEP, 200),
    "inlined calls in deep stacks": _inlined(_DEEP, 150),
    "inlined calls in many samples": _inlined(2, 60_000),
    "inlined calls of many leaves": _inlined(1, 10_000, 1_200, 195),
    "functions with one long name": _many_functions(_longest([0]), lambda _: _FIRST, _FILE),
    "functions with one long file": _many_functions(
        chain(_longest([0]), (b"f%d" % row for row in range(40_000))), lambda row: _FIRST + 1 + row, _FIRST
    ),
    "many sample types": _types,
    "many labels": _labelled,
    "mappings with one long name": _mapped,
}


def attack(letters: int) -> bytes:
    """Return a profile of two functions in 50 stacks of depth 1,000, whose names have this many letters."""
    return _named(2, letters, b"x", 1000, 50)()
