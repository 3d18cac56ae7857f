"""The live page: the newest profile, events of newer ones, and profiles that are taken now."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from pgo_collector.model.capture_targets import parse_targets

from tests.collector.hostile_names import HOSTILE, label_of, submit_hostile
from tests.collector.ui.test_pages import assert_ours, titles
from tests.collector.visitor import Page, Visitor
from tests.constants import CAPTURES
from tests.faults.stacks import tally
from tests.merge.stacked import stacked
from tests.server import Server

pytestmark = pytest.mark.any_store

MINUTE = 60 * 10**9


def store(server: Server, function: str, age_nanos: int, labels: str = "", service: str = "shop") -> None:
    profile = stacked({f"main.main;{function}": 10}, time_nanos=time.time_ns() - age_nanos)
    query = {"service": service} | ({"labels": labels} if labels else {})
    assert server.submit(profile, query=query).status_code == 204


class Target(BaseHTTPRequestHandler):
    """An agent's endpoint: what it answers depends on the path."""

    asked: ClassVar[list[str]]
    keys: ClassVar[list[str | None]]
    gate: ClassVar[threading.Event]

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        type(self).keys.append(self.headers["Authorization"])
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "/profile")
            self.end_headers()
            return
        if self.path == "/hostile":
            self.send_response(500)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(HOSTILE[0].encode() + b"x" * 10_000)
            return
        if self.path == "/slow":
            type(self).gate.wait(60)
        content = {
            "/profile": gzip.compress(stacked({"main.main;captured.now": 5}, time_nanos=time.time_ns())),
            "/large": b"x" * (9 << 20),
        }.get(self.path, b"no profile")
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        try:
            self.wfile.write(content)
        except OSError:
            return  # the collector has read enough

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def target() -> Iterator[tuple[str, type[Target]]]:
    """Run an endpoint; yield its host and port, and its class, which knows what was asked."""

    class Handler(Target):
        asked: ClassVar = []
        keys: ClassVar = []
        gate = threading.Event()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", Handler
        finally:
            Handler.gate.set()
            server.shutdown()
            thread.join()


@contextmanager
def collector(home: Path, targets: str, **settings: str) -> Iterator[Server]:
    with Server(home, {"PGOF_CAPTURE_TARGETS": targets, **settings}) as server:
        yield server


def test_the_newest_profile_is_shown_alone(server: Server) -> None:
    store(server, "old", 10 * MINUTE)
    store(server, "new", MINUTE, "region=eu")
    visitor = Visitor(server)
    page = visitor.page("/ui/services/shop/live")
    assert {*titles(page)} == {"all", "main.main", "new"}
    assert {*titles(visitor.page("/ui/services/shop/live", labels="region!=eu"))} == {
        "all",
        "main.main",
        "old",
    }
    (refresh,) = (tag for tag in page.all("a") if tag.text == "Refresh")
    assert {*titles(visitor.page(refresh.attributes["href"]))} == {"all", "main.main", "new"}
    (meta,) = page.all("meta", http_equiv="refresh")
    assert page.all("noscript")
    assert meta.attributes["content"] == "30"
    (svg,) = (link for link in page.links() if "flame.svg" in link)
    assert "old" not in visitor.get(svg).text
    assert "Take a profile" not in page.text
    assert not page.all("form", method="post")[1:]
    assert_ours(page)
    visitor.page("/ui/services/none/live", 404)


def events(server: Server, visitor: Visitor, path: str) -> Iterator[str]:
    """Yield the data of each event of a stream."""
    cookies = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    with server.client.stream("GET", path, headers={"Cookie": cookies}) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: "):
                yield line.removeprefix("data: ")


def test_a_profile_from_after_now_is_not_the_newest(server: Server) -> None:
    store(server, "right", MINUTE)
    store(server, "ahead", -2 * MINUTE)
    visitor = Visitor(server)
    page = visitor.page("/ui/services/shop/live")
    assert {*titles(page)} == {"all", "main.main", "right"}
    (svg,) = (link for link in page.links() if "flame.svg" in link)
    assert "ahead" not in visitor.get(svg).text
    newest = int(next(events(server, visitor, "/ui/services/shop/live/events")))
    assert newest < time.time_ns()


