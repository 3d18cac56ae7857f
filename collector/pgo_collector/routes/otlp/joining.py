"""Joining: the frames of an eBPF profile get the start lines that are known of the same build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pgo_collector.engine.start_lines import Function, KnownFunction, StartLines, Tables
from pgo_collector.model.profile_types import BY_PROFILES, BY_SYMBOLS
from pgo_collector.routes.otlp.dictionary import Dictionary

# For each location of a build that is known, the function of each of its lines; None for a line of which it
# isn't certain. Empty if the profile gets no start lines.
Joined = Mapping[int, Sequence[KnownFunction | None]]
# A profile gets start lines if it then has them for so large a share of its frames in builds that are known,
# by weight. Go's compiler can't match calls from the others.
_LEAST_SHARE = 0.5


class Known:
    """The functions that a request has and the tables know, each looked up once."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._found: dict[tuple[StartLines, str, str], Function | None] = {}

    def function(self, table: StartLines, name: str, file: str) -> Function | None:
        """Return the function of a name and a file of a build's table; None if it isn't known."""
        key = table, name, file
        if key not in self._found:
            self._found[key] = table.find(name, file)
        return self._found[key]


def join(
    dictionary: Dictionary, known: Known, service: str, taken: int, weights: Iterable[tuple[int, int]]
) -> Joined:
    """Return the functions of the locations in a service's profile taken at `taken`, in ns since 1970.

    `weights` has the index of each stack, and its weight. Raises PushInvalid and StorageFails.
    """
    versions = known.tables.versions(service, taken)
    if not versions:
        return {}
    tables: dict[int, StartLines | None] = {0: None}
    found: dict[int, list[KnownFunction | None]] = {}
    counts: dict[int, int] = {}
    frames = joined = 0
    for stack, weight in weights:
        for index in dictionary.stack(stack):
            if index not in found:
                location = dictionary.location(index)
                mapping = location.mapping_index
                if mapping not in tables:
                    build_id = dictionary.build_id(mapping)
                    tables[mapping] = known.tables.read(service, build_id, versions) if build_id else None
                table = tables[mapping]
                found[index] = [] if table is None else _functions(dictionary, known, table, index, taken)
                counts[index] = sum(function is not None for function in found[index])
            frames += abs(weight) * len(found[index])
            joined += abs(weight) * counts[index]
    return found if joined and joined >= _LEAST_SHARE * frames else {}


def joined_by(joined: Joined) -> str:
    """Return the label of a profile for where its start lines are from; empty if it got none."""
    if not joined:
        return ""
    known = (function for functions in joined.values() for function in functions if function is not None)
    return BY_SYMBOLS if any(function.is_uploaded for function in known) else BY_PROFILES


def _functions(
    dictionary: Dictionary, known: Known, table: StartLines, index: int, taken: int
) -> list[KnownFunction | None]:
    """Return the function of each line of a location; None for one of which it isn't certain."""
    functions: list[KnownFunction | None] = []
    for line in dictionary.location(index).lines:
        function = dictionary.function(line.function_index)
        if function.start_line:  # the profiler knows by itself
            functions.append(None)
            continue
        name, file = (
            dictionary.string(text) for text in (function.name_strindex, function.filename_strindex)
        )
        found = known.function(table, name, file)
        functions.append(found.known if found is not None and found.has(line.line, taken) else None)
    return functions
