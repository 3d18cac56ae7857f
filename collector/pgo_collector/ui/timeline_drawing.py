"""The timeline of a selection: a bar for each step, in a box that is stretched to fit the page.

It is drawn by hand: docs/ui.md has the libraries that were tried, under "How they are drawn". None has marks
and steps that a script can brush.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pgo_collector.catalog.summaries import LabelValue
from pgo_collector.errors import NoSuchRelease, ReleaseDamaged
from pgo_collector.model.times import DAY_NANOS, format_time
from pgo_collector.queries.activity import SECOND, Activity
from pgo_collector.releases.folder import Releases
from pgo_collector.releases.records import Release
from pgo_collector.ui.amounts import amount, count, cut
from pgo_collector.ui.links import Links

WIDTH, HEIGHT = 1000, 100
# The totals are above, the numbers of profiles below.
_TOTALS, _PROFILES = 72, 22
_MOST_RELEASES = 12
# Whole seconds that a selection can begin and end with.
_EARLIEST, _LATEST = -(1 << 63) + SECOND, (1 << 63) - SECOND
_LAST = {"hour": "1h", "day": "24h", "week": "7d", "30 days": "30d", "all": None}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LENGTHS = ((DAY_NANOS, "day"), (3600 * SECOND, "hour"), (60 * SECOND, "minute"), (SECOND, "second"))


@dataclass(frozen=True, slots=True)
class Mark:
    """A version that is seen from a time on, or a release of that time; `left` is in units of the box."""

    kind: str
    name: str
    time: str
    left: float


@dataclass(frozen=True, slots=True)
class Step:
    """A step with profiles: its place in the box, and its tooltip."""

    left: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The bars as paths, the steps, and the marks; `begin` is in s since 1970, and `seconds` is a step's.

    `highest` is the largest total of a step, or "" where totals aren't known.
    """

    totals: str
    profiles: str
    steps: list[Step]
    marks: list[Mark]
    times: list[str]
    begin: int
    seconds: int
    count: int
    step: str
    highest: str
    most: int

    @property
    def versions(self) -> int:
        """Return the number of versions that are marked."""
        return sum(mark.kind == "version" for mark in self.marks)

    @property
    def releases(self) -> int:
        """Return the number of releases that are marked."""
        return len(self.marks) - self.versions


def timeline_of(activity: Activity, versions: Iterable[LabelValue], releases: Iterable[Release]) -> Timeline:
    """Return the drawing of an activity, with the first profile of each version, and the releases."""
    width = WIDTH / len(activity.profiles)
    totals = [max(0, total) for total in activity.totals or []]
    highest, most = max(totals, default=0), max(activity.profiles)
    below = _PROFILES if highest else HEIGHT
    begin, length = activity.begin // SECOND, activity.width // SECOND
    said = activity.sample_type if highest else None
    steps = [
        Step(
            round(at * width, 2),
            round(width, 2),
            f"{_moment(activity.begin + at * activity.width)}:"
            + (f" {amount(totals[at], said)} of {cut(said.type, 40)}," if said else "")
            + f" {count(number)} profile{'s' if number != 1 else ''}",
        )
        for at, number in enumerate(activity.profiles)
        if number
    ]
    marks = [
        *(("version", value.text, value.begin_nanos) for value in versions),
        *(("release", str(each.number), int(each.time.timestamp()) * SECOND) for each in releases),
    ]
    span = activity.end - activity.begin
    times = (activity.begin, activity.begin + span // 2, activity.end)
    return Timeline(
        totals=_path(totals, highest, _TOTALS, _TOTALS) if highest else "",
        profiles=_path(activity.profiles, most, HEIGHT, below),
        steps=steps,
        marks=[
            Mark(
                kind,
                name,
                _moment(nanos),
                round(WIDTH * (nanos - activity.begin) / span, 2),
            )
            for kind, name, nanos in sorted(marks, key=lambda mark: mark[2])
            if activity.begin <= nanos < activity.end
        ],
        times=[_moment(nanos) for nanos in times],
        begin=begin,
        seconds=length,
        count=len(activity.profiles),
        step=_length(activity.width),
        highest=amount(highest, said) if said else "",
        most=most,
    )


def newest_releases(releases: Releases) -> list[Release]:
    """Return the newest releases of a service but damaged ones."""
    found = []
    for number in releases.numbers()[:_MOST_RELEASES]:
        with suppress(NoSuchRelease, ReleaseDamaged):
            found.append(releases.release(number))
    return found


def _path(values: Sequence[int], highest: int, bottom: float, height: float) -> str:
    """Return a bar for each value but 0 as a path; the highest has the whole height above the bottom."""
    width = WIDTH / len(values)
    wide = f"{width * 0.86:.2f}"
    return "".join(
        f"M{at * width:.2f},{bottom}v-{max(height * value / highest, 0.8):.2f}h{wide}V{bottom}z"
        for at, value in enumerate(values)
        if value
    )


def _moment(nanos: int) -> str:
    """Return a time to the minute, or to the second if it isn't a whole minute."""
    moment = _EPOCH + timedelta(seconds=nanos // SECOND)
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment.second else f"{moment:%Y-%m-%d %H:%M}"


def _length(nanos: int) -> str:
    """Return a length of time in the largest unit that it is whole in: `10 minutes`."""
    unit, name = next((unit, name) for unit, name in _LENGTHS if nanos % unit == 0)
    number = nanos // unit
    return f"{number:,} {name}{'s' if number != 1 else ''}"


def presets(links: Links, activity: Activity) -> list[tuple[str, str]]:
    """Return names and links of times around that of an activity, and of the last hour, day, week and month.

    There are none on a page about a very long name.
    """
    if not links.are_short:
        return []
    begin, end = activity.begin, activity.end
    span = end - begin
    around = {
        "← earlier": (begin - span, begin),
        "wider": (begin - span // 2, end + span // 2),
        "later →": (end, end + span),
    }
    return [
        *(
            (name, links.here(**{"from": _written(since), "to": _written(to), "last": None, "root": None}))
            for name, (since, to) in around.items()
        ),
        *(
            (name, links.here(**{"last": last, "from": None, "to": None, "root": None}))
            for name, last in _LAST.items()
        ),
    ]


def _written(nanos: int) -> str:
    """Return a time as the pages write it in links: in whole seconds, and one that profiles can have."""
    return format_time(min(max(nanos, _EARLIEST), _LATEST) // SECOND * SECOND)
