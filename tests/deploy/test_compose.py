"""The compose deployment: its nginx, run before a real collector, and its limits."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from pgo_collector.routes.protocols import SUBMITS

from tests.deploy.manifests import read_yaml
from tests.interop.conftest import new_profiles
from tests.interop.listening import free_port, wait_until_listens
from tests.server import Server, bearer

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"


def collectors_of(upstreams: Sequence[str]) -> str:
    """Return the collectors.conf of one collector or of three, with these addresses (host:port)."""
    if len(upstreams) == 1:
        text, written = (COMPOSE / "collectors.conf").read_text(), ["collector:8080"]
    else:
        text = (COMPOSE / "shared" / "collectors.conf").read_text()
        written = [f"172.31.8.{11 + number}:8080" for number in range(3)]
    for address, here in zip(written, upstreams, strict=True):
        assert address in text
        text = text.replace(address, here)
    return text


@contextmanager
def running(
    folder: Path, *upstreams: str, changes: Mapping[str, str] | None = None
) -> Iterator[httpx.Client]:
    """Yield a client of an nginx before one collector or three (host:port); it trusts only nginx's
    certificate.

    `changes` are made to its configuration.
    """
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None or shutil.which("openssl") is None:
        pytest.skip("nginx or openssl is not installed")
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    options = "-addext subjectAltName=IP:127.0.0.1 -keyout tls.key -out tls.crt"
    subprocess.run([*make.split(), *options.split()], cwd=folder, check=True, capture_output=True)
    port, log = free_port(), folder / "error.log"
    (folder / "collectors.conf").write_text(collectors_of(upstreams))
    if len(upstreams) > 1:
        shutil.copy(COMPOSE / "shared" / "elsewhere.conf", folder)
    configuration = (COMPOSE / "nginx.conf").read_text()
    for written, here in {
        "listen 443 ssl http2;": f"listen 127.0.0.1:{port} ssl http2;",
        "/dev/stdout": f"{folder}/access.log",
        "rate=20r/s": "rate=1r/m",  # so that it is too much however slow the machine is
        **(changes or {}),
    }.items():
        assert written in configuration
        configuration = configuration.replace(written, here)
    (folder / "nginx.conf").write_text(configuration)
    user = "user root;" if os.geteuid() == 0 else ""
    ways = f"{user} daemon off; pid {folder}/nginx.pid;"
    command = [program, "-p", str(folder), "-e", str(log), "-c", str(folder / "nginx.conf"), "-g", ways]
    process = subprocess.Popen(command)
    try:
        wait_until_listens(port, process, log)
        trusting = ssl.create_default_context(cafile=folder / "tls.crt")
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trusting, timeout=60) as client:
            yield client
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server"), {"PGOF_METRICS_OPEN": "true"}) as server:
        yield server


@pytest.fixture
def client(server: Server, tmp_path: Path) -> Iterator[httpx.Client]:
    """Yield a client of a new nginx, whose counts of requests are 0."""
    with running(tmp_path, server.base_url.removeprefix("http://")) as client:
        yield client


@pytest.mark.system("nginx", "openssl")
def test_profiles_go_in_and_merges_come_out(client: httpx.Client, server: Server) -> None:
    for profile in (next(new_profiles), next(new_profiles)):
        sent = client.post("/v1/submit", content=profile, headers=bearer(server.submit_key))
        assert sent.status_code == 204
    headers = bearer(server.merge_key)
    merged = client.get("/v1/merge", headers=headers)
    assert merged.content == server.merge().content
    assert merged.headers["ETag"] == server.merge().headers["ETag"]
    assert (
        client.get("/v1/merge", headers=headers | {"If-None-Match": merged.headers["ETag"]}).status_code
        == 304
    )
    assert client.post("/v1/merge?and_combine=true", headers=headers).status_code == 200


@pytest.mark.system("nginx", "openssl")
def test_a_session_of_the_pages_is_for_tls_alone(client: httpx.Client, server: Server) -> None:
    signed_in = client.post(
        "/ui/sign-in", data={"key": server.merge_key}, headers={"Origin": str(client.base_url)}
    )
    assert signed_in.status_code == 303
    assert "Secure" in signed_in.headers["Set-Cookie"]
    assert client.get("/ui/").status_code == 200


@pytest.mark.system("nginx", "openssl")
def test_a_body_that_is_too_large_ends_at_the_proxy(client: httpx.Client, server: Server) -> None:
    before = len(server.events("request"))
    sent = client.post("/v1/submit", content=bytes(9 << 20), headers=bearer(server.submit_key))
    assert sent.status_code == 413
    assert len(server.events("request")) == before


@pytest.mark.system("nginx", "openssl")
def test_an_address_that_asks_too_often_is_told_to_wait(client: httpx.Client) -> None:
    statuses = [client.get("/healthz").status_code for _ in range(400)]
    assert statuses[0] == 200
    assert 429 in statuses


@pytest.mark.system("nginx", "openssl")
def test_a_wave_of_submits_isnt(client: httpx.Client, server: Server) -> None:
    headers = bearer(server.submit_key)
    assert {client.post("/v1/submit", content=b"x", headers=headers).status_code for _ in range(400)} == {400}


@pytest.mark.system("nginx", "openssl")
def test_a_collector_that_stays_away_is_a_bad_gateway_in_the_end(tmp_path: Path) -> None:
    """A step more from location to location, and nginx would end with 500, as if the collector had failed."""
    port = free_port()
    with running(tmp_path, f"127.0.0.1:{port}", changes={"auth_delay 6s": "auth_delay 50ms"}) as client:
        assert client.post("/v1/submit", content=b"x").status_code == 502
        lines = (tmp_path / "error.log").read_text().splitlines()
        assert sum("connect() failed" in line for line in lines) == 5
        assert not any("cycle" in line for line in lines)


@pytest.mark.system("nginx", "openssl")
def test_a_collector_that_comes_back_before_the_last_try_gets_the_submit(tmp_path: Path) -> None:
    bound = {"PGOF_BIND_ADDRESS": f"127.0.0.1:{free_port()}"}
    server = Server(tmp_path / "server", bound)
    with running(tmp_path, bound["PGOF_BIND_ADDRESS"]) as client, ThreadPoolExecutor(1) as pool:
        sent = pool.submit(
            client.post, "/v1/submit", content=next(new_profiles), headers=bearer(server.submit_key)
        )
        while not sent.done() and "connect() failed" not in (tmp_path / "error.log").read_text():
            time.sleep(0.02)
        with server:
            assert sent.result(60).status_code == 204


@pytest.mark.system("nginx", "openssl")
def test_metrics_stay_inside(client: httpx.Client, server: Server) -> None:
    assert server.client.get("/metrics").status_code == 200
    assert client.get("/metrics").status_code == 404


def test_the_collector_has_few_rights_and_one_volume_to_write() -> None:
    compose = read_yaml((COMPOSE / "compose.yaml").read_text())
    collector = compose["services"]["collector"]
    assert collector["read_only"]
    assert collector["cap_drop"] == ["ALL"]
    assert [volume for volume in collector["volumes"] if not volume.endswith(":ro")] == ["data:/data"]
    assert "ports" not in collector


def test_each_route_that_stores_profiles_has_a_submits_time() -> None:
    """autopgo's path is a merge, too, which takes longer."""
    configuration = (COMPOSE / "nginx.conf").read_text()
    blocks = re.findall(r"location (=|~) (\S+) \{\n([^}]*)\}", configuration)
    quick = [(kind, path) for kind, path, lines in blocks if "proxy_read_timeout 25s" in lines]
    paths = {path.replace("//", "/") for path in SUBMITS if "{" not in path}
    assert len(paths) > 5
    for path in paths:
        assert any(path == its if kind == "=" else re.search(its, path) for kind, its in quick), path
