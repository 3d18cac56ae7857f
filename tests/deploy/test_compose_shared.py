"""The compose deployment of three collectors: its nginx before three servers, and what its containers are."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from pgo_collector.command.cli import build_parser
from pgo_collector.settings import PREFIX, Settings

from tests.deploy.manifests import read_yaml
from tests.deploy.test_compose import COMPOSE, running
from tests.faults.stacks import profile_of
from tests.interop.listening import free_port
from tests.server import Server, bearer

COMPOSE_FILE: dict[str, Any] = read_yaml((COMPOSE / "shared" / "compose.yaml").read_text())
# A collector that hangs is given up sooner, and no request of the tests is too much.
HASTY = {"proxy_read_timeout 25s;": "proxy_read_timeout 1s;", "rate=20r/s": "rate=1000r/s"}


class Upstream:
    """An HTTP server that notes the requests it gets, and answers 204; or does something else with them."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.happens: Callable[[BaseHTTPRequestHandler], None] | None = None
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                upstream.paths.append(self.path)
                if upstream.happens is not None:
                    upstream.happens(self)
                    return
                self.send_response(204)
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Listen no more: connections are refused."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def upstreams() -> Iterator[list[Upstream]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Upstream())) for _ in range(3)]


@pytest.fixture
def client(upstreams: list[Upstream], tmp_path: Path) -> Iterator[httpx.Client]:
    with running(tmp_path, *(upstream.address for upstream in upstreams), changes=HASTY) as client:
        yield client


def where(upstreams: list[Upstream], path: str) -> set[int]:
    """Return the upstreams that got requests of this path."""
    return {number for number, upstream in enumerate(upstreams) if path in upstream.paths}


NAMING = [
    "/v1/submit?labels=region%3Deu&service={}",
    "/v1/merge?service={}&last=7d",
    "/api/0/profiles?service={}&type=cpu",
    "/ingest?name={}%7Bregion%3Deu%7D&from=1700000000",
    "/ingest?name={}{{region=eu}}&from=1700000000",
    "/ui/services/{}/top?by=package",
    "/ui/services/{}",
    "/api/profile/{}",
]


@pytest.mark.system("nginx", "openssl")
def test_requests_of_a_service_reach_one_collector_and_services_are_spread(
    client: httpx.Client, upstreams: list[Upstream]
) -> None:
    homes = Counter[int]()
    for number in range(30):
        paths = [path.format(f"service-{number}") for path in NAMING]
        for path in paths:
            assert client.post(path, content=b"x").status_code == 204
        (home,) = {home for path in paths for home in where(upstreams, path)}
        homes[home] += 1
    assert {*homes} == {0, 1, 2}


@pytest.mark.system("nginx", "openssl")
def test_requests_that_name_no_service_are_spread(client: httpx.Client, upstreams: list[Upstream]) -> None:
    for path in ("/v1/submit", "/v1development/profiles", "/profiling/v1/input", "/v1/submit?service="):
        for _ in range(30):
            assert client.post(path, content=b"x").status_code == 204
        assert where(upstreams, path) == {0, 1, 2}


def refused(upstream: Upstream) -> None:
    upstream.close()


def dies(upstream: Upstream) -> None:
    def end(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)

    upstream.happens = end


def hangs(upstream: Upstream) -> None:
    def wait(_: BaseHTTPRequestHandler) -> None:
        threading.Event().wait(30)

    upstream.happens = wait


@pytest.mark.system("nginx", "openssl")
@pytest.mark.parametrize("fault", [refused, dies, hangs])
def test_no_submit_fails_because_of_one_collector(
    client: httpx.Client, upstreams: list[Upstream], fault: Callable[[Upstream], None]
) -> None:
    """One is gone, or ends in the midst of a request, or hangs: others get its submits."""
    fault(upstreams[1])
    services = [f"service-{number}" for number in range(60)]

    def submit(service: str) -> int:
        return client.post(f"/v1/submit?service={service}", content=b"x").status_code

    with ThreadPoolExecutor(8) as pool:
        assert {*pool.map(submit, services)} == {204}
    got = {path for number in (0, 2) for path in upstreams[number].paths}
    assert got == {f"/v1/submit?service={service}" for service in services}
    # It is left alone after a few tries, each of which costs a client the time that nginx waits.
    assert len(upstreams[1].paths) < 30


@pytest.mark.system("nginx", "openssl")
def test_collectors_that_were_gone_one_after_another_are_asked_at_once(
    upstreams: list[Upstream], tmp_path: Path
) -> None:
    """An update takes less than the ten seconds for which nginx leaves each of them alone."""
    addresses = [upstream.address for upstream in upstreams]
    with running(tmp_path, *addresses, changes={**HASTY, "auth_delay 6s": "auth_delay 90s"}) as client:
        for upstream in upstreams:
            dies(upstream)
            for number in range(30):
                path = f"/v1/submit?service=service-{number}"
                assert client.post(path, content=b"x").status_code == 204
            upstream.happens = None
    assert "no live upstreams" in (tmp_path / "error.log").read_text()


