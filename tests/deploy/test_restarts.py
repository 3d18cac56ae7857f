"""Clients without retries submit while the collector is restarted: none fails, and nothing is lost.

Each takes up to a minute: five starts, and clients that are curl.
"""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.deploy.test_compose import running
from tests.faults.stacks import profile_of, tally
from tests.held_server import HeldServer
from tests.interop.listening import free_port
from tests.server import Server
from tests.zygote import Zygote

CLIENTS = 4
RESTARTS = 4


class Sent(NamedTuple):
    """A submit: its content, when it began and ended, and curl's message if it failed."""

    name: str
    begun: float
    ended: float
    failure: str


@dataclass
class Load:
    """Clients that submit one profile after the other, to `url` with curl's `options`."""

    folder: Path
    url: str
    options: tuple[str, ...] = ()
    sent: list[Sent] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self, client: int) -> None:
        number = 0
        while not self.over.is_set():
            number += 1
            name = f"client {client} number {number}"
            file = self.folder / f"{client}.pb.gz"
            file.write_bytes(profile_of(name))
            begun = time.monotonic()
            done = subprocess.run(
                [
                    *("curl", "-sS", "--fail-with-body", "--max-time", "60", *self.options),
                    *("-H", f"Authorization: Bearer {Server.submit_key}", "--data-binary", f"@{file}"),
                    f"{self.url}/v1/submit",
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            failure = "" if done.returncode == 0 else f"{done.returncode}: {done.stderr}{done.stdout}"
            self.sent.append(Sent(name, begun, time.monotonic(), failure))

    def wait_for_more(self, count: int) -> None:
        """Wait until `count` more submits have been sent."""
        goal = len(self.sent) + count
        deadline = time.monotonic() + 300
        while len(self.sent) < goal:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def check_restarts(server: Server, load: Load, *ends: Callable[[], object]) -> None:
    """Under load, end the server in these ways, one after another, and start it each time."""
    gaps = []
    with ThreadPoolExecutor(CLIENTS) as clients:
        futures = [clients.submit(load.run, client) for client in range(CLIENTS)]
        try:
            for number in range(RESTARTS):
                load.wait_for_more(3 * CLIENTS)
                ends[number % len(ends)]()
                ended = time.monotonic()
                server.start()
                gaps.append((ended, time.monotonic()))
            load.wait_for_more(3 * CLIENTS)
        finally:
            load.over.set()
        for future in futures:
            future.result()
    assert [sent.failure for sent in load.sent if sent.failure] == []
    for ended, listens in gaps:
        assert any(sent.begun < listens and sent.ended > ended for sent in load.sent), "nobody was waiting"
    assert tally(server.merge().content) == Counter(sent.name for sent in load.sent)


def test_the_socket_is_systemds(tmp_path: Path, zygote: Zygote) -> None:
    with HeldServer(tmp_path / "server", zygote) as server:
        assert server.base_url == f"http://127.0.0.1:{server.port}"
        check_restarts(server, Load(tmp_path, server.base_url), server.stop)


@pytest.mark.system("nginx", "openssl")
def test_the_socket_is_systemds_behind_nginx(tmp_path: Path, zygote: Zygote) -> None:
    """nginx is there for a process that dies and can't answer the requests that it had begun."""
    with (
        HeldServer(tmp_path / "server", zygote) as server,
        running(tmp_path, f"127.0.0.1:{server.port}") as client,
    ):
        url = str(client.base_url).rstrip("/")
        load = Load(tmp_path, url, ("--cacert", str(tmp_path / "tls.crt")))
        check_restarts(server, load, server.stop, server.kill)


@pytest.mark.system("nginx", "openssl")
def test_the_socket_is_gone_meanwhile_behind_nginx(tmp_path: Path) -> None:
    """nginx waits for the next container, as in compose."""
    address = f"127.0.0.1:{free_port()}"
    with (
        Server(tmp_path / "server", {"PGOF_BIND_ADDRESS": address}) as server,
        running(tmp_path, address) as client,
    ):
        url = str(client.base_url).rstrip("/")
        load = Load(tmp_path, url, ("--cacert", str(tmp_path / "tls.crt")))
        check_restarts(server, load, server.stop, server.kill)


@pytest.mark.parametrize(("count", "reason"), [(2, "passed 2 sockets"), (1, "doesn't listen for TCP")])
def test_what_is_no_socket_to_listen_on_is_refused(
    tmp_path: Path, zygote: Zygote, count: int, reason: str
) -> None:
    server = Server(tmp_path / "server")
    theirs, ours = socket.socketpair()
    with theirs, ours:
        child = zygote.start(["serve"], server.environment, *[theirs.fileno()] * count)
        assert child.stderr is not None
        with child.stderr as said:
            assert child.wait(60) == 2
            assert reason in said.read().decode()


def test_a_socket_for_another_process_is_not_taken(tmp_path: Path) -> None:
    with Server(tmp_path / "server", {"LISTEN_PID": "1", "LISTEN_FDS": "1"}) as server:
        assert server.client.get("/healthz").text == "OK"
