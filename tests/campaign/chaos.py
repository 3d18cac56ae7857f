"""Chaos: a collector under load, to which everything happens that happens to servers.

Submitters, combines, roll-ups, retention, merges, queries and releases go on. Step by step, processes are
killed, stopped and terminated, the disk fills up, files are damaged and the clock jumps. An acknowledged
profile counts exactly once in merges, unless retention or the campaign itself deleted it. A well-behaved
client is served again within seconds, and no background task ends for good.
"""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.campaign.chaos_steps import STEPS, Step
from tests.campaign.clock import JumpingClock
from tests.campaign.collector import Collector
from tests.campaign.damage import digests_of
from tests.campaign.fleet import Ledger, Maker, Marked, marks_of
from tests.campaign.load import Address, Calm, Client, Load, Probe, Watch
from tests.campaign.report import Findings
from tests.campaign.traffic import KEEP_DAYS, OWNERS, QUERIES, choose
from tests.faults.mounts import small_disk
from tests.faults.stacks import DAY
from tests.server import Server

# The clock isn't set further forward than this, so that profiles younger than the difference stay.
MOST_JUMP_DAYS: Final = 3
_EPOCH_SECONDS: Final = 240.0
_LAST_CHECKS_SECONDS: Final = 25.0
_MOST_FAULTS: Final = 20
# The time for a start with a small folder, on a busy machine.
START_SECONDS: Final = 60.0
# The time for an end by SIGTERM: requests in progress may take the grace of 20 s and PGOF_BODY_TIMEOUT.
END_SECONDS: Final = 60.0
# A well-behaved client is served again within this time, if the server process itself goes on.
GAP_SECONDS: Final = 10.0
# Everything else is well again within this time.
WELL_SECONDS: Final = 20.0
# Events of the log that no fault from outside excuses.
_NEVER: Final = ("unexpected error",)
SETTINGS: Final = {
    "PGOF_WORKERS": "2",
    "PGOF_ROWS_MEGABYTES": "16",
    "PGOF_UPKEEP_SECONDS": "1",
    "PGOF_ROLLUP_DAYS": "2",
    "PGOF_ROLLUP_LABELS": "version",
    "PGOF_KEEP_DAYS": f"{KEEP_DAYS}",
    "PGOF_KEEP_COMBINED_DAYS": f"{KEEP_DAYS}",
    "PGOF_RELEASE_CHECK_SECONDS": "1",
    "PGOF_RELEASES_KEPT": "3",
    "PGOF_MERGES_KEPT": "20",
    "PGOF_BODY_TIMEOUT": "10",
}


def run(seed: int, seconds: float, scratch: Path) -> Findings:
    """Run the campaign; return its findings. The collector's logs at a fault stay in `scratch`."""
    findings = Findings()
    end = time.monotonic() + seconds
    totals: Counter[str] = Counter()
    slowest: dict[str, float] = {}
    for number in count():
        random = Random(f"{seed}/{number}")  # noqa: S311 - nothing secret
        epoch = Epoch(random, f"--seed {seed}, data folder {number}", scratch, findings)
        length = min(_EPOCH_SECONDS, end - time.monotonic())
        epoch.play(length)
        totals += epoch.totals
        for name, value in epoch.slowest.items():
            slowest[name] = max(slowest.get(name, 0), value)
        if time.monotonic() > end - _LAST_CHECKS_SECONDS or len(findings.faults) >= _MOST_FAULTS:
            break
    for name, times in sorted(totals.items()):
        findings.figure(name, f"{times:,}")
    for name, value in sorted(slowest.items()):
        findings.figure(name, f"{value:.1f} s")
    return findings


