"""Hostile names of functions and labels."""

from __future__ import annotations

import time
from urllib.parse import quote

from tests.merge.stacked import stacked
from tests.server import Server

_DAY = 86400 * 10**9
_LONGEST_LABEL = 80
# Characters that functions may have and labels may not.
_CONTROLS = str.maketrans(dict.fromkeys((0, 10, 13, 27), " "))

HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>'",
    "</title></svg></a><script src=//elsewhere.example></script>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "line\r\nSet-Cookie: a=b",
    "\x00\x1b[31m\u202egnp\ud83d".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
    "x" * 10_000,
    "/" * 5_000 + "<" * 5_000,
]


def label_of(name: str) -> str:
    """Return a version label with a name, as a value of the parameter `labels`."""
    return f"version={quote(name[:_LONGEST_LABEL].translate(_CONTROLS), safe='')}"


def submit_hostile(server: Server) -> None:
    """Submit profiles of the service `hostile`: each has all names as functions, and one as its version."""
    stacks = {
        ";".join(("main.main", name.replace(";", ":"), "main.leaf")): 5 + at
        for at, name in enumerate(HOSTILE)
    }
    for day, name in enumerate(HOSTILE):
        query = {"service": "hostile", "labels": label_of(name)}
        profile = stacked(stacks, time_nanos=time.time_ns() // _DAY * _DAY - day * _DAY)
        answer = server.submit(profile, query=query)
        assert answer.status_code == 204, answer.text
