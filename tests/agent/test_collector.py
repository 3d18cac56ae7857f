"""Test the client against a real HTTP server on loopback with scripted answers."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from types import FunctionType

import pgo_agent
import pytest
from pgo_agent import AgentError, Collector, CollectorUnavailable, KeyRefused, SubmitRefused

from tests.agent.scripted_server import KEY, Answer, ScriptedServer, problem

PROFILE = bytes(range(256)) * 40


@pytest.fixture
def collector(server: ScriptedServer) -> Iterator[Collector]:
    with Collector(server.url, KEY, backoff=0.01, attempts=3) as client:
        yield client


Submit = Callable[[Collector, bytes], None]


@pytest.fixture(params=["sync", "async"])
def submit(request: pytest.FixtureRequest) -> Submit:
    """Return each of the two ways to submit."""

    def asynchronously(collector: Collector, profile: bytes) -> None:
        asyncio.run(collector.submit_async(profile))

    return Collector.submit if request.param == "sync" else asynchronously


def test_the_public_api_is_all() -> None:
    public = {name for name, value in vars(pgo_agent).items() if isinstance(value, type | FunctionType)}
    assert public == set(pgo_agent.__all__)


@pytest.mark.parametrize("status", [200, 204])
def test_a_profile_is_submitted_with_the_key(
    server: ScriptedServer, collector: Collector, status: int, submit: Submit
) -> None:
    server.answers = [Answer(status)]
    submit(collector, PROFILE)
    (seen,) = server.seen
    assert seen.profile == PROFILE
    assert seen.path == "/v1/submit"
    assert seen.headers["Authorization"] == f"Bearer {KEY}"
    assert seen.headers["Content-Length"] == str(len(seen.body))


@pytest.mark.parametrize(
    ("suffix", "path"),
    [
        ("", "/v1/submit"),
        ("/", "/v1/submit"),
        ("/v1/submit", "/v1/submit"),
        ("/v1/submit/", "/v1/submit"),
        ("/pgo/", "/pgo/v1/submit"),
        ("/pgo/v1/submit", "/pgo/v1/submit"),
        ("/v1/submit?by=agent", "/v1/submit?by=agent"),
    ],
)
def test_the_url_may_be_the_base_or_the_submit_route(server: ScriptedServer, suffix: str, path: str) -> None:
    with Collector(server.url + suffix, KEY) as client:
        client.submit(PROFILE)
    assert server.seen[0].path == path


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://host/", "http://", "/v1/submit", "http://[::1"])
def test_what_is_no_http_url_is_told_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        Collector(url, KEY)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_passing_status_is_tried_again_with_the_same_bytes(
    server: ScriptedServer, collector: Collector, status: int, submit: Submit
) -> None:
    server.answers = [Answer(status), Answer(status), Answer(204)]
    submit(collector, PROFILE)
    assert [seen.profile for seen in server.seen] == [PROFILE] * 3


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 413])
def test_a_refusal_is_final_and_says_why(
    server: ScriptedServer, collector: Collector, status: int, submit: Submit
) -> None:
    server.answers = [problem(status, "not a CPU profile")]
    with pytest.raises(SubmitRefused, match=f"{status} not a CPU profile") as raised:
        submit(collector, PROFILE)
    assert (raised.value.status, raised.value.detail) == (status, "not a CPU profile")
    assert isinstance(raised.value, KeyRefused) == (status in {401, 403})
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("content_type", "body", "detail"),
    [
        ("text/html", b"<html>a proxy's page</html>", "Bad Request"),
        ("application/problem+json", b"{", "Bad Request"),
        ("application/problem+json", b"[]", "Bad Request"),
        ("application/problem+json", b"{}", "Bad Request"),
        ("application/problem+json", b"\xff", "Bad Request"),
        ("application/problem+json; charset=utf-8", b'{"title": "Malformed"}', "Malformed"),
        ("application/problem+json", json.dumps({"detail": "x" * 9000}).encode(), "x" * 500),
    ],
)
def test_the_reason_is_the_problem_document_or_else_the_status_line(
    server: ScriptedServer, collector: Collector, content_type: str, body: bytes, detail: str
) -> None:
    server.answers = [Answer(400, {"Content-Type": content_type}, body)]
    with pytest.raises(SubmitRefused) as raised:
        collector.submit(PROFILE)
    assert raised.value.detail == detail


def test_attempts_are_bounded_and_the_last_cause_is_told(
    server: ScriptedServer, collector: Collector, submit: Submit
) -> None:
    server.answers = [Answer(502), Answer(500), problem(503, "no space left"), Answer(204)]
    with pytest.raises(CollectorUnavailable, match="attempts: 3, the last: 503: no space left") as raised:
        submit(collector, PROFILE)
    assert raised.value.attempts == 3
    assert len(server.seen) == 3


def test_a_cut_or_reset_connection_is_tried_again(
    server: ScriptedServer, collector: Collector, submit: Submit
) -> None:
    server.answers = [Answer(204, cut=True), Answer(204, reset=True)]
    submit(collector, PROFILE)
    assert len(server.seen) == 3


def test_a_server_that_hangs_is_left_and_tried_again(server: ScriptedServer, submit: Submit) -> None:
    tried_again = threading.Event()
    server.answers = [Answer(204, until=tried_again)]
    with Collector(server.url, KEY, timeout=1.0, backoff=0.01) as client:
        submit(client, PROFILE)
    tried_again.set()
    assert len(server.seen) >= 2


@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_without_an_end_is_not_read_to_it(
    server: ScriptedServer, collector: Collector, submit: Submit, status: int
) -> None:
    server.answers = [Answer(status, body=b"x" * 65536, endless=True)]
    submit(collector, PROFILE)
    assert len(server.seen) == (1 if status == 200 else 2)


def test_nobody_listening_ends_in_unavailable(submit: Submit) -> None:
    with ScriptedServer() as closed:
        url = closed.url
    with (
        Collector(url, KEY, backoff=0.01, attempts=2) as client,
        pytest.raises(CollectorUnavailable, match="ConnectError"),
    ):
        submit(client, PROFILE)


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_waited_for(
    server: ScriptedServer, collector: Collector, status: int, submit: Submit
) -> None:
    server.answers = [Answer(status, {"Retry-After": "1"})]
    submit(collector, PROFILE)
    assert server.seen[1].at - server.seen[0].at >= 1.0


def test_the_total_time_is_bounded(server: ScriptedServer, submit: Submit) -> None:
    server.answers = [Answer(503, {"Retry-After": "30"})]
    start = time.monotonic()
    with (
        Collector(server.url, KEY, within=10) as client,
        pytest.raises(CollectorUnavailable) as raised,
    ):
        submit(client, PROFILE)
    assert raised.value.attempts == 1
    assert time.monotonic() - start < 30


def test_close_ends_a_wait(server: ScriptedServer) -> None:
    server.answers = [Answer(503, {"Retry-After": "30"})]
    client = Collector(server.url, KEY)
    timer = threading.Timer(0.2, client.close)
    timer.start()
    start = time.monotonic()
    with pytest.raises(CollectorUnavailable):
        client.submit(PROFILE)
    assert time.monotonic() - start < 30
    timer.join()


def test_after_close_nothing_is_sent(server: ScriptedServer, collector: Collector) -> None:
    collector.close()
    with pytest.raises(CollectorUnavailable, match="closed"):
        collector.submit(PROFILE)
    assert server.seen == []


def test_close_ends_an_attempt(server: ScriptedServer) -> None:
    closed = threading.Event()
    server.answers = [Answer(204, until=closed)]
    client = Collector(server.url, KEY)

    def close() -> None:
        while not server.seen:
            time.sleep(0.01)
        client.close()
        closed.set()

    thread = threading.Thread(target=close)
    thread.start()
    with pytest.raises(CollectorUnavailable):
        client.submit(PROFILE)
    thread.join()


def test_a_connection_is_reused(server: ScriptedServer, collector: Collector) -> None:
    server.answers = [Answer(503, body=b"busy"), Answer(200, body=b"OK")]
    for _ in range(3):
        collector.submit(PROFILE)
    assert len({seen.client for seen in server.seen}) == 1
    assert len(server.seen) == 4


def test_what_is_gzipped_is_sent_as_it_is(server: ScriptedServer, collector: Collector) -> None:
    gzipped = gzip.compress(PROFILE, compresslevel=1, mtime=12345)
    collector.submit(gzipped)
    assert server.seen[0].body == gzipped


def test_what_is_bare_is_gzipped_to_the_same_bytes_each_time(
    server: ScriptedServer, collector: Collector
) -> None:
    for _ in "12":
        collector.submit(PROFILE)
    first, second = server.seen
    assert first.body == second.body
    assert first.body[4:8] == bytes(4)  # the time in gzip's header
    assert len(first.body) < len(PROFILE)


@pytest.mark.parametrize(
    ("service", "labels", "type_", "path"),
    [
        (None, {}, None, "/v1/submit"),
        ("shop & co", {}, None, "/v1/submit?service=shop+%26+co"),
        (None, {"region": "eu", "version": "1.2"}, None, "/v1/submit?labels=region%3Deu%2Cversion%3D1.2"),
        ("shop", {"region": "eu"}, "heap", "/v1/submit?service=shop&labels=region%3Deu&type=heap"),
    ],
)
def test_service_labels_and_type_are_in_the_query(
    server: ScriptedServer, service: str | None, labels: dict[str, str], type_: str | None, path: str
) -> None:
    with Collector(server.url, KEY, service=service, labels=labels) as client:
        client.submit(PROFILE, type_)
        asyncio.run(client.submit_async(PROFILE, type_))
    assert [seen.path for seen in server.seen] == [path] * 2


def test_a_label_needs_a_name() -> None:
    with pytest.raises(ValueError, match="label"):
        Collector("http://127.0.0.1:1", KEY, labels={"": "eu"})


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # pytest has other threads
def test_a_forked_child_has_a_connection_of_its_own(server: ScriptedServer, collector: Collector) -> None:
    collector.submit(b"parent")
    child = os.fork()
    if not child:
        try:
            collector.submit(b"child")
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    collector.submit(b"parent again")
    assert [seen.profile for seen in server.seen] == [b"parent", b"child", b"parent again"]
    parent, other, again = (seen.client for seen in server.seen)
    assert parent == again != other


def test_threads_share_one_collector(server: ScriptedServer, collector: Collector) -> None:
    profiles = [bytes([number]) * 5000 for number in range(16)]
    threads = [threading.Thread(target=collector.submit, args=(profile,)) for profile in profiles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen.profile for seen in server.seen) == profiles


def test_the_key_is_in_no_repr_and_no_error(server: ScriptedServer) -> None:
    server.answers = [Answer(403), *[Answer(503)] * 2]
    with Collector(server.url, KEY, backoff=0.01, attempts=2) as client:
        assert KEY not in repr(client)
        for expected in (SubmitRefused, CollectorUnavailable):
            with pytest.raises(expected) as raised:
                client.submit(PROFILE)
            assert KEY not in str(raised.getrepr(showlocals=True, style="long"))


@pytest.mark.parametrize("key", ["", " ", "two words", "line\nbreak", "k\u00e9y"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_quoted(key: str) -> None:
    with pytest.raises(ValueError, match="one word of printable ASCII") as raised:
        Collector("http://127.0.0.1:1", key)
    assert not key.strip() or key not in str(raised.value)


def test_a_key_read_from_a_file_may_end_in_a_line_break(server: ScriptedServer) -> None:
    with Collector(server.url, f"{KEY}\n") as client:
        client.submit(PROFILE)
    assert server.seen[0].headers["Authorization"] == f"Bearer {KEY}"


def test_a_name_in_the_url_does_not_replace_the_key(server: ScriptedServer) -> None:
    with Collector(server.url.replace("//", "//user:pass@"), KEY) as client:
        assert "pass@" not in repr(client)
        client.submit(PROFILE)
    assert server.seen[0].headers["Authorization"] == f"Bearer {KEY}"


def test_at_least_one_attempt() -> None:
    with pytest.raises(ValueError, match="attempts"):
        Collector("http://127.0.0.1:1", KEY, attempts=0)


@pytest.mark.parametrize("error", [SubmitRefused(400, "not a profile"), CollectorUnavailable(3, "timed out")])
def test_errors_travel_between_processes(error: AgentError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
