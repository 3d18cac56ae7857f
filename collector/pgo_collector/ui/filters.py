"""Filters: links that focus on a name, ignore or hide it, beside a search and beside the call of a zoom."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from pprof_merge.analysis import Grouping, function_in, shown_name

from pgo_collector.model.name_patterns import NamePatterns
from pgo_collector.ui.links import Links


class FilterLink(NamedTuple):
    """Action of a link on a name: `focus`, `ignore` or `hide`."""

    verb: str
    link: str


def filters_of_search(
    links: Links, patterns: NamePatterns, search: str, found: Collection[str], by: Grouping
) -> list[FilterLink]:
    """Return links for the names that contain a text, in any case.

    Patterns don't see mangled names: if only these contain it, the links are for the names that were found.
    """
    text = shown_name(search)
    if not search:
        return []
    if found and not any(text.casefold() in name.casefold() for name in found):
        names = dict.fromkeys(function_in(name) if by == "line" else name for name in sorted(found))
        return _filters(links, patterns, f"^({'|'.join(map(re.escape, names))})$", search=None)
    return _filters(links, patterns, f"(?i:{re.escape(text)})", search=None)


def filters_of_name(links: Links, patterns: NamePatterns, name: str, by: Grouping) -> list[FilterLink]:
    """Return links for a function, package or file by its name; those of a line are for its function."""
    return _filters(links, patterns, _pattern_of(name, by)) if name else []


def _pattern_of(name: str, by: Grouping) -> str:
    """Return an expression that matches the name, in functions, files or binaries."""
    if name.startswith("[") and name.endswith("]"):
        return f"(^|/){re.escape(name[1:-1])}$"
    if by == "package":
        return rf"^{re.escape(name)}(\.|::)"
    return f"^{re.escape(function_in(name) if by == 'line' else name)}$"


def _filters(links: Links, patterns: NamePatterns, added: str, **changes: None) -> list[FilterLink]:
    """Return the links that add an expression; one that would be too long for a link isn't offered.

    Expressions to ignore or hide are added to the ones that are there. A focus replaces the one before.
    """
    combined = {
        "focus": added,
        "ignore": f"{patterns.ignore}|{added}" if patterns.ignore else added,
        "hide": f"{patterns.hide}|{added}" if patterns.hide else added,
    }
    return [
        FilterLink(verb, links.here(root=None, **changes, **{verb: pattern}))
        for verb, pattern in combined.items()
        if links.fits(**{verb: pattern})
    ]