def test_a_stream_tells_of_newer_profiles_and_ends_with_the_server(server: Server) -> None:
    store(server, "old", 10 * MINUTE)
    visitor = Visitor(server)
    (live,) = (tag for tag in visitor.page("/ui/services/shop/live").tags if "data-events" in tag.attributes)
    told = events(server, visitor, live.attributes["data-events"])
    assert next(told) == live.attributes["data-newest"]
    store(server, "new", MINUTE)
    assert int(next(told)) > int(live.attributes["data-newest"])
    stopping = threading.Thread(target=server.process.terminate)
    began = time.monotonic()
    stopping.start()
    assert not [*told]  # it ends, and by itself
    assert server.process.wait(60) == 0
    assert time.monotonic() - began < 30  # the server would give it 75 s
    stopping.join()


def test_a_stream_ends_with_its_session_and_with_the_scope_of_its_key(tmp_path: Path) -> None:
    with Server(tmp_path, {"PGOF_LIVE_STREAMS": "3"}) as server:
        store(server, "old", MINUTE)
        path = "/ui/services/shop/live/events"
        visitor, another = Visitor(server), Visitor(server)
        told, others = events(server, visitor, path), events(server, another, path)
        assert next(told)
        assert next(others)
        visitor.post("/ui/sign-out")
        store(server, "new", 0)
        assert next(told, None) is None
        assert next(others)
        server.merge_keys.write_text("key-for-merges service=mail\n")
        while another.get("/ui/services/shop/live").status_code != 403:
            time.sleep(0.05)
        store(server, "newer", -MINUTE)
        assert next(others, None) is None
        assert not server.events("unexpected error")


def test_streams_are_bounded_and_need_a_key(tmp_path: Path) -> None:
    with Server(tmp_path, {"PGOF_LIVE_STREAMS": "1"}) as server:
        store(server, "old", MINUTE)
        visitor, path = Visitor(server), "/ui/services/shop/live/events"
        first = events(server, visitor, path)
        assert next(first)
        refused = visitor.get(path)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "30")
        assert "PGOF_LIVE_STREAMS" in refused.text
        first.close()  # type: ignore[attr-defined]
        deadline = time.monotonic() + 60
        while True:
            with_room = events(server, visitor, path)
            try:
                assert next(with_room)
                break
            except AssertionError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            finally:
                with_room.close()  # type: ignore[attr-defined]
        assert Visitor(server, None).get(path).status_code == 303


def test_a_profile_is_taken_now(tmp_path: Path) -> None:
    with target() as (host, handler), collector(tmp_path, f"shop=http://{host}/profile") as server:
        visitor = Visitor(server)
        page = visitor.page("/ui/services/shop/live", 404)
        assert f"Take a profile of {host} now" in page.text
        answer = visitor.post("/ui/services/shop/live", {"instance": host})
        assert (answer.status_code, answer.headers["Location"]) == (303, "/ui/services/shop/live")
        assert "captured.now" in titles(visitor.page("/ui/services/shop/live"))
        (profile,) = server.ask("/v1/profiles", service="shop").json()["profiles"]
        assert profile["labels"] == {"instance": host}
        assert handler.asked == ["/profile"]
        assert tally(server.merge(query={"service": "shop"}).content)
        for labels in ("version=1", f"instance!={host.replace(':', '%3A')}"):
            assert "Take a profile" in visitor.page("/ui/services/shop/live", 404, labels=labels).text


WRONG = {
    "/away": (502, "answered with 302"),
    "/nothing": (400, ""),
    "/large": (502, "larger than"),
    "/hostile": (502, "answered with 500: &lt;script&gt;alert(1)"),
}


