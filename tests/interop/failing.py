"""A server that answers 500 in the place of a collector, and what its clients do then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.receiver import Answer, Receiver
from tests.server import Server

MESSAGE = b"the disk is on fire"


@contextmanager
def fails(server: Server) -> Iterator[Receiver]:
    """Kill a collector, and answer all requests at its address with 500 until the block ends.

    After the block nothing answers there until the collector is started again.
    """
    server.environment["PGOF_BIND_ADDRESS"] = server.base_url.removeprefix("http://")
    server.kill()
    port = urlsplit(server.base_url).port or 0
    # Without "close", a client that keeps its connection would be answered after the block, too.
    answer = Answer(500, headers=(("Connection", "close"),), body=MESSAGE)
    with Receiver(lambda _: answer, port) as receiver:
        yield receiver


def uploads(receiver: Receiver, path: str) -> list[bytes]:
    """Return the bodies that came to a path."""
    return [each.body for each in receiver.received if urlsplit(each.path).path == path]


def told(log: Path) -> str:
    """Return what a client wrote to its log so far."""
    return log.read_bytes().decode(errors="replace")


def untold(log: Path, *texts: str) -> list[str]:
    """Return the texts that a client hasn't written to its log."""
    return [text for text in texts if text not in told(log)]
