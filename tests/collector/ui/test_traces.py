"""The pages of traces: the list, a waterfall, who sees which, and that no name does harm."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.spans import Span
from pgo_collector.traces.trace_store import FILE, TraceStore
from pgo_collector.ui.headers import PAGES_POLICY
from pprof_proto.profile_pb2 import Profile

from tests.collector.hostile_names import HOSTILE
from tests.collector.queries.test_ids import SPANS, TRACES
from tests.collector.recorded_traces import SUBMIT, hostile_trace, put_traces
from tests.collector.ui.test_pages import assert_ours
from tests.collector.visitor import Page, Visitor
from tests.faults.stacks import SECOND, profile_of
from tests.server import Server

pytestmark = pytest.mark.any_store


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("pages"))
    server.merge_keys.write_text(
        f"{server.merge_key}\nkey-of-apisvc service=apisvc\nkey-of-other service=o-*\n"
    )
    with server:
        put_traces(server)
        yield server


@pytest.fixture
def visitor(server: Server) -> Visitor:
    return Visitor(server)


def test_the_list_leads_to_a_waterfall(visitor: Visitor) -> None:
    assert "/ui/traces" in visitor.page("/ui/").links()
    listed = visitor.page("/ui/traces")
    assert f"/ui/traces/{SUBMIT}" in listed.links()
    page = visitor.page(f"/ui/traces/{SUBMIT}")
    assert page.answer.headers["Content-Security-Policy"] == PAGES_POLICY
    assert "Took 9.40 ms" in page.text
    rows = [tag.text for tag in page.all("th", scope="row")]
    assert [row.split("  ")[0].strip() for row in rows][:3] == ["proxy", "POST /v1/submit", "key check"]
    bars = [tag for tag in page.all("rect") if "x" in tag.attributes and "height" in tag.attributes]
    widths = [float(tag.attributes["width"]) for tag in bars if tag.attributes["height"] == "12"]
    assert len(widths) == len(rows)
    assert max(widths) == widths[0] == 1000


def test_the_list_is_narrowed_down_by_its_links_and_form(visitor: Visitor) -> None:
    path = f"/ui/traces/{SUBMIT}"
    slowest = [
        link for link in visitor.page("/ui/traces", order="slowest").links() if link.startswith("/ui/traces/")
    ]
    assert slowest[0] == path
    assert path in visitor.page("/ui/traces", service="apisvc").links()
    queries: list[dict[str, str]] = [{"errors": "true"}, {"service": "other"}, {"to": "2020-01-01"}]
    for query in queries:
        assert path not in Page(visitor.get("/ui/traces", None, **query)).links()
    (earlier,) = (tag for tag in visitor.page("/ui/traces", limit="1").all("a") if "rel" in tag.attributes)
    following = visitor.page(earlier.attributes["href"])
    assert path not in following.links()
    assert f"/ui/traces/{hostile_trace(0)}" in following.links()
    visitor.page("/ui/traces", 400, order="oldest")


def test_a_visitor_sees_the_traces_of_the_key(server: Server) -> None:
    paths = {f"/ui/traces/{SUBMIT}", f"/ui/traces/{hostile_trace(0)}"}
    for key, seen in (("key-of-apisvc", {f"/ui/traces/{SUBMIT}"}), ("key-of-other", set())):
        visitor = Visitor(server, key)
        assert paths & {*visitor.page("/ui/traces").links()} == seen
        for path in paths:
            visitor.page(path, 200 if path in seen else 404)
        visitor.page("/ui/traces", 403, service="elsewhere")
    stranger = Visitor(server, None)
    for path in ("/ui/traces", *paths):
        assert stranger.get(path).status_code == 303


def test_a_trace_leads_to_the_samples_taken_meanwhile(tmp_path: Path) -> None:
    """A link is there only if there are some; those with the trace's id come before others."""
    with Server(tmp_path) as server:
        server.merge_keys.write_text(f"{server.merge_key}\nkey-of-other service=o-*\n")
        put_traces(server)
        visitor, path = Visitor(server), f"/ui/traces/{SUBMIT}"
        (listed,) = server.ask("/v1/traces", service="apisvc").json()["traces"]
        begin = int(datetime.fromisoformat(listed["time"]).timestamp() * SECOND)

        def samples() -> list[str]:
            return [link for link in visitor.page(path).links() if link.startswith("/ui/services/apisvc?")]

        # An hour before, after it, of another service, and of a type that shows no time.
        for name, minutes, query in (
            ("before", -90, {}),
            ("after", 1, {}),
            ("elsewhere", 0, {"service": "other"}),
            ("delay", 0, {"type": "offcpu"}),
        ):
            profile = profile_of(
                name, time_nanos=begin + minutes * 60 * SECOND, type_="delay" if "type" in query else "cpu"
            )
            assert server.submit(profile, query={"service": "apisvc", **query}).status_code == 204
        assert samples() == []

        def taken(seconds_before: float, trace: str) -> bytes:
            """Return the profile with spans as one of this time, with a trace's id on the samples of one."""
            profile = Profile.FromString(gzip.decompress(SPANS.read_bytes()))
            profile.time_nanos = begin - int(seconds_before * SECOND)
            at = [*profile.string_table].index(TRACES[0].encode())
            profile.string_table[at] = trace.encode()
            return profile.SerializeToString()

        assert server.submit(taken(1, TRACES[0]), query={"service": "apisvc"}).status_code == 204
        (link,) = samples()
        assert "trace_id" not in link
        assert "Samples taken meanwhile" in visitor.page(path).text
        assert "1 profile" in visitor.page(link).text
        assert server.submit(taken(0.5, SUBMIT), query={"service": "apisvc"}).status_code == 204
        (link,) = samples()
        assert f"trace_id={SUBMIT}" in link
        assert "Samples of this trace" in visitor.page(path).text
        assert f"trace is {SUBMIT}" in visitor.page(link).text
        # Traces of what is no service have none.
        for at in range(len(HOSTILE)):
            assert "Samples" not in visitor.page(f"/ui/traces/{hostile_trace(at)}").text


