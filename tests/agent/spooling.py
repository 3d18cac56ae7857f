"""Work of the processes that share a spool. Each imports this module, and so nothing else of the tests."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event

from pgo_agent import DiskSpool
from pgo_agent.endpoint import Upload


def put_many(folder: Path, first: int) -> None:
    spool = DiskSpool(folder)
    for number in range(first, first + 20):
        assert spool.put(Upload(str(number).encode()))


def drain_into(folder: Path, taken: Path) -> None:
    def send(upload: Upload) -> None:
        with taken.open("a") as file:
            file.write(f"{upload.body.decode()}\n")

    spool = DiskSpool(folder)
    for _ in range(20):
        spool.drain(send, Event())
        time.sleep(0.01)
