"""Comparisons that a service's profiles offer: each is a name and a link to the page of the difference.

A version with the one before it, the time after a release with the time before, this week with the last one,
and an instance with all others; and any two groups of a flame graph.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import quote

from pprof_merge.analysis import FlameGraph

from pgo_collector.blobs.storage import Storage
from pgo_collector.catalog.summaries import INSTANCE, VERSION, LabelValue, Summary
from pgo_collector.errors import NoSuchRelease, ReleaseDamaged
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.model.series import Series
from pgo_collector.model.times import DAY_NANOS, format_time
from pgo_collector.releases.folder import Releases
from pgo_collector.ui.amounts import cut
from pgo_collector.ui.links import Links

_WEEK = 7 * DAY_NANOS
_SECOND = 10**9
_MOST_VERSIONS = 3
_MOST_INSTANCES = 4
_LONGEST_VALUE = 20


class Comparison(NamedTuple):
    """A comparison: what is compared, and the link to it."""

    name: str
    link: str


def comparisons(
    selection: Selection, links: Links, summary: Summary, released_nanos: int | None, now_nanos: int
) -> list[Comparison]:
    """Return the comparisons that there are profiles for.

    `released_nanos` is when the current release was made; None if there is none. Times are in ns since 1970.
    """
    found = [*_of_versions(selection, links, summary)]
    if selection.begin is None and selection.end is None:
        found += _of_times(links, summary, released_nanos, now_nanos)
    return [*found, *_of_instances(selection, links, summary)]


class Group(NamedTuple):
    """A group of a flame graph: the value of the label, and the condition that selects its profiles."""

    value: str
    matcher: str


def groups_of(graph: FlameGraph, key: str) -> list[Group]:
    """Return the groups of a graph that is grouped by a label, the largest first.

    Of the two largest, the later in the alphabet comes first, as a new version is compared with an older one.
    What has none of the label's largest values is no group of its own.
    """
    if not key:
        return []
    weights, found = graph.weight.tolist(), list[Group]()
    nodes = [node for node, parent in enumerate(graph.parent.tolist()) if parent == 0]
    for node in sorted(nodes, key=lambda node: -weights[node]):
        name = graph.names[node]
        value = "" if name == f"without {key}" else name.removeprefix(f"{key}=")
        if value != name:
            found.append(Group(value, Matcher(key, frozenset([value])).text))
    return [*sorted(found[:2], reverse=True), *found[2:]]


def release_time(blobs: Storage, service: str) -> int | None:
    """Return when a service's current release was made, in ns since 1970; None if there is none."""
    releases = Releases(blobs, Series(service, CPU))
    with suppress(ReleaseDamaged, NoSuchRelease):
        choice = releases.choice()
        return None if choice is None else _nanos(releases.release(choice.number).time)
    return None


def _of_versions(selection: Selection, links: Links, summary: Summary) -> list[Comparison]:
    latest = [] if _has_matcher(selection, VERSION) else [*summary.versions.listed]
    return [
        Comparison(
            f"version {_short(newer)} and {_short(older)} before it",
            _by_label(links, f"version={_quoted(newer)}", f"version={_quoted(older)}"),
        )
        for newer, older in pairwise(latest[: _MOST_VERSIONS + 1])
    ]


def _of_times(links: Links, summary: Summary, released_nanos: int | None, now_nanos: int) -> list[Comparison]:
    begin, end = summary.begin_nanos, summary.end_nanos
    found = []
    if released_nanos is not None and begin < released_nanos <= end:
        found.append(Comparison("after and before the current release", _by_time(links, released_nanos)))
    week_ago = now_nanos - _WEEK
    if begin < week_ago <= end:
        base_to = _written(week_ago)
        link = links.to("diff", last="7d", base_last="7d", base_to=base_to)
        found.append(Comparison("this week and the one before", link))
    if end - begin > DAY_NANOS:
        found.append(Comparison("the last day and all before it", _by_time(links, end - DAY_NANOS)))
    if end - begin > _SECOND:
        found.append(Comparison("the later and the earlier half", _by_time(links, (begin + end) // 2)))
    return found


def _of_instances(selection: Selection, links: Links, summary: Summary) -> list[Comparison]:
    """Return a comparison of each of the instances seen last with all others."""
    if _has_matcher(selection, INSTANCE) or summary.instances.count < 2:
        return []
    return [
        Comparison(
            f"host {_short(instance)} and the rest",
            _by_label(links, f"instance={_quoted(instance)}", f"instance!={_quoted(instance)}"),
        )
        for instance in summary.instances.listed[:_MOST_INSTANCES]
    ]


def _has_matcher(selection: Selection, key: str) -> bool:
    return any(matcher.key == key for matcher in selection.matchers)


def _by_label(links: Links, now: str, base: str) -> str:
    """Return the link for the selection with one more matcher on each side."""
    selected = links.selected.get("labels", "")
    both = [",".join(filter(None, (selected, matcher))) for matcher in (now, base)]
    return links.to("diff", labels=both[0], base_labels=both[1])


def _by_time(links: Links, nanos: int) -> str:
    return links.to("diff", **{"from": _written(nanos), "base_to": _written(nanos)})


def _written(nanos: int) -> str:
    return format_time(nanos - nanos % _SECOND)


def _nanos(moment: datetime) -> int:
    return int(moment.timestamp()) * _SECOND


def _short(value: LabelValue) -> str:
    return cut(value.text, _LONGEST_VALUE)


def _quoted(value: LabelValue) -> str:
    return quote(value.text, safe="")
