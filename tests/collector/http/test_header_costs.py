"""No header takes long to read, whatever is in it: each is sent with hostile values."""

from __future__ import annotations

import os

import pytest

from tests.cpu_meter import cpu_seconds_for
from tests.faults.connections import connect, received, statuses
from tests.faults.stacks import profile_of
from tests.processes import stat_of
from tests.server import Server

MOST_BYTES = 63_000
# For all values of a header to all routes, of which a parser in quadratic time takes more for one.
MOST_SECONDS = 1.0
HEADERS = (
    "Accept", "Accept-Encoding", "Authorization", "Connection", "Content-Encoding", "Content-Length",
    "Content-Type", "Cookie", "DD-API-KEY", "Expect", "Host", "If-None-Match", "Origin",
    "OTLP-Profiles-Development-Version", "PGO-Trace-Signature", "PGO-Trace-Steps",
    "Sec-Fetch-Site", "Transfer-Encoding", "Upgrade", "X-Datadog-Additional-Tags", "X-Forwarded-Proto",
    "X-Request-Start", "X-Scope-OrgID", "X-Trace-HMAC", "X-Trace-Info",
    "traceparent",
)  # fmt: skip
BEGINS = {
    "Content-Type": 'multipart/form-data; x="',
    "Cookie": 'pgo_session="',
    "Authorization": "Basic ",
    "If-None-Match": '"',
    "Origin": "http://",
    "Accept": "text/html;q=",
}
PIECES = (
    "\\",
    ";",
    '"',
    ",",
    "(",
    " ,",
    '\\"',
    "; ",
    "a=",
    '"a", ',
    "\\054",
    "[",
    ":",
    "%41",
    "é",
    "a",
    "\t",
)
ROUTES = (
    ("GET", "/ui/"),
    ("POST", "/ui/sign-in"),
    ("GET", "/v1/release"),
    ("GET", "/nowhere"),
    ("POST", "/ingest?name=s"),
    ("POST", "/profiling/v1/input?service=s"),
    ("POST", "/v1development/profiles"),
)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far, without its children."""
    return sum(map(int, stat_of(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_takes_no_longer_than_its_length_asks_for(shared: Server, header: str) -> None:
    pid = shared.process.pid
    assert shared.submit(profile_of("a")).status_code == 204
    before = cpu_seconds(pid)
    for piece in PIECES:
        begin = BEGINS.get(header, "")
        value = (begin + piece * MOST_BYTES)[:MOST_BYTES] + '"'
        for method, path in ROUTES:
            key = shared.merge_key if method == "GET" else shared.submit_key
            with connect(shared) as connection:
                connection.sendall(request(method, path, key, header, value))
                assert statuses(received(connection))
    assert cpu_seconds(pid) - before < cpu_seconds_for(MOST_SECONDS)


def request(method: str, path: str, key: str, header: str, value: str) -> bytes:
    """Return a request without a body that has this value in this header."""
    others = {"Host": "collector", "Authorization": f"Bearer {key}", "Content-Length": "0"}
    headers = {**others, header: value}
    lines = (
        f"{method} {path} HTTP/1.1",
        "Connection: close",
        *(f"{name}: {text}" for name, text in headers.items()),
        "",
        "",
    )
    return "\r\n".join(lines).encode("latin-1")