@dataclass
class Epoch:
    """One data folder, from empty until all has been checked; `play` runs it."""

    random: Random
    place: str
    scratch: Path
    findings: Findings
    steps: tuple[Step, ...] = STEPS
    totals: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.now, self.begin = time.time_ns(), time.monotonic()
        self.maker = Maker()
        self.ledger = Ledger(self.now - int((KEEP_DAYS - MOST_JUMP_DAYS - 0.5) * DAY))
        self.calm, self.address = Calm(), Address()
        self.inputs_victims: set[str] = set()  # digests of profiles in combined blobs with a damaged .inputs
        self.step = "start"
        self.number = 0
        self.clock: JumpingClock | None = None
        self.ballast: Path | None = None
        self.is_broken = False
        self._kinds: set[str] = set()
        self._scanned = 0

    def play(self, seconds: float) -> None:
        """Play steps for `seconds`, less the time of the last checks."""
        end = time.monotonic() + max(seconds - _LAST_CHECKS_SECONDS, 0)
        with ExitStack() as stack:
            self._set_up(stack)
            try:
                stack.callback(self._forget_clocks)
                stack.callback(self.collector.kill)
                self.start()
                stack.callback(self._note_totals)
                self.load = stack.enter_context(self._new_load())
                self.probe = stack.enter_context(Probe(self.load, ("probe", "cpu")))
                self.watch = stack.enter_context(Watch(self.address))
                self.client = stack.enter_context(Client(self.address))
                while time.monotonic() < end and not self.is_broken:
                    self._play_step()
                if not self.is_broken:
                    self._check_at_the_end()
            except AssertionError as error:
                self.fault(f"the collector can't be started or ended: {str(error)[:500]}")

    def fault(self, what: str) -> None:
        """Note a fault with the current log; of faults that differ only in numbers, only the first."""
        kind = re.sub(r"\d+|Marked\(.*", "", f"{self.step}: {what}")
        if kind in self._kinds:
            self.totals["further faults of a kind that is listed"] += 1
            return
        self._kinds.add(kind)
        log = self.scratch / f"chaos-{len(self.findings.faults)}.log"
        log.write_text("\n".join(map(str, list(self.collector.log))))
        last = "".join(f"\n      {line}" for line in self.collector.tail())
        self.findings.fault(what, f"{self.place}, step {self.number} ({self.step}); {log}, which ends:{last}")

    # Actions of the steps.

    def start(self) -> None:
        """Start the collector and wait until it is ready. Raises AssertionError."""
        self._scanned = 0
        begin = time.monotonic()
        self.collector.start()
        self.address.url = self.collector.base_url
        with Client(self.address, timeout=5) as client:
            while (answer := client.ask("GET", "/readyz", "")).status != 200:
                assert time.monotonic() < begin + START_SECONDS, f"not ready after a start: {answer.text}"
                assert self.collector.is_running(), f"it ended: {self.collector.log}"
                time.sleep(0.05)
        self.totals["starts"] += 1
        self.note_slowest("slowest start", time.monotonic() - begin)

    def ended(self, code: int | None = None) -> None:
        """Wait until the collector, which is about to end, has ended, with this exit code if one is given."""
        self.address.url = None
        pid = self.collector.process.pid
        begin = time.monotonic()
        found = self.collector.process.wait(END_SECONDS) if code is not None else None
        if code is not None:
            self.note_slowest("slowest end after SIGTERM", time.monotonic() - begin)
            if found != code:
                self.fault(f"after SIGTERM it ended with {found}")
        self.scan_log()
        self.collector.kill()
        JumpingClock.forget(pid)

    def note_slowest(self, name: str, seconds: float) -> None:
        """Note a duration if it is the longest of its name."""
        self.slowest[name] = max(self.slowest.get(name, 0), seconds)

    def scan_log(self) -> None:
        """Check the log lines since the last call for events that must not occur."""
        log = self.collector.log
        end = len(log)
        for line in log[self._scanned : end]:
            trace = line["event"] == "not JSON" and "Traceback" in str(line.get("line"))
            if line["event"] in _NEVER or trace:
                reason = str(line.get("exception", line)).strip().splitlines()[-1]
                self.fault(f"the log has {line['event']!r} {line.get('task', '')}: {reason[:300]}")
        self._scanned = end

    @contextmanager
    def well_again(self, gap_seconds: float | None = GAP_SECONDS) -> Iterator[None]:
        """Do harm in a context; afterwards all must be well soon, and a well-behaved client even sooner.

        `gap_seconds` is None if the server process is down or stopped: a gap in its service is no fault then.
        """
        with self.calm.disturbed():
            since = time.monotonic()
            yield
            healed = time.monotonic()
            probed = self.probe.wait_for_success(WELL_SECONDS)
            gap = self.probe.gap(since, time.monotonic())
            if gap_seconds is not None:
                self.note_slowest("longest time that submits failed while the server was up", gap)
                if gap > gap_seconds:
                    silent = self.watch.said_ready_throughout(since, time.monotonic())
                    self.fault(
                        f"a well-behaved client's submits failed for {gap:.0f} s"
                        + (", and /readyz said 200 all the while" if silent else "")
                    )
            if not (probed and self._merges_are_answered(healed + WELL_SECONDS)):
                self.fault(f"{WELL_SECONDS:.0f} s later it isn't well: {self._what_is_wrong()}")
                self.ended()
                self.start()
            self.note_slowest("longest until all was well again", time.monotonic() - healed)

    def excuse(self, blob: Path) -> int:
        """Excuse the profiles in a blob that is about to be damaged; return their number."""
        return self.ledger.excuse([*digests_of(blob)])

    # How an epoch is played.

    def _set_up(self, stack: ExitStack) -> None:
        home = self.scratch / f"chaos-{self.place.rpartition(' ')[2]}"
        home.mkdir(parents=True)
        environment = dict(SETTINGS)
        try:
            self.clock = JumpingClock(home / "clock")
            environment |= self.clock.environment
        except FileNotFoundError as missing:
            self.findings.figure("clock that jumps", f"skipped: {missing}")
        try:
            disk = stack.enter_context(small_disk(home / "disk", "400m"))
            self.ballast = disk / "ballast"
        except pytest.skip.Exception as reason:
            disk = home / "disk"
            self.findings.figure("full disk", f"skipped: {reason}")
        self.backup = home / "backup"
        self.collector = Collector(disk / "home", environment)

    def _forget_clocks(self) -> None:
        for pid in self.collector.spawned:
            JumpingClock.forget(pid)

    def _new_load(self) -> Load:
        bases = self.maker.bases
        chosen = choose(self.now)

        def within(random: Random, number: int) -> Marked:
            marked = chosen(random, number)
            return marked._replace(base=marked.base % bases) if marked.base >= 0 else marked

        return Load(
            self.address, self.ledger, self.maker, self.calm, self.fault, within, QUERIES,
            seed=self.random.randrange(1 << 30),
        )  # fmt: skip

    def _play_step(self) -> None:
        possible = [step for step in self.steps if step.is_possible(self)]
        step = self.random.choices(possible, [step.weight for step in possible])[0]
        self.number, self.step = self.number + 1, step.name
        self.totals[f"steps: {step.name}"] += 1
        with (self.scratch / "steps.txt").open("a") as file:
            file.write(
                f"{time.monotonic() - self.begin:7.1f} s  {self.place}, step {self.number}: {step.name}\n"
            )
        step.play(self)
        self.scan_log()
        time.sleep(self.random.uniform(0.2, 1))  # a calm time
        self.load.check_merge(self.client, self.random.choice(OWNERS))
        self.totals["merges held against what was sent"] += 1
        if self.number % 10 == 0:
            self.step = f"check after {step.name}"
            self._check_deeply()

    def _merges_are_answered(self, deadline: float) -> bool:
        """Return whether the merge of every owner is answered, and /readyz is well."""
        with Client(self.address, timeout=5) as client:
            for path, query in [
                ("/readyz", {}),
                *(("/v1/merge", {"service": service, "type": type_}) for service, type_ in OWNERS),
            ]:
                while client.ask("GET", path, Server.merge_key, query).status not in {200, 404}:
                    if time.monotonic() > deadline:
                        return False
                    time.sleep(0.1)
        return True

    def _what_is_wrong(self) -> str:
        with Client(self.address, timeout=5) as client:
            ready = client.ask("GET", "/readyz", "")
        said = ready.text or ready.content.decode()
        return f"/readyz {ready.status} {said[:300]}; {dict(self.probe.failures)}"

    def _check_deeply(self) -> None:
        """Check with no traffic that every profile counts once, and that a re-send changes nothing."""
        if self.clock is not None:
            self.clock.jump(0)
        with self.load.paused():
            done = len(self.collector.events("upkeep done"))
            deadline = time.monotonic() + WELL_SECONDS
            while len(self.collector.events("upkeep done")) < done + 2:
                if time.monotonic() > deadline:
                    self.fault(f"upkeep hasn't been done for {WELL_SECONDS:.0f} s")
                    break
                time.sleep(0.05)
            self._check_all()
            answer = self.client.ask("GET", "/v1/merge", Server.merge_key, {"service": "expiring"})
            with suppress(ValueError):
                if answer.status == 200 and (kept := marks_of(answer.content)):
                    self.fault(f"retention left {len(kept)} profiles that are too old")
            for marked in self.load.sample(self.random, 30):
                self.load.send_again(self.client, marked)
            self._check_all()

    def _check_all(self) -> None:
        for owner in OWNERS:
            if not self.load.check_merge(self.client, owner):
                self.fault(f"the merge of {owner} isn't answered")
            self.totals["merges held against what was sent"] += 1

    def _check_at_the_end(self) -> None:
        """Check everything again after a reindex, and in a backup that is restored."""
        self.step = "last check"
        self._check_deeply()
        self.step = "backup at the end"
        backed_up = {owner: self.ledger.must(owner) for owner in OWNERS}
        self.backed_up()
        self.step = "reindex at the end"
        with self.calm.disturbed(), self.load.paused():
            self.collector.signal(signal.SIGTERM)
            self.ended(code=0)
            self.reindexed()
            self.start()
        with self.load.paused():
            self._check_all()
            by_digest = self.ledger.of_digests(self.inputs_victims)
            for marked in self.random.sample(by_digest, min(30, len(by_digest))):
                self.load.send_again(self.client, marked)
            self._check_all()
        self.step = "restore at the end"
        self._check_restored(backed_up)

    def reindexed(self) -> None:
        """Rebuild the catalog, which then doesn't know what combined blobs with a damaged .inputs contain."""
        self.ledger.excuse(self.inputs_victims)
        finished = self.collector.run("reindex")
        if finished.returncode:
            self.fault(f"reindex ended with {finished.returncode}: {finished.stderr[-300:]}")
        self.totals["reindexes"] += 1

    def backed_up(self) -> bool:
        """Make a backup; return whether it is usable, possibly without what was damaged."""
        finished = self.collector.run("backup", str(self.backup))
        if "Traceback" in finished.stderr:
            self.fault(f"a backup: {finished.stderr.strip().splitlines()[-1]}")
        elif finished.returncode not in {0, 1} or (finished.returncode and not self.ledger.excused):
            self.fault(f"a backup ended with {finished.returncode}: {finished.stderr[-300:]}")
        self.totals[f"backups that ended with {finished.returncode}"] += 1
        return finished.returncode in {0, 1}

    def _check_restored(self, backed_up: dict[tuple[str, str], set[int]]) -> None:
        restored = Collector(self.scratch / f"chaos-restored-{self.place.rpartition(' ')[2]}", SETTINGS)
        finished = restored.run("restore", str(self.backup))
        if finished.returncode not in {0, 1}:
            self.fault(f"a restore ended with {finished.returncode}: {finished.stderr[-300:]}")
            return
        with restored:
            address = Address()
            address.url = restored.base_url
            with Client(address) as client:
                for owner, must in backed_up.items():
                    query = {"service": owner[0], "type": owner[1]}
                    answer = client.ask("GET", "/v1/merge", Server.merge_key, query)
                    counts = marks_of(answer.content) if answer.status == 200 else Counter[int]()
                    for what in self.ledger.wrong(owner, must, counts):
                        self.fault(f"restored from a backup: {what}")
            self.totals["backups restored and checked"] += 1

    def _note_totals(self) -> None:
        self.totals["submits acknowledged"] += len(self.ledger.acknowledged)
        self.totals["retries of submits"] += self.load.retries
        self.totals["profiles that the campaign itself damaged"] += len(self.ledger.excused)
        self.totals["queries and merges answered"] += self.load.of("query 2")
