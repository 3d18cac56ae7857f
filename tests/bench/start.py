"""Starts of the collector with nothing stored: their CPU time, and the memory that it takes then."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.bench.measure import progress
from tests.bench.report import Section, seconds, table
from tests.bench.rig import Rig
from tests.bench.serving import Request, ours
from tests.server import Server


class Start(NamedTuple):
    """CPU seconds of all processes until two answers, and their memory (PSS) in MiB."""

    healthy: float
    ready: float
    memory: float


def sections(rig: Rig) -> list[Section]:
    """Measure the table."""
    starts = [_start(rig.scratch / f"start-{number}") for number in range(rig.rounds(7))]
    healthy, ready, memory = (median(values) for values in zip(*starts, strict=True))
    progress(f"start: {healthy:.2f} s, {ready:.2f} s, {memory:.0f} MiB")
    head = ("`pgo-collector serve`, nothing stored", "asked", "ours")
    rows = [
        ["until `/healthz` answers: CPU", "≤ 0.5 s", seconds(healthy)],
        ["until `/readyz` answers 200: CPU", "≤ 0.8 s", seconds(ready)],
        ["memory, when nothing is left to do", "≤ 90 MiB", f"{memory:.0f} MiB"],
    ]
    return [
        Section(
            "Starts",
            f"""{table(head, rows)}

CPU is the time of all processes, from the start of the command: the server, the fork server, and the one
worker that a start begins. Memory is that of all three, also in files; pages that several have count once
(PSS). [Where the time of a start goes](architecture.md#where-the-time-of-a-start-goes) says what is left.""",
        )
    ]


def _start(home: Path) -> Start:
    server = Server(home)
    try:
        server.listen()
        with ours(server) as serving:
            serving.ask(Request("GET", "/healthz"))
            healthy = serving.cpu_seconds()
            server.wait_for_log("serving")
            serving.ask(Request("GET", "/readyz"))
            ready = serving.cpu_seconds()
            serving.settled()
            return Start(healthy, ready, serving.shared_memory())
    finally:
        server.kill()
