"""The pages of a large profile, and of many profiles: the cost of each for the server, and its size."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.bench.report import Section, seconds, table
from tests.bench.rig import LARGE, Rig
from tests.bench.serving import Request, Serving, ours
from tests.merge.stacked import stacked
from tests.oracle.builder import seeded
from tests.oracle.oracle import go_root
from tests.server import Server

_SERVICE = "/ui/services/compiler"
_TIMES = 20
_MANY = "/ui/services/many"
_VALUES = 500
_MINUTE = 60 * 10**9
_STACKS = 40


class Page(NamedTuple):
    """A page: its name, the target for its cost, and its path."""

    name: str
    asked: str
    path: str


def sections(rig: Rig) -> list[Section]:
    """Measure the tables."""
    return [_of_a_large_profile(rig), _of_many_profiles(rig)]


def _of_a_large_profile(rig: Rig) -> Section:
    # With nothing kept, each request computes its page.
    with Server(rig.scratch / "pages", {"PGOF_PAGES_MEGABYTES": "0"}) as server:
        profile = (go_root() / "src/cmd/compile/default.pgo").read_bytes()
        server.submit(profile, query={"service": "compiler"}).raise_for_status()
        cookie = _cookie(server)
        with ours(server) as serving:
            flame = serving.ask(Request("GET", _SERVICE, cookie=cookie)).body.decode()
            # The first link is that of the whole graph, the second that of the largest call.
            _, largest, *_ = re.findall(r'<a href="(\?root=[0-9a-f]+)">', flame)
            rows = []
            for page in _pages(largest):
                request = Request("GET", page.path, cookie=cookie)
                size = len(serving.ask(request).body)
                cost = serving.cost([[request]] * rig.rounds(_TIMES))
                rows.append([page.name, page.asked, *map(seconds, cost[:2]), f"{size / 1000:.0f} KB"])
    head = ("page", "asked", "CPU", "clock", "size")
    return Section(
        "Pages",
        f"""{table(head, rows)}

Pages of the merged profile of Go's compiler, with 17,000 samples, requested over a kept connection. CPU is
the time of all the server's processes; no answer is kept from one request to the next.""",
    )


def _of_many_profiles(rig: Rig) -> Section:
    count = rig.count(LARGE)
    with Server(rig.scratch / "many-pages") as server:
        submits = _submits(count + 2 * len(_PAGES_OF_MANY))
        with ours(server) as serving:
            for _ in range(count):
                serving.ask(next(submits))
            cookie = _cookie(server)
            rows = [
                [
                    page.name,
                    page.asked,
                    *_costs(rig, serving, Request("GET", page.path, cookie=cookie), submits),
                ]
                for page in _PAGES_OF_MANY
            ]
    head = ("page", "asked", "CPU after a new profile", "CPU again", "clock again", "size")
    return Section(
        "Pages of a service with many profiles",
        f"""{table(head, rows)}

Pages of a service with {count:,} profiles of {_STACKS} stacks each, one a minute, of {_VALUES} versions.
CPU is the time of all the server's processes. Each page is opened first after a new profile came, and then
again.""",
    )


def _costs(rig: Rig, serving: Serving, request: Request, submits: Iterator[Request]) -> list[str]:
    """Return the cost of a page when it is opened after a new profile came, and again, and its size."""
    serving.ask(request)  # imports and templates are loaded once
    serving.ask(next(submits))
    cold = serving.cost([[request]])
    warm = serving.cost([[request]] * rig.rounds(_TIMES))
    size = len(serving.ask(request).body)
    return [*map(seconds, (cold.cpu, warm.cpu, warm.wall)), f"{size / 1000:.0f} KB"]


def _submits(count: int) -> Iterator[Request]:
    """Yield the submits of a service's profiles, one a minute up to now."""
    random, now = seeded(21), time.time_ns()
    names = [f"main.main;net/http.serve;shop.step{number};runtime.call{number % 7}" for number in range(300)]
    for number in range(count):
        stacks = dict.fromkeys(random.sample(names, _STACKS), 1 + number % 9)
        content = stacked(stacks, time_nanos=now - (count - number) * _MINUTE)
        path = f"/v1/submit?service=many&labels=version=1.{number % _VALUES},region=r{number % 5}"
        yield Request("POST", path, content, Server.submit_key)


def _cookie(server: Server) -> str:
    signed_in = server.client.post("/ui/sign-in", data={"key": server.merge_key})
    return signed_in.headers["Set-Cookie"].partition(";")[0]


def _pages(largest: str) -> list[Page]:
    return [
        Page("flame graph", "< 300 ms of CPU, < 300 KB", _SERVICE),
        Page("the same, zoomed to its largest call", "", f"{_SERVICE}{largest}"),
        Page("the same, with a search", "", f"{_SERVICE}?search=mallocgc"),
        Page("top", "", f"{_SERVICE}/top"),
        Page("a package over time", "", f"{_SERVICE}/series?package=runtime"),
        Page("build", "", f"{_SERVICE}/build"),
        Page("services", "", "/ui/"),
    ]


_ASKED = "< 500 ms of CPU, then < 100 ms"
_PAGES_OF_MANY = [
    Page("flame graph", _ASKED, _MANY),
    Page("the same, with values to choose", _ASKED, f"{_MANY}?choose=version"),
    Page(
        "the same, of 20 values",
        _ASKED,
        f"{_MANY}?labels=version%3D" + "%7C".join(f"1.{n}" for n in range(20)),
    ),
    Page("the same, of the last day", _ASKED, f"{_MANY}?last=24h"),
    Page("top", _ASKED, f"{_MANY}/top"),
    Page("function", _ASKED, f"{_MANY}/function?function=net/http.serve"),
    Page("the fleet", _ASKED, "/ui/"),
]
