"""A collector with a webhook, and helpers for its tests."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from threading import Event

from tests.faults.stacks import EPOCH, SECOND, profile_of
from tests.receiver import Answer, Received, Receiver
from tests.server import Server

SECRET = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"


def started(server: Server, receiver: Receiver, constants: Mapping[str, str] | None = None) -> Server:
    """Start the collector with the receiver as its webhook, and with other `constants`."""
    server.environment |= {"PGOF_WEBHOOK_URL": receiver.url, **(constants or {})}
    server.start()
    return server


def send(server: Server, *names: str, **query: str) -> None:
    for name in names:
        profile = profile_of(name, time_nanos=EPOCH + ord(name[0]) * SECOND)
        assert server.submit(profile, query=query).status_code == 204


def profiles_in(received: list[Received]) -> list[str]:
    return [each.event["data"]["id"] for each in received]


def waiting(server: Server) -> int:
    """Return how many events are in the outbox."""
    with server.catalog() as catalog:
        return int(catalog.exec_driver_sql("SELECT count(*) FROM outbox").scalar_one())


def wait_until_none_wait(server: Server) -> None:
    deadline = time.monotonic() + 120
    while waiting(server):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def deliveries(server: Server) -> dict[str, float]:
    """Return the attempts in the metrics, by outcome."""
    lines = server.client.get("/metrics").text.splitlines()
    found = (line.rsplit(" ", 1) for line in lines if line.startswith("pgo_collector_deliveries_total{"))
    return {series.split('"')[1]: float(value) for series, value in found if float(value)}


def once(may_answer: Event) -> Callable[[list[Received]], Answer]:
    """Return the answers of a receiver that waits until it may answer."""

    def answer(_: list[Received]) -> Answer:
        assert may_answer.wait(600)
        return Answer()

    return answer
