"""Joining: the frames of an eBPF profile get the start lines that are known of the same build."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pprof_merge.codec import Conversion

from pgo_collector.engine.start_lines import Function, KnownFunction, StartLines, Tables
from pgo_collector.model.profile_types import BY_PROFILES, BY_SYMBOLS
from pgo_collector.routes.otlp.dictionary import Dictionary

# For each location of a build that is known, the function of each of its lines; None for a line of which it
# isn't certain. Empty if the profile gets no start lines.
Joined = Mapping[int, Sequence[KnownFunction | None]]
# A profile gets start lines if it then has them for so large a share of its frames in builds that are known,
# by weight. Go's compiler can't match calls from the others.
_LEAST_SHARE = 0.5


# How much of the tables one request may ask for, in steps: some, and one for each of its bytes before they
# were inflated, up to the most. Each location that a profile has takes one, and so does each of its lines; a
# function two, and a service and a table as many as they take long to list and to open. What comes then gets
# no start lines.
_ANY_STEPS, _MOST_STEPS = 10_000, 100_000
_OF_FUNCTION, _OF_SERVICE, _OF_TABLE = 2, 100, 500


class Known:
    """The functions that a request has and the tables know, each looked up once."""

    def __init__(self, tables: Tables, size: int) -> None:
        """Take the tables, and the bytes of the request before they were inflated."""
        self._tables = tables
        self._left = min(_ANY_STEPS + size, _MOST_STEPS)
        # Of each service the versions of its tables, and the latest profile's time that they have all for.
        self._listed: dict[str, tuple[int, Mapping[str, str]]] = {}
        self._now = time.time_ns()
        self._opened: dict[tuple[str, str], StartLines | None] = {}
        self._found: dict[tuple[StartLines, int], Function | None] = {}

    def spend(self, steps: int) -> bool:
        """Take a number of steps; return whether they were left."""
        self._left -= steps
        return self._left >= 0

    def versions(self, service: str, taken: int) -> Mapping[str, str]:
        """Return the versions of a service's tables for a profile taken at `taken`. Raises StorageFails.

        They are listed up to twice: the second time, all there are now.
        """
        until, versions = self._listed.get(service, (-1, {}))
        if until < min(taken, self._now):
            if not self.spend(_OF_SERVICE):
                return {}
            until = taken if until < 0 else self._now
            versions = self._tables.versions(service, until)
            self._listed[service] = until, versions
            self._opened = {key: table for key, table in self._opened.items() if key[0] != service}
        return versions

    def table(self, service: str, build_id: str, taken: int) -> StartLines | None:
        """Return the table of a build; None if there is none, or no step is left. Raises StorageFails."""
        versions, key = self.versions(service, taken), (service, build_id)
        if build_id and key not in self._opened:
            table = self._tables.read(service, build_id, versions) if self._left > 0 else None
            self._opened[key] = table if table is not None and self.spend(_OF_TABLE) else None
        return self._opened[key] if build_id else None

    def function(self, table: StartLines, conversion: Conversion, index: int) -> Function | None:
        """Return a function of the request by a build's table.

        None if the table doesn't know it, or if the profiler knows where it begins.
        """
        key = table, index
        if key not in self._found:
            self._found[key] = None
            name, file, start_line = conversion.function(index) if index else (b"", b"", 0)
            if not start_line and self.spend(_OF_FUNCTION):
                self._found[key] = table.find(name.decode(), file.decode())
        return self._found[key]


def join(conversion: Conversion, dictionary: Dictionary, known: Known, service: str, taken: int) -> Joined:
    """Return the functions of the locations in a service's profile taken at `taken`, in ns since 1970.

    Its samples were read. Raises PushInvalid, MalformedProfile, LimitExceeded and StorageFails.
    """
    if not known.versions(service, taken):
        return {}
    weights = conversion.weights()
    if not known.spend(len(weights)):
        return {}
    tables: dict[int, StartLines | None] = {0: None}
    found: dict[int, list[KnownFunction | None]] = {}
    frames = joined = 0
    for index, weight in weights:
        mapping, lines = conversion.location(index)
        if mapping not in tables:
            tables[mapping] = known.table(service, dictionary.build_id(mapping), taken)
        table = tables[mapping]
        if table is not None:
            if not known.spend(len(lines)):
                return {}
            functions = [known.function(table, conversion, function) for function, _ in lines]
            found[index] = [
                function.known if function is not None and function.has(number, taken) else None
                for function, (_, number) in zip(functions, lines, strict=True)
            ]
            frames += weight * len(lines)
            joined += weight * sum(function is not None for function in found[index])
    return found if joined and joined >= _LEAST_SHARE * frames else {}


def joined_by(joined: Joined) -> str:
    """Return the label of a profile for where its start lines are from; empty if it got none."""
    if not joined:
        return ""
    known = (function for functions in joined.values() for function in functions if function is not None)
    return BY_SYMBOLS if any(function.is_uploaded for function in known) else BY_PROFILES
