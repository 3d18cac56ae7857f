"""The selection bar of a service's pages: the conditions on labels, values to choose, and the query on /v1.

A form can't write the conditions of several checked values in one parameter. So the chooser's form goes to a
route that does, and that redirects to the page with the selection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from starlette.requests import Request

from pgo_collector.catalog.summaries import Summaries
from pgo_collector.errors import ParameterInvalid
from pgo_collector.http.openapi import BASE, FOCUS, LATENCIES, PATTERNS
from pgo_collector.http.routing import first_values
from pgo_collector.model.profile_types import LATENCY_TYPES
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.ui.links import Links, api_url

# Parameters of the pages for the chooser: the label whose values it lists, and what they contain.
CHOOSE, FIND = "choose", "find"
# Fields of the chooser's form, besides the parameters of the page that it is on.
KEY, VALUE, IS, PAGE = "key", "value", "is", "page"
NONE_OF = "none-of"
# Values are written with this before them, so that the empty one isn't an empty field.
_MARK = "="
_LONGEST_KEY = 255
_LONGEST_FIND = 100
_MOST_SHOWN = 6
# How many values of a label a page lists: those with the most profiles. A search finds the others.
_MOST_VALUES = 100

# URLs percent-encode quotes, so none ends the quotes of the shell.
_COMMAND = """\
curl --silent --show-error --fail \\
  --header "Authorization: Bearer $PGO_KEY" {output}\\
  '{url}'"""
_OUTPUT = "--output merged.pb.gz "

# What each type of profile is about, for people who choose one.
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "time on a CPU",
        "heap": "memory in use and allocated",
        "allocs": "memory allocated",
        "block": "waits for channels and locks",
        "mutex": "holders of contended locks",
        "goroutine": "goroutines",
        "threadcreate": "threads",
        **LATENCY_TYPES,
        "process_cpu": "time on a CPU, not for builds",
        "wall": "time on the clock",
        "memory": "memory since the profile before",
        "block_delta": "waits since the profile before",
        "mutex_delta": "contention since the profile before",
        "branches": "branches taken, for LLVM",
        "other": "anything else",
    }
)

_TABLE = (*FOCUS, "by", "sort", "n")
_GRAPH = (*FOCUS, "by", "recursion", "group", "root", "search")


class _OnApi(NamedTuple):
    """A route of the API that answers what a page shows; `taken` are the page's parameters that it takes.

    `returns` says what it returns. `otherwise` are parameters for as much as the page shows by itself.
    """

    route: str
    returns: str
    taken: tuple[str, ...]
    otherwise: Mapping[str, str] = MappingProxyType({})


_ROWS, _DRAWN = MappingProxyType({"n": "50"}), MappingProxyType({"limit": "1000"})
# For each page the routes of the API that answer the same.
_ON_API: Mapping[str, tuple[_OnApi, ...]] = MappingProxyType(
    {
        "": (
            _OnApi("flame", "The flame graph", _GRAPH, _DRAWN),
            _OnApi("merge", "The profile itself, for go tool pprof", (*LATENCIES, *PATTERNS)),
        ),
        "top": (_OnApi("top", "The table", _TABLE, _ROWS),),
        "function": (
            _OnApi("function", "The function", (*FOCUS, "function", "n"), MappingProxyType({"n": "25"})),
        ),
        "diff": (
            _OnApi("diff", "The table", (*BASE, *_TABLE), _ROWS),
            _OnApi("flame", "The flame graph", (*BASE, *_GRAPH), _DRAWN),
        ),
        "series": (
            _OnApi("series", "The shares", (*LATENCIES, "sample_type", "function", "package", "step")),
        ),
        "latency": (_OnApi("histogram", "The histogram", BASE),),
    }
)
# The parameters of which a route needs one.
_NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"function": ("function",), "diff": BASE, "series": ("function", "package")}
)
PAGES = (*_ON_API, "live", "build")


class Command(NamedTuple):
    """A command of the shell that asks the API, and what it returns."""

    returns: str
    text: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the selection: the key, some values, how many there are, and links.

    `without` leads to the page without the condition, `opposite` to the page with its opposite.
    """

    key: str
    is_negated: bool
    values: list[str]
    count: int
    without: str
    opposite: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A value in the chooser, and the number of its profiles; None if that wasn't looked for."""

    text: str
    profiles: int | None
    is_chosen: bool

    @property
    def written(self) -> str:
        """Return the value as the form sends it."""
        return _MARK + self.text


