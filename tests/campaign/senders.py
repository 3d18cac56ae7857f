"""Senders: mutated requests of every protocol, as many of each, to real servers.

What is stored goes to one server, and queries ask another one, in which nothing is added. These are faults:
an answer that the protocol's clients don't expect, 500 or more among them; no answer; an unexpected error in
the log; files left over; a server that ends, or whose processes together take more than `MOST_MEGABYTES`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Self

import httpx

from tests.campaign.collector import Collector
from tests.campaign.report import Findings
from tests.collector.mutants import READERS, SENDERS, Send, fill
from tests.faults.stacks import profile_of

# The memory, in MiB, that all processes of a server may take; it has two workers.
MOST_MEGABYTES = 768
# How many requests of a sender come after one another.
_RUN = 10
_SETTINGS = {"PGOF_GRPC_ADDRESS": "127.0.0.1:0", "PGOF_ROWS_MEGABYTES": "64", "PGOF_BINARY_SECONDS": "5"}
_FAULTS = {"unexpected error", "not JSON"}


def run(
    seed: int,
    seconds: float,
    scratch: Path,
    senders: Mapping[str, Send] = SENDERS,
    most_megabytes: float = MOST_MEGABYTES,
) -> Findings:
    """Send mutated requests for `seconds`, of each sender in turn; see `report`."""
    findings, end = Findings(), time.monotonic() + seconds
    with ExitStack() as stack:
        stored, asked = (
            stack.enter_context(_Target(name, scratch, findings, most_megabytes))
            for name in ("stored", "asked")
        )
        fill(asked.server)
        begin = 0
        while time.monotonic() < end and not findings.faults:
            for name, send in senders.items():
                target = asked if name in READERS else stored
                target.attack(name, send, seed, range(begin, begin + _RUN))
            begin += _RUN
            stored.look()
            asked.look()
        findings.figure("requests of each sender", f"{begin:,}")
        for target in (stored, asked):
            target.report()
    return findings


class _Target:
    """A server that requests are sent to, as a context manager."""

    def __init__(self, name: str, scratch: Path, findings: Findings, most_megabytes: float) -> None:
        self.server = Collector(scratch / name, _SETTINGS)
        self._name, self._findings = name, findings
        self._most_megabytes = most_megabytes
        self._statuses: dict[str, Counter[str]] = {}
        self._megabytes: list[float] = []
        self._kept_lines = 0

    def __enter__(self) -> Self:
        self.server.__enter__()
        self.server.wait_for_log("listening for gRPC")
        self._kept_lines = len(self.server.log)  # of the log: they name the addresses
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()

    def attack(self, name: str, send: Send, seed: int, numbers: range) -> None:
        """Send requests; each is drawn from the seed, the sender's name and its number."""
        statuses = self._statuses.setdefault(name, Counter())
        for number in numbers:
            drawn_from = f"{seed}/{name}/{number}"
            try:
                reply = send(self.server, Random(drawn_from))  # noqa: S311 - nothing secret
            except httpx.TransportError as error:
                self._findings.fault(f"{name}: no answer: {type(error).__name__}", f"Random({drawn_from!r})")
                return
            statuses[reply.status] += 1
            if reply.wrong:
                self._findings.fault(f"{name}: {reply.wrong}", f"Random({drawn_from!r})")
                return

    def look(self) -> None:
        """Look at the server's processes and at what it has logged since it was looked at."""
        if not self.server.is_running():
            self._findings.fault(f"the server {self._name} has ended", "the seed")
            return
        self._megabytes.append(self.server.usage().own)
        if self._megabytes[-1] > self._most_megabytes:
            self._findings.fault(f"the server {self._name} takes {self._megabytes[-1]:.0f} MiB", "the seed")
        lines = self.server.log[self._kept_lines :]
        del self.server.log[self._kept_lines : self._kept_lines + len(lines)]
        for line in lines:
            if line["event"] in _FAULTS:
                self._findings.fault(f"the log has {line['event']!r}", str(line)[:2000])

    def report(self) -> None:
        """Check that the server still stores and ends well, and note what it answered and took."""
        for name, statuses in self._statuses.items():
            told = ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items()))
            self._findings.figure(name, told)
        if not self.server.is_running():
            return
        if self._megabytes:
            self._findings.figure(
                f"memory of the processes of the server {self._name}",
                f"{self._megabytes[0]:.0f} MiB at first, {self._megabytes[-1]:.0f} MiB at last,"
                f" {max(self._megabytes):.0f} MiB at most",
            )
        if (status := self.server.submit(profile_of("after")).status_code) != 204:
            self._findings.fault(f"the server {self._name} answers a submit with {status}", "the seed")
        if left := [*(self.server.data / "incoming").iterdir()]:
            self._findings.fault(f"{len(left)} files are left in incoming/", left[0])
        if code := self.server.stop():
            self._findings.fault(f"the server {self._name} ends with status {code}", "SIGTERM after all")
