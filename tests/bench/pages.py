"""The pages of a large profile: the cost of each for the server, and its size."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.bench.report import Section, seconds, table
from tests.bench.rig import Rig
from tests.bench.serving import Request, ours
from tests.oracle.oracle import go_root
from tests.server import Server

_SERVICE = "/ui/services/compiler"
_TIMES = 20


class Page(NamedTuple):
    """A page: its name, the target for its cost, and its path."""

    name: str
    asked: str
    path: str


def sections(rig: Rig) -> list[Section]:
    """Measure the table."""
    with Server(rig.scratch / "pages") as server:
        profile = (go_root() / "src/cmd/compile/default.pgo").read_bytes()
        server.submit(profile, query={"service": "compiler"}).raise_for_status()
        signed_in = server.client.post("/ui/sign-in", data={"key": server.merge_key})
        cookie = signed_in.headers["Set-Cookie"].partition(";")[0]
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
    return [
        Section(
            "Pages",
            f"""{table(head, rows)}

Pages of the merged profile of Go's compiler, with 17,000 samples, requested over a kept connection. CPU is
the time of all the server's processes.""",
        )
    ]


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