@dataclass(frozen=True, slots=True)
class Chooser:
    """The values of one label: those that are chosen, and then those with the most profiles.

    `count` is the number of values that contain `find`.
    """

    key: str
    is_negated: bool
    choices: list[Choice]
    count: int
    find: str

    @property
    def listed(self) -> int:
        """Return the number of values that are listed."""
        return len(self.choices)


@dataclass(frozen=True, slots=True)
class SelectionBar:
    """The conditions, the chooser if a label is chosen, and the commands that ask the API the same."""

    conditions: list[Condition]
    chooser: Chooser | None
    commands: list[Command]


async def selection_bar(
    request: Request, summaries: Summaries, selection: Selection, links: Links
) -> SelectionBar:
    """Return the bar for a request. Raises ParameterInvalid."""
    key, find = links.own.get(CHOOSE, ""), links.own.get(FIND, "")
    chooser = None
    if key:
        if len(key) > _LONGEST_KEY or len(find) > _LONGEST_FIND:
            raise ParameterInvalid(
                f"{CHOOSE} has at most {_LONGEST_KEY} characters, and {FIND} {_LONGEST_FIND}"
            )
        chooser = await asyncio.to_thread(_chooser, summaries, selection, key, find)
    return SelectionBar(
        [_condition(selection, links, matcher) for matcher in selection.matchers],
        chooser,
        _commands(request, links),
    )


def chosen_labels(request: Request, selection: Selection) -> str:
    """Return the labels of a selection with the condition of a chooser's form. Raises ParameterInvalid."""
    key = first_values(request).get(KEY) or ""
    if not key or len(key) > _LONGEST_KEY:
        raise ParameterInvalid(f"{KEY}: give a label, of at most {_LONGEST_KEY} characters")
    values = frozenset(text.removeprefix(_MARK) for text in request.query_params.getlist(VALUE) if text)
    matchers = [matcher for matcher in selection.matchers if matcher.key != key]
    if values:
        matchers.append(Matcher(key, values, first_values(request).get(IS) == NONE_OF))
    return _text(matchers)


def _condition(selection: Selection, links: Links, matcher: Matcher) -> Condition:
    others = [other for other in selection.matchers if other is not matcher]
    opposite = [other.negated() if other is matcher else other for other in selection.matchers]
    return Condition(
        matcher.key,
        matcher.is_negated,
        sorted(matcher.values)[:_MOST_SHOWN],
        len(matcher.values),
        links.here(labels=_text(others) or None, root=None),
        links.here(labels=_text(opposite), root=None),
    )


def _chooser(summaries: Summaries, selection: Selection, key: str, find: str) -> Chooser:
    """Return the chooser: it counts the profiles that match all conditions on other labels."""
    matcher = next((each for each in selection.matchers if each.key == key), None)
    chosen = matcher.values if matcher else frozenset()
    others = tuple(each for each in selection.matchers if each.key != key)
    around = replace(selection, matchers=others)
    values = summaries.label_values(around, key, _MOST_VALUES, find)
    profiles: dict[str, int | None] = {value.text: value.profiles for value in values.listed}
    if not find and (without := summaries.without_label(around, key)):
        profiles[""] = without
    first = sorted(chosen)
    return Chooser(
        key,
        matcher is not None and matcher.is_negated,
        [
            *(Choice(text, profiles.get(text), is_chosen=True) for text in first),
            *(Choice(text, profiles[text], is_chosen=False) for text in profiles if text not in chosen),
        ],
        values.count,
        find,
    )


def _text(matchers: list[Matcher]) -> str:
    return ",".join(matcher.text for matcher in matchers)


def _commands(request: Request, links: Links) -> list[Command]:
    """Return the commands that ask the API what the page shows; none if the page asks nothing yet."""
    needed = _NEEDED.get(links.page)
    if needed and not any(name in links.own for name in needed):
        return []
    commands = []
    for route, returns, taken, otherwise in _ON_API.get(links.page, ()):
        own = {name: text for name, text in links.own.items() if name in taken}
        url = api_url(request, route, {"service": links.service, **links.selected, **otherwise, **own})
        output = _OUTPUT if route == "merge" else ""
        commands.append(Command(returns, _COMMAND.format(url=url, output=output)))
    return commands