@pytest.mark.parametrize("at", range(len(HOSTILE)))
def test_no_name_of_a_step_does_harm(visitor: Visitor, at: int) -> None:
    for path in ("/ui/traces", f"/ui/traces/{hostile_trace(at)}"):
        page = visitor.page(path)
        assert_ours(page)
        assert b"<script>alert" not in page.answer.content
        assert "Set-Cookie" not in page.answer.headers
        assert len(page.answer.content) < 300_000
    assert "7 further steps" in visitor.page(f"/ui/traces/{hostile_trace(at)}").text


def test_a_large_trace_is_a_page_of_bounded_size(server: Server, visitor: Visitor) -> None:
    span = Span("1", "", "http", "GET /", 10**18, 10**18 + 5, {})
    spans = [span._replace(id=str(number), parent="1" if number > 1 else "") for number in range(1, 5000)]
    store = TraceStore(server.data / FILE, float("inf"), 64)
    store.write([RequestTrace("c" * 32, "apisvc", 200, spans)])
    store.close()
    page = visitor.page(f"/ui/traces/{'c' * 32}")
    assert "Only the first 1,000 steps" in page.text
    assert len(page.answer.content) < 600_000


def test_without_traces_the_page_says_how_to_have_some(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Server(tmp_path_factory.mktemp("none")) as server:
        visitor = Visitor(server)
        assert "PGOF_TRACE_KEYS_FILE" in visitor.page("/ui/traces").text
        visitor.page(f"/ui/traces/{SUBMIT}", 404)
        (server.data / FILE).write_bytes(b"no database" * 1000)
        visitor.page("/ui/traces", 503)
