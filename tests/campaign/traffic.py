"""The traffic during chaos: profiles of several services and ages, and queries."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.campaign.fleet import Marked
from tests.faults.stacks import DAY, SECOND

# How long retention keeps a profile.
KEEP_DAYS: Final = 10
OWNERS: Final = (("one", "cpu"), ("two", "cpu"), ("two", "wall"), ("expiring", "cpu"), ("probe", "cpu"))
_LABELS: Final = ("", "version=1", "version=1,pod=a", "version=1,pod=b", "version=2,pod=c")
_FORMATS: Final = ("pprof", "go", "folded", "speedscope", "json", "llvm")


def choose(now: int) -> Callable[[Random, int], Marked]:
    """Return a function that makes up profiles: new ones, some to roll up, some for retention to delete."""

    def chosen(random: Random, number: int) -> Marked:
        service, type_ = random.choice(OWNERS[:-1])
        days = random.choice((random.uniform(0, 1.5), random.uniform(3, 5)))
        if service == "expiring":
            days = random.uniform(KEEP_DAYS + 3, KEEP_DAYS + 6)
        # In whole seconds, like times in profefe's API.
        taken = (now - int(days * DAY)) // SECOND * SECOND
        base = random.randrange(100) if type_ == "cpu" and random.random() < 0.2 else -1
        labels = random.choice(_LABELS)
        return Marked(number, service, type_, labels, taken, base, undated=random.random() < 0.1)

    return chosen


def _merge(random: Random) -> tuple[str, str, dict[str, str]]:
    service, type_ = random.choice(OWNERS)
    query = {"service": service, "type": type_, "format": random.choice(_FORMATS)}
    if random.random() < 0.3:
        query["labels"] = random.choice(("version=1", "version!=2", "pod=a"))
    return "GET", "/v1/merge", query


def _combine(random: Random) -> tuple[str, str, dict[str, str]]:
    service, type_ = random.choice(OWNERS)
    return "POST", "/v1/merge", {"service": service, "type": type_, "and_combine": "true"}


def _query(random: Random) -> tuple[str, str, dict[str, str]]:
    service, type_ = random.choice(OWNERS)
    path, query = random.choice(
        (
            ("/v1/top", {"by": random.choice(("function", "package"))}),
            ("/v1/series", {"package": "runtime", "step": "day"}),
            ("/v1/diff", {"base_labels": "version=1"}),
            ("/v1/profiles", {"limit": "20"}),
            ("/v1/report", {}),
        )
    )
    return "GET", path, {"service": service, "type": type_, **query}


def _release(random: Random) -> tuple[str, str, dict[str, str]]:
    method, path = random.choice((("GET", "/v1/release"), ("GET", "/v1/releases"), ("POST", "/v1/releases")))
    return method, path, {"service": random.choice(("one", "two"))}


def _services(_: Random) -> tuple[str, str, dict[str, str]]:
    return "GET", "/v1/services", {}


QUERIES: Final = (_merge, _merge, _merge, _combine, _query, _query, _release, _services)