def test_what_a_target_does_wrong_is_said(tmp_path: Path) -> None:
    """Each of the targets is that of a service."""
    with (
        target() as (host, handler),
        collector(tmp_path, " ".join(f"{path[1:]}=http://{host}{path}" for path in WRONG)) as server,
    ):
        for number, (path, (status, why)) in enumerate(WRONG.items(), 1):
            check_wrong(server, host, path, status, why)
            assert handler.asked == [*WRONG][:number]


def test_a_target_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with (
        target() as (host, handler),
        collector(tmp_path, f"slow=http://{host}/slow", PGOF_CAPTURE_SECONDS="3") as server,
    ):
        check_wrong(server, host, "/slow", 502, "PGOF_CAPTURE_SECONDS")
        assert handler.asked == ["/slow"]


def test_a_target_gets_its_key_alone_and_a_broken_file_of_keys_is_said(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    with (
        target() as (host, handler),
        target() as (other, of_other),
    ):
        keys.write_text(f"{host} the-secret\n")
        targets = f"shop=http://{host}/profile cart=http://{other}/profile"
        with collector(tmp_path, targets, PGOF_CAPTURE_KEYS_FILE=str(keys)) as server:
            visitor = Visitor(server)
            for service, instance in (("shop", host), ("cart", other)):
                taken = visitor.post(f"/ui/services/{service}/live", {"instance": instance})
                assert taken.status_code == 303
            assert (handler.keys, of_other.keys) == (["Bearer the-secret"], [None])
            keys.write_text("the-secret\n")
            refused = visitor.post("/ui/services/shop/live", {"instance": host})
            assert (refused.status_code, "line 1" in refused.text) == (502, True)
            assert "the-secret" not in refused.text
            assert handler.asked == ["/profile"]


def test_a_target_that_is_gone_is_said(tmp_path: Path) -> None:
    with collector(tmp_path, "gone=http://127.0.0.1:1/gone") as server:
        check_wrong(server, "127.0.0.1:1", "/gone", 502, "127.0.0.1:1: ConnectError")


def check_wrong(server: Server, host: str, path: str, status: int, why: str) -> None:
    """Check that no profile of a service comes from its target."""
    service = path[1:]
    store(server, "old", MINUTE, service=service)
    answer = Visitor(server).post(f"/ui/services/{service}/live", {"instance": host})
    assert answer.status_code == status, answer.text
    assert why in answer.text
    assert len(answer.text) < 50_000
    assert len(server.ask("/v1/profiles", service=service).json()["profiles"]) == 1
    assert not server.events("unexpected error")


def test_only_what_the_setting_names_is_asked(tmp_path: Path) -> None:
    with (
        target() as (host, handler),
        target() as (other, of_other),
        collector(tmp_path, f"shop=http://{host}/profile shop/heap=http://{host}/heap") as server,
    ):
        store(server, "old", MINUTE)
        visitor = Visitor(server)
        for instance in (
            other,
            f"http://{other}/profile",
            f"{host}/away",
            f"{host}@{other}",
            "",
            "localhost",
        ):
            answer = visitor.post("/ui/services/shop/live", {"instance": instance})
            assert answer.status_code == 404, instance
        for path in ("/ui/services/mail/live", f"/ui/services/shop/live?type=allocs&instance={host}"):
            assert visitor.post(path, {"instance": host}).status_code == 404
        from_elsewhere = visitor.post(
            "/ui/services/shop/live", {"instance": host}, Sec_Fetch_Site="cross-site"
        )
        assert from_elsewhere.status_code == 403
        server.merge_keys.write_text("key-for-merges service=mail\n")
        server.restart()
        assert Visitor(server).post("/ui/services/shop/live", {"instance": host}).status_code == 403
        assert Visitor(server, None).post("/ui/services/shop/live", {"instance": host}).status_code == 303
        assert handler.asked == of_other.asked == []


def test_captures_are_bounded_block_nobody_and_end_with_the_server(tmp_path: Path) -> None:
    with (
        target() as (host, handler),
        collector(tmp_path, f"shop=http://{host}/slow", **{CAPTURES: "1"}) as server,
    ):
        store(server, "old", MINUTE)
        visitor, answers = Visitor(server), []
        taking = threading.Thread(
            target=lambda: answers.append(visitor.post("/ui/services/shop/live", {"instance": host}))
        )
        taking.start()
        deadline = time.monotonic() + 60
        while not handler.asked and time.monotonic() < deadline:
            time.sleep(0.01)
        busy = Visitor(server).post("/ui/services/shop/live", {"instance": host})
        assert (busy.status_code, "1 profiles are being taken" in busy.text) == (503, True)
        store(server, "new", 0)
        assert "new" in titles(Visitor(server).page("/ui/services/shop/live"))
        server.process.terminate()
        taking.join(60)
        (cut,) = answers
        assert (cut.status_code, "the server stops" in cut.text) == (502, True)
        assert server.process.wait(60) == 0


@pytest.mark.parametrize(
    ("setting", "content", "named"),
    [
        ("PGOF_CAPTURE_CA_FILE", None, "PGOF_CAPTURE_CA_FILE"),
        ("PGOF_CAPTURE_CA_FILE", "no certificate", "PGOF_CAPTURE_CA_FILE"),
        ("PGOF_CAPTURE_KEYS_FILE", None, "No such file"),
        ("PGOF_CAPTURE_KEYS_FILE", "\nthe-secret", "line 2"),
        ("PGOF_CAPTURE_KEYS_FILE", "a:1 gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n", "not ASCII"),
    ],
)
def test_files_for_targets_that_cannot_be_used_stop_the_start(
    stopped: Server, setting: str, content: str | None, named: str
) -> None:
    file = stopped.home / "file"
    if content is not None:
        file.write_text(content)
    stopped.environment |= {"PGOF_CAPTURE_TARGETS": "shop=https://127.0.0.1/p", setting: str(file)}
    finished = stopped.run("serve")
    assert finished.returncode == 2
    assert named in finished.stderr
    assert "the-secret" not in finished.stderr


def test_without_targets_nothing_can_be_taken(server: Server) -> None:
    store(server, "old", MINUTE)
    answer = Visitor(server).post("/ui/services/shop/live", {"instance": "127.0.0.1:1"})
    assert answer.status_code == 404
    assert "PGOF_CAPTURE_TARGETS" in answer.text


@pytest.mark.parametrize(
    "rules",
    [
        "shop", "shop=", "shop=ftp://a/b", "shop=http:///b", "shop=http://user:word@host/b", "sh op=http://a/b",
        "shop/none=http://a/b", "shop=http://a:99999/b", "shop=http://[/b", "shop=http://a/b shop=http://a/c",
        " ".join(f"s{number}=http://a/b" for number in range(1001)),
    ],
)  # fmt: skip
def test_rules_that_are_none_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_targets(rules)


def test_rules_are_read() -> None:
    first, second = parse_targets(
        "shop=http://a/debug/pprof/profile?seconds=5\n  mail/heap=https://[::1]/heap"
    )
    assert (first.service, first.type, first.instance) == ("shop", "cpu", "a:80")
    assert (second.type, second.instance) == ("heap", "::1:443")


def test_no_name_does_harm_to_the_live_page(server: Server) -> None:
    submit_hostile(server)
    visitor = Visitor(server)
    for query in ({}, *({"labels": label_of(name)} for name in HOSTILE)):
        answer = visitor.get("/ui/services/hostile/live", None, **query)
        assert answer.status_code == 200
        assert_ours(Page(answer))
        path = next(tag for tag in Page(answer).tags if "data-events" in tag.attributes).attributes[
            "data-events"
        ]
        stream = events(server, visitor, path)
        assert next(stream).isdigit()
        stream.close()  # type: ignore[attr-defined]
    assert not server.events("unexpected error")
