"""No header takes long to read, whatever is in it: each is sent with hostile values, as large as may be."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pgo_collector
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgo_collector.connections.requests import FIELD_BYTES

from tests.cpu_meter import cpu_seconds_for
from tests.faults.connections import connect, received, statuses
from tests.faults.stacks import profile_of
from tests.processes import stat_of
from tests.server import Server

pytestmark = pytest.mark.any_store
# As many as the bound of all headers has room for, of one that may come several times.
MOST_LINES = 7
# For all values of a header to all routes, of which a parser in quadratic time takes more for a few.
MOST_SECONDS = 1.0
# For one value of a header to all routes.
MOST_SECONDS_OF_ONE = 0.1
ONCE = ("Content-Length", "Host", "Transfer-Encoding")
HEADERS = (
    *ONCE, "Accept", "Accept-Encoding", "Authorization", "Connection", "Content-Encoding", "Content-Type",
    "Cookie", "DD-API-KEY", "Expect", "Forwarded", "If-Modified-Since", "If-None-Match", "If-Range", "Origin",
    "OTLP-Profiles-Development-Version", "PGO-Trace-Signature", "PGO-Trace-Steps", "Range",
    "Sec-Fetch-Site", "Upgrade", "X-Datadog-Additional-Tags", "X-Forwarded-For", "X-Forwarded-Proto",
    "X-Request-Start", "X-Scope-OrgID", "X-Trace-HMAC", "X-Trace-Info", "traceparent",
)  # fmt: skip
BEGINS = {
    "Content-Type": 'multipart/form-data; x="',
    "Cookie": 'pgo_session="',
    "Authorization": "Basic ",
    "If-None-Match": '"',
    "Origin": "http://",
    "Accept": "text/html;q=",
    "Range": "bytes=",
    "If-Modified-Since": "Wed, ",
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
    ("GET", "/ui/static/pages.css"),
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


def ask_all(server: Server, header: str, repeated: str) -> float:
    """Send a header of this text again and again to all routes; return the CPU time of the server."""
    begin, pid = BEGINS.get(header, ""), server.process.pid
    value = (begin + repeated * FIELD_BYTES)[: FIELD_BYTES - len(header) - 1] + '"'
    before = cpu_seconds(pid)
    for method, path in ROUTES:
        key = server.merge_key if method == "GET" else server.submit_key
        with connect(server) as connection:
            connection.sendall(request(method, path, key, header, value))
            found = statuses(received(connection))
            assert found
            assert found != [431]
    return cpu_seconds(pid) - before


@pytest.fixture
def asked(shared: Server) -> Server:
    """Return a server that has imported what the first requests to these routes need."""
    ask_all(shared, HEADERS[0], "x")
    return shared


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_takes_no_longer_than_its_length_asks_for(asked: Server, header: str) -> None:
    assert asked.submit(profile_of("a")).status_code == 204
    assert sum(ask_all(asked, header, piece) for piece in PIECES) < cpu_seconds_for(MOST_SECONDS)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    header=st.sampled_from(HEADERS),
    pieces=st.lists(st.sampled_from(PIECES) | st.text(st.characters(min_codepoint=32, max_codepoint=126))),
)
def test_a_header_of_anything_takes_a_short_time(asked: Server, header: str, pieces: list[str]) -> None:
    # What the server does beside, such as making rows, is counted too; it doesn't do that each time.
    bound = cpu_seconds_for(MOST_SECONDS_OF_ONE)
    assert any(ask_all(asked, header, "".join(pieces) or "x") < bound for _ in range(3))


def test_no_header_is_left_out_here() -> None:
    package = Path(pgo_collector.__file__).parent
    texts = (file.read_text() for file in package.rglob("*.py"))
    read = {name for text in texts for name in re.findall(r'equest\.headers\.get(?:list)?\("([^"]+)"', text)}
    assert len(read) > 10
    assert read <= {*HEADERS}


def request(method: str, path: str, key: str, header: str, value: str) -> bytes:
    """Return a request without a body that has this value in this header, in as many lines as may be."""
    others = {"Host": "collector", "Authorization": f"Bearer {key}", "Content-Length": "0"}
    others.pop(header, None)
    count = 1 if header in ONCE else MOST_LINES
    lines = (
        f"{method} {path} HTTP/1.1",
        "Connection: close",
        *(f"{name}: {text}" for name, text in others.items()),
        *[f"{header}: {value}"] * count,
        "",
        "",
    )
    return "\r\n".join(lines).encode("latin-1")
