"""Several collectors over one PostgreSQL and one object store, whose parts die, hang and are cut off.

16 clients submit through nginx while others combine, merge, query and delete, and roll-ups and retention run
every few seconds. Collectors, PostgreSQL, the gateway and a Dask cluster are killed, stopped and cut off, two
at a time. From time to time everything heals, and every collector must give the same merges. Each
acknowledged profile is in them exactly once, any other at most once, and a deleted one not at all; no request
takes longer than its timeouts. At the end the bucket alone gives the same merges.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import sqlalchemy as sa

from tests.campaign.collector import Collector
from tests.campaign.firewall import Firewall, NoFirewall
from tests.campaign.fleet import Owner, marks_of
from tests.campaign.load import Address, Answer, Client
from tests.campaign.machine_clients import EXPIRING, KEEP_DAYS, OWNERS, Clients
from tests.campaign.machine_faults import Trouble
from tests.campaign.machine_parts import COLLECTORS, Machines, Member
from tests.campaign.report import Findings
from tests.constants import LEAST_UNREAD
from tests.interop import ceph_cluster, postgres_cluster
from tests.server import Server

# How long faults go on before all heals and is checked.
_ROUND_SECONDS: Final = 60.0
# All is well again within this time, on a busy machine.
_WELL_SECONDS: Final = 180.0
# Deletes wait for two minutes where a lease was taken over.
_UPKEEP_SECONDS: Final = 300.0
_MOST_FAULTS: Final = 20
# The longest that a request may take by a collector's own log; see `machine_clients.TIMEOUT_SECONDS`.
_MOST_MS: Final = 130_000.0
_SENT_AGAIN: Final = 100
# How many deleted profiles may come back in a reindex; see `_check_rebuilt`.
_MOST_LATE: Final = 3
_SCHEMA: Final = "rebuilt"
SETTINGS: Final = {
    "PGOF_WORKERS": "1",
    "PGOF_ROWS_MEGABYTES": "32",
    "PGOF_CATALOG_CONNECT_SECONDS": "2",
    "PGOF_CATALOG_STATEMENT_SECONDS": "5",
    "PGOF_STORAGE_SECONDS": "5",
    "PGOF_TASK_SECONDS": "20",
    "PGOF_BODY_TIMEOUT": "10",
    LEAST_UNREAD: "50",
    "PGOF_UPKEEP_SECONDS": "2",
    "PGOF_ROLLUP_DAYS": "2",
    "PGOF_ROLLUP_LABELS": "version",
    "PGOF_KEEP_DAYS": f"{KEEP_DAYS}",
    "PGOF_KEEP_COMBINED_DAYS": f"{KEEP_DAYS}",
}


def run(seed: int, seconds: float, scratch: Path, collectors: int = COLLECTORS) -> Findings:
    """Run the campaign; return its findings. The logs of all collectors and faults stay in `scratch`."""
    findings = Findings()
    if missing := postgres_cluster.MISSING or ceph_cluster.MISSING:
        findings.figure("machines", f"skipped: {missing}")
        return findings
    with ExitStack() as stack:
        try:
            firewall = stack.enter_context(Firewall())
        except NoFirewall as reason:
            firewall = None
            findings.figure("cuts", f"skipped: {reason}")
        Campaign(seed, scratch, findings, firewall, collectors).play(seconds)
    return findings


@dataclass
class Campaign:
    """One run, from empty parts until all has been checked; `play` runs it."""

    seed: int
    scratch: Path
    findings: Findings
    firewall: Firewall | None = None
    collectors: int = COLLECTORS
    totals: Counter[str] = field(default_factory=Counter)
    slowest_to_heal: float = 0.0

    def __post_init__(self) -> None:
        self._begin = time.monotonic()
        self._random = Random(f"{self.seed}/campaign")  # noqa: S311 - nothing secret
        self._faults_file = self.scratch / "faults.txt"
        self._told: set[str] = set()

    def play(self, seconds: float) -> None:
        """Play rounds of faults for so long, check all after each, and once more at the end."""
        with Machines(self.scratch, SETTINGS, self.fault, self.collectors) as machines:
            self._machines = machines
            self._clients = Clients(machines, self.seed, time.time_ns(), self.fault)
            end = time.monotonic() + seconds
            with self._clients:
                for number in count():
                    self._play_round(number, min(_ROUND_SECONDS, end - time.monotonic()))
                    if time.monotonic() > end or len(self.findings.faults) >= _MOST_FAULTS:
                        break
            self._check_at_the_end()
            self._note_figures()

    def fault(self, what: str) -> None:
        """Note a fault of the collectors, the first of its words."""
        self.note(f"FAULT: {what}")
        words = "".join(letter for letter in what.partition("such as")[0] if not letter.isdigit())
        if words in self._told:
            self.totals["further faults of a kind that is listed"] += 1
            return
        self._told.add(words)
        moment = f"{time.monotonic() - self._begin:.0f} s"
        self.findings.fault(what, f"--seed {self.seed}, after {moment}; {self.scratch} has logs, faults.txt")

    def note(self, what: str) -> None:
        """Write a line to the file of what happened when."""
        with self._faults_file.open("a") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {time.monotonic() - self._begin:7.1f} s  {what}\n")

    # Rounds.

    def _play_round(self, number: int, seconds: float) -> None:
        self.note(f"round {number}: faults for {seconds:.0f} s")
        trouble = Trouble(self._machines, self.firewall, f"{self.seed}/{number}", self.note, self.fault)
        trouble.play(max(seconds, 1))
        self.totals += Counter({f"faults: {name}": times for name, times in trouble.happened.items()})
        self.note("all is healed")
        self._check_ended()
        healed = time.monotonic()
        if wrong := self._machines.are_ready(_WELL_SECONDS):
            self.fault(f"{_WELL_SECONDS:.0f} s after all healed: {wrong}")
        self._check_all()
        self.slowest_to_heal = max(self.slowest_to_heal, time.monotonic() - healed)
        self.note("all is well")
        for member in self._machines.members:
            member.keep_log()

    def _check_ended(self) -> None:
        """Start collectors that ended by themselves, which is a fault."""
        for member in self._machines.members:
            if not member.collector.is_running():
                self.fault(f"{member.name} ended by itself")
                member.kill()
                member.start()

    def _check_all(self) -> None:
        """Check the merges of all owners by all collectors."""
        for member in self._machines.members:
            for owner in OWNERS:
                self._within(
                    f"{member.name} gives no merge of {'/'.join(owner)}",
                    lambda: self._clients.check_merge(member.address, owner),  # noqa: B023 - called at once
                )
                self.totals["merges held against what was sent, by a collector when all was well"] += 1

    def _within(self, what: str, is_done: Callable[[], bool], seconds: float = _WELL_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not is_done():
            if time.monotonic() > deadline:
                self.fault(f"{what} for {seconds:.0f} s, and all is well")
                return
            time.sleep(0.5)

    # The end.

    def _check_at_the_end(self) -> None:
        """Check everything without clients: once more, after sending again, combined, and rebuilt."""
        machines, clients = self._machines, self._clients
        self.note("the end: no clients any more")
        self._check_all()
        self._check_deleted(machines.members)
        self._within_upkeep()
        again = clients.sample(self._random, _SENT_AGAIN)
        for marked in again:
            self._within("a profile that is stored is refused", lambda: clients.send(self._random, marked))  # noqa: B023 - called at once
        self._check_all()
        for owner in OWNERS:
            self._within(
                f"no combine of {'/'.join(owner)}",
                lambda: clients.check_merge(machines.url, owner, combine=True),  # noqa: B023 - called at once
            )
        before = [
            {owner: self._merge(member.address, owner) for owner in OWNERS} for member in machines.members
        ]
        for member, merges in zip(machines.members, before, strict=True):
            if differing := [owner for owner in OWNERS if merges[owner] != before[0][owner]]:
                self.fault(f"{member.name} gives other bytes than {machines.members[0].name}: {differing}")
        # Whoever takes a lease from a dead collector deletes nothing for a while.
        self._within("retired blobs stay", self._has_no_garbage, _UPKEEP_SECONDS)
        for member in machines.members:
            if code := member.end():
                self.fault(f"{member.name} ended with {code} after SIGTERM")
        self._check_rebuilt(before[0])

    def _within_upkeep(self) -> None:
        """Wait until retention has deleted what is too old."""
        address = self._machines.members[0].address
        self._within(
            "retention leaves what is too old",
            lambda: self._ask_merge(address, EXPIRING).status == 404,
            _UPKEEP_SECONDS,
        )

    def _has_no_garbage(self) -> bool:
        """Return whether the bucket has nothing that the catalog has given up."""
        with self._engine().begin() as connection:
            return not connection.exec_driver_sql("SELECT count(*) FROM blobs WHERE NOT live").scalar_one()

    def _engine(self) -> sa.Engine:
        url = f"postgresql+psycopg://postgres@127.0.0.1:{self._machines.database.port}/postgres"
        return sa.create_engine(url, poolclass=sa.NullPool)

    def _check_deleted(self, members: list[Member]) -> None:
        for owner, gone in self._clients.deleted.items():
            for member in members:
                self._clients.check_deleted(member.address, owner, gone)

    def _check_rebuilt(self, before: dict[Owner, bytes]) -> None:
        """Rebuild the catalog from the bucket alone, in another schema and data folder, and check merges."""
        machines, clients = self._machines, self._clients
        self.note("reindex")
        with self._engine().begin() as connection:
            connection.exec_driver_sql(f"CREATE SCHEMA {_SCHEMA}")
        rebuilt = Collector(self.scratch / "rebuilt", machines.environment(0, _SCHEMA))
        finished = rebuilt.run("reindex")
        if finished.returncode:
            self.fault(f"reindex ended with {finished.returncode}: {finished.stderr[-300:]}")
            return
        with rebuilt:
            address = Address()
            address.url = rebuilt.base_url
            for owner in OWNERS:
                self._within("a rebuilt catalog gives no merge", lambda: clients.check_merge(address, owner))  # noqa: B023
                after = self._merge(address, owner)
                if after != before[owner]:
                    self._compare(owner, before[owner], after)
            came_late = [
                number
                for owner, gone in clients.deleted.items()
                for number in clients.still_there(address, owner, gone)
            ]
        # The gateway does what it was asked before it was stopped or cut off, though the collector gave up.
        # Such a put, of a submit that was tried again, may come when the profile is deleted already.
        self.totals["deleted profiles that were put late, and a reindex counts"] += len(came_late)
        if len(came_late) > _MOST_LATE:
            self.fault(f"a reindex counts {len(came_late)} deleted profiles, such as {came_late[:5]}")
        self.totals["merges by a rebuilt catalog"] += len(OWNERS)

    def _compare(self, owner: Owner, before: bytes, after: bytes) -> None:
        """Find a fault in a merge that differs after a reindex in more than what no submit acknowledged."""
        was, now = marks_of(before), marks_of(after)
        differing = {number for number in was.keys() | now.keys() if was[number] != now[number]}
        if wrong := sorted(differing & self._clients.ledger.acknowledged):
            self.fault(f"{'/'.join(owner)}: a reindex changes acknowledged profiles, such as {wrong[:5]}")
        elif differing:
            self.totals["unacknowledged profiles that a reindex adds or drops"] += len(differing)
        else:
            self.fault(f"{'/'.join(owner)}: the same profiles are other bytes after a reindex")

    def _merge(self, address: Address, owner: Owner) -> bytes:
        answer = self._ask_merge(address, owner)
        if answer.status not in {200, 404}:
            self.fault(f"a merge of {'/'.join(owner)} is {answer.status} {answer.text} though all is well")
        return answer.content if answer.status == 200 else b""

    def _ask_merge(self, address: Address, owner: Owner) -> Answer:
        with Client(address, _WELL_SECONDS) as client:
            query = {"service": owner[0], "type": owner[1]}
            return client.ask("GET", "/v1/merge", Server.merge_key, query)

    def _note_figures(self) -> None:
        findings, clients = self.findings, self._clients
        findings.figure("submits acknowledged", f"{len(clients.ledger.acknowledged):,}")
        findings.figure("retries of submits", f"{clients.retries:,}")
        for name, times in sorted(self.totals.items()):
            findings.figure(name, f"{times:,}")
        for name, times in sorted(clients.answers.items()):
            findings.figure(f"answers: {name}", f"{times:,}")
        for name, times in clients.refusals.most_common(20):
            findings.figure(f"refused: {name}", f"{times:,}")
        if errors := self._machines.proxy_errors():
            findings.figure("other errors of nginx", f"{len(errors):,}, such as {errors[0][:300]}")
        refused = sum(member.starts_refused for member in self._machines.members)
        findings.figure("starts that ended because something was down", f"{refused:,}")
        slowest = max(member.slowest_ms for member in self._machines.members)
        findings.figure("slowest request, by nginx", f"{clients.slowest:.1f} s")
        findings.figure("slowest request, by a collector's log", f"{slowest / 1000:.1f} s")
        findings.figure("longest until all was well and checked", f"{self.slowest_to_heal:.1f} s")
        if slowest > _MOST_MS:
            self.fault(f"a request took a collector {slowest / 1000:.0f} s")
