"""Many clients at once: submits, retries and combines in parallel, while processes are killed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest

from tests.faults.stacks import DAY, EPOCH, profile_of, tally
from tests.server import Server, bearer, descendants

SUBMITS = 100
CLIENTS = 32
KILLS = 4


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "home") as server:
        yield server


class Fleet:
    """Clients that go on whichever server is there; `statuses` are those of their answers."""

    def __init__(self, server: Server, client: httpx.Client) -> None:
        self._server = server
        self._client = client
        self.statuses: Counter[int] = Counter()

    def post(self, path: str, key: str, body: bytes = b"") -> None:
        """Post a profile until it is answered, as an agent does."""
        while True:
            try:
                url = f"{self._server.base_url}{path}"
                answer = self._client.post(url, content=body, headers=bearer(key))
            except httpx.TransportError:
                time.sleep(0.2)
            else:
                self.statuses[answer.status_code] += 1
                return


@contextmanager
def repeated(action: Callable[[], None]) -> Iterator[None]:
    """Call a function without a pause until the block ends."""
    over = Event()

    def repeat() -> None:
        while not over.is_set():
            action()

    thread = Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    limits = httpx.Limits(max_connections=2 * CLIENTS)
    with httpx.Client(timeout=120, limits=limits, verify=False) as client:  # noqa: S501 (plain HTTP)
        yield client


@pytest.mark.parametrize("killed", ["workers", "server"])
def test_parallel_submits_and_combines_add_up(server: Server, client: httpx.Client, killed: str) -> None:
    submits, combines = Fleet(server, client), Fleet(server, client)
    stacks = [f"stack {number}" for number in range(SUBMITS)]

    def submit(number: int) -> None:
        profile = profile_of(stacks[number], time_nanos=EPOCH + number % 7 * DAY)
        submits.post("/v1/submit", server.submit_key, profile)

    def combine() -> None:
        combines.post("/v1/merge?and_combine=true", server.merge_key)

    with ThreadPoolExecutor(CLIENTS) as clients, repeated(combine):
        submitted = [clients.submit(submit, number) for number in range(SUBMITS)]
        for part in range(1, KILLS + 1):
            combined = combines.statuses.total()
            # No combine meets more than two kills: a third would make it fail.
            while submits.statuses.total() < SUBMITS * part / (KILLS + 1) or (
                combines.statuses.total() == combined
            ):
                time.sleep(0.01)
            if killed == "server":
                server.restart()
            else:
                kill_workers(server)
        wait(submitted)
    assert submits.statuses == {204: SUBMITS}
    assert combines.statuses[200]
    assert set(combines.statuses) <= {200, 404}
    expected = dict.fromkeys(stacks, 1)
    assert tally(server.merge().content) == expected
    server.restart()
    assert tally(server.merge().content) == expected
    assert tally(server.combine().content) == expected
    assert len(server.blobs()) == 1


def kill_workers(server: Server) -> None:
    for fork_server in server.descendants():
        for worker in descendants(fork_server):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
