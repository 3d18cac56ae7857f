"""A server before a collector that sends on what clients send, and keeps it to be compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.receiver import Answer, Received, Receiver
from tests.server import Server

_KEPT = {"authorization", "dd-api-key", "content-type", "content-encoding"}


@contextmanager
def forwards(server: Server) -> Iterator[Receiver]:
    """Send requests on to a collector until the block ends, and answer as it does."""

    def forward(received: list[Received]) -> Answer:
        *_, last = received
        headers = {name: value for name, value in last.headers.items() if name in _KEPT}
        method = "POST" if last.body else "GET"
        answer = server.client.request(method, last.path, content=last.body, headers=headers)
        return Answer(answer.status_code, body=answer.content)

    with Receiver(forward) as receiver:
        yield receiver