def refuses(upstream: Upstream) -> None:
    """Have it answer 503, as a collector does that is cut off from the catalog."""

    def refuse(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(503)
        handler.send_header("Retry-After", "5")
        handler.end_headers()

    upstream.happens = refuse


@pytest.mark.system("nginx", "openssl")
def test_what_one_collector_refuses_is_asked_elsewhere(
    client: httpx.Client, upstreams: list[Upstream]
) -> None:
    for upstream in upstreams[:2]:
        refuses(upstream)
    for number in range(20):
        for path in ("/v1/submit", "/v1/merge", "/api/0/profiles"):
            assert client.post(f"{path}?service=service-{number}", content=b"x").status_code == 204


@pytest.mark.system("nginx", "openssl")
def test_what_all_collectors_refuse_is_refused_with_the_reason(
    client: httpx.Client, upstreams: list[Upstream]
) -> None:
    for upstream in upstreams:
        refuses(upstream)
    for path in ("/v1/submit", "/v1/merge", "/ui/services/checkout"):
        for upstream in upstreams:
            upstream.paths.clear()
        answer = client.post(f"{path}?service=checkout", content=b"x")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert sum(len(upstream.paths) for upstream in upstreams) <= 4


@pytest.mark.system("nginx", "openssl")
@pytest.mark.parametrize("at_first", ["refused", "503", "one 503, then refused"])
def test_what_no_collector_answers_ends_with_what_the_last_try_met(
    upstreams: list[Upstream], tmp_path: Path, at_first: str
) -> None:
    addresses = [upstream.address for upstream in upstreams]
    with running(tmp_path, *addresses, changes={**HASTY, "auth_delay 6s": "auth_delay 50ms"}) as client:
        for number, upstream in enumerate(upstreams):
            if at_first == "503" or (at_first != "refused" and number == 0):
                refuses(upstream)
            else:
                upstream.close()
        expected = {502} if at_first == "refused" else {503} if at_first == "503" else {502, 503}
        statuses = {
            client.post(f"/v1/submit?service=service-{number}", content=b"x").status_code
            for number in range(20)
        }
        assert statuses <= expected
    assert "cycle" not in (tmp_path / "error.log").read_text()


@pytest.mark.system("nginx", "openssl")
def test_a_capture_that_fails_is_not_repeated(client: httpx.Client, upstreams: list[Upstream]) -> None:
    for upstream in upstreams:
        upstream.happens = lambda handler: handler.send_error(502)
    assert client.post("/ui/services/checkout/live", content=b"x").status_code == 502
    assert sum(len(upstream.paths) for upstream in upstreams) == 1


@contextmanager
def collectors(folder: Path) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(Server(folder / name, {"PGOF_BIND_ADDRESS": f"127.0.0.1:{free_port()}"}))
            for name in ("one", "two", "three")
        ]


@pytest.mark.system("nginx", "openssl")
def test_a_collector_that_is_killed_or_stopped_fails_no_submit(tmp_path: Path) -> None:
    """Each of the three has a catalog of its own: what counts here is who answers."""
    with collectors(tmp_path) as servers:
        addresses = [server.base_url.removeprefix("http://") for server in servers]
        with running(tmp_path, *addresses, changes=HASTY) as client:

            def submit(number: int) -> int:
                path = f"/v1/submit?service=service-{number % 10}"
                profile = profile_of(f"f{number}")
                return client.post(path, content=profile, headers=bearer(Server.submit_key)).status_code

            with ThreadPoolExecutor(4) as pool:
                sent = pool.map(submit, range(100))
                servers[0].kill()
                assert {*sent} == {204}
                servers[0].start()
                paused = servers[1].process.pid
                os.kill(paused, signal.SIGSTOP)
                try:
                    assert {*pool.map(submit, range(100, 160))} == {204}
                finally:
                    os.kill(paused, signal.SIGCONT)


def test_the_collectors_share_what_the_environment_says_and_keep_nothing() -> None:
    services = COMPOSE_FILE["services"]
    names = ["collector-1", "collector-2", "collector-3"]
    for name in names:
        collector = services[name]
        assert collector["env_file"] == "shared.env"
        assert collector["read_only"]
        assert collector["cap_drop"] == ["ALL"]
        assert [volume for volume in collector["volumes"] if not volume.endswith(":ro")] == ["/data"]
        settings = {key.removeprefix(PREFIX).lower() for key in collector["environment"]}
        assert settings <= set(Settings.fields)
    assert {*services["nginx"]["depends_on"]} == {*names}
    assert [name for name, service in services.items() if "ports" in service] == ["nginx"]
    configured = re.findall(
        r"server (\S+):8080", (COMPOSE / "shared" / "collectors.conf").read_text(), re.MULTILINE
    )
    assert configured == 2 * [address_of(services[name]) for name in names]


def address_of(service: dict[str, Any]) -> str:
    return str(service["networks"]["default"]["ipv4_address"])


def test_dask_is_an_option_and_runs_the_collectors_own_commands() -> None:
    services = {name: of for name, of in COMPOSE_FILE["services"].items() if name.startswith("dask-")}
    assert len(services) == 3
    command = build_parser()
    scheduler = services["dask-scheduler"]
    bound = command.parse_args(scheduler["command"]).bind
    for name, service in services.items():
        assert service["profiles"] == ["dask"]
        parsed = command.parse_args(service["command"])
        if name != "dask-scheduler":
            assert parsed.scheduler == f"dask://{bound}"
            assert parsed.host == address_of(service)
    assert bound == f"{address_of(scheduler)}:8786"
