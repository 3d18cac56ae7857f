"""Spans: the timed steps of a traced request, over coroutines, threads, shared work and worker processes.

A request that is traced has a `Recording`, and a context variable says which span of it the code at hand
works in. Where nothing is traced `span` returns a null object. Work that one thread or task does for
several requests, such as a commit, is recorded once by `shared` and given to each of them. Work in another
process is recorded there by `recorded_here`, comes back with the result, and is taken over by `adopt`.

Times are in ns of CLOCK_MONOTONIC, which all processes of a machine share, so that a parent is never shorter
than its children.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from types import TracebackType
from typing import Literal, NamedTuple, Self, get_args

Part = Literal["agent", "http", "proxy", "workers", "engine", "store", "catalog", "hooks", "upkeep"]
# The parts of the agent and the collector.
PARTS: tuple[Part, ...] = get_args(Part)
Value = str | int | float | bool
_NO_ATTRIBUTES: Mapping[str, Value] = {}


class Span(NamedTuple):
    """A step that has ended: its times in ns, and the class of the error that it ended with, if any.

    `id` has 16 hex digits; so has `parent`, unless it is empty: the span in which the work was asked for.
    """

    id: str
    parent: str
    part: str
    name: str
    start: int
    end: int
    attributes: Mapping[str, Value]
    error: str = ""


# The fields of a span, which is a plain tuple until its trace is complete: that takes a fraction of the time
# to make, and to pickle.
Fields = tuple[str, str, str, str, int, int, Mapping[str, Value], str]
# What a task takes along to another process, so that its spans are recorded there: the bound on them.
Carried = int


class Recording:
    """The spans of one request, up to `most`; those beyond are counted, and those after its end ignored."""

    __slots__ = ("_is_open", "dropped", "most", "spans")

    def __init__(self, most: int) -> None:
        self.most = most
        self.spans: list[Fields] = []
        self.dropped = 0
        self._is_open = True

    def add(self, span: Fields) -> None:
        """Take a span. Any thread may call this."""
        if not self._is_open:
            return
        if len(self.spans) < self.most:
            self.spans.append(span)
        else:
            self.dropped += 1

    def close(self) -> list[Fields]:
        """Take no more spans; return those that were taken."""
        self._is_open = False
        return self.spans


class Place:
    """A span that is open, and the recording that it belongs to."""

    __slots__ = ("recording", "span")

    def __init__(self, recording: Recording, span: str) -> None:
        self.recording = recording
        self.span = span

    def add(
        self,
        part: Part,
        name: str,
        start: int,
        end: int | None = None,
        attributes: Mapping[str, Value] = _NO_ATTRIBUTES,
    ) -> None:
        """Take a step below this span that began at `start`, in ns, and ends at `end`, or now."""
        ended = time.monotonic_ns() if end is None else end
        self.recording.add((new_id(), self.span, part, name, start, ended, attributes, ""))

    def take_over(self, spans: Iterable[Fields]) -> None:
        """Take spans that were recorded elsewhere; those without a parent go below this span."""
        for span in spans:
            self.recording.add(span if span[1] else (span[0], self.span, *span[2:]))


_PLACE: ContextVar[Place | None] = ContextVar("place", default=None)


class _Nothing:
    """The span where nothing is traced."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, **attributes: Value) -> None:
        """Do nothing."""

    def divide(self, **nanos: int) -> None:
        """Do nothing."""


class _Open(Place):
    """A span that is open within a `with` block, which is the place of what works there."""

    __slots__ = ("_above", "_attributes", "_name", "_part", "_start", "_token")

    def __init__(self, above: Place, part: Part, name: str, attributes: dict[str, Value]) -> None:
        self.recording = above.recording
        self.span = new_id()
        self._above = above.span
        self._part = part
        self._name = name
        self._attributes = attributes

    def __enter__(self) -> Self:
        self._token = _PLACE.set(self)
        self._start = time.monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        end = time.monotonic_ns()
        _PLACE.reset(self._token)
        failed = "" if kind is None else kind.__name__
        self.recording.add(
            (self.span, self._above, self._part, self._name, self._start, end, self._attributes, failed)
        )

    def note(self, **attributes: Value) -> None:
        """Add attributes; see `span`."""
        self._attributes.update(attributes)

    def divide(self, **nanos: int) -> None:
        """Add steps below this one, by name, each with the ns that it took.

        They stand one after another from the beginning, since each is the sum of many short times.
        """
        end = self._start
        for name, taken in nanos.items():
            start, end = end, end + taken
            if taken:
                self.add(self._part, name, start, end)


_NOTHING = _Nothing()


def span(part: Part, name: str, **attributes: Value) -> _Open | _Nothing:
    """Return a context manager that times a step, if the request that it is for is traced.

    A name is a constant. Attributes are counts and sizes; what a client sent, such as labels, isn't among
    them.
    """
    place = _PLACE.get()
    if place is None:
        return _NOTHING
    return _Open(place, part, name, attributes)


def wall_offset() -> int:
    """Return the time of day less that of CLOCK_MONOTONIC, in ns.

    Other processes may have their turn between two readings: of a few pairs, the closest counts.
    """
    pairs = []
    for _ in range(3):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        pairs.append((after - before, wall - after))
    return min(pairs)[1]


def new_id() -> str:
    """Return a new span's id, 16 hex digits."""
    return (random.getrandbits(64) or 1).to_bytes(8).hex()


def place() -> Place | None:
    """Return where the code at hand works in a trace; None if nothing is traced."""
    return _PLACE.get()


class at:  # noqa: N801 - a context manager, which is called as a function
    """Work at a place of a trace, or in none, within the block."""

    __slots__ = ("_there", "_token")

    def __init__(self, there: Place | None) -> None:
        self._there = there

    def __enter__(self) -> None:
        self._token = _PLACE.set(self._there)

    def __exit__(self, *_: object) -> None:
        _PLACE.reset(self._token)


def untraced_context() -> Context:
    """Return a copy of the context, in which nothing is traced, for a task that works for many requests."""
    context = copy_context()
    context.run(_PLACE.set, None)
    return context


@contextmanager
def shared(places: Sequence[Place]) -> Iterator[None]:
    """Work for several requests at once within the block: each of these places gets all of its spans."""
    if len(places) < 2:
        with at(places[0] if places else None):
            yield
        return
    recording = Recording(places[0].recording.most)
    try:
        with at(Place(recording, "")):
            yield
    finally:
        for there in places:
            there.take_over(recording.spans)


def carried() -> Carried | None:
    """Return what a task for another process takes along; None if nothing is traced."""
    there = _PLACE.get()
    return None if there is None else there.recording.most


@contextmanager
def recorded_here(what: Carried | None) -> Iterator[list[Fields]]:
    """Record the block for a request of another process; yield a list that has its spans after the block."""
    if what is None:
        yield []
        return
    recording = Recording(what)
    with at(Place(recording, "")):
        yield recording.spans


def adopt(spans: Iterable[Fields]) -> None:
    """Take over spans that another process recorded, if the code at hand is traced."""
    there = _PLACE.get()
    if there is not None:
        there.take_over(spans)
