"""Chaos finds planted faults: a lost profile, one that counts twice, a background task that ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.campaign import damage
from tests.campaign.chaos import Epoch
from tests.campaign.chaos_steps import Step, kill_worker
from tests.campaign.clock import JumpingClock, has_faketime
from tests.campaign.fleet import Ledger, Maker, Marked, marks_of
from tests.campaign.report import Findings
from tests.faults.stacks import EPOCH
from tests.server import Server


def played(scratch: Path, *steps: Step) -> Epoch:
    """Play steps on a data folder until one of them marks it as broken."""
    epoch = Epoch(Random(1), "--seed 1, data folder 0", scratch, Findings(), steps)  # noqa: S311
    epoch.play(60)
    return epoch


def lose_a_profile(epoch: Epoch) -> None:
    """Delete a blob without telling the ledger."""
    deadline = time.monotonic() + 120
    while not (found := damage.blobs(epoch.collector.data) if epoch.ledger.must(("probe", "cpu")) else []):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with epoch.calm.disturbed(), epoch.load.paused():
        epoch.collector.signal_group(signal.SIGKILL)
        epoch.ended()
        found = [path for path in damage.blobs(epoch.collector.data) if "/probe/" in str(path)]
        found[0].unlink()
        epoch.start()
    epoch.load.check_merge(epoch.client, ("probe", "cpu"))
    epoch.is_broken = True


def heal(epoch: Epoch) -> None:
    kill_worker(epoch)
    epoch.is_broken = True


@pytest.mark.exhaustive
@pytest.mark.alike(1, family="a lost profile")
def test_a_lost_profile_is_found(tmp_path: Path) -> None:
    (fault,) = played(tmp_path, Step("lose", lose_a_profile)).findings.faults
    assert "probe/cpu: 1 of" in fault
    assert "profiles lost" in fault
    assert "--seed 1, data folder 0, step 1 (lose)" in fault


@pytest.mark.exhaustive
def test_what_heals_is_no_fault(tmp_path: Path) -> None:
    epoch = played(tmp_path, Step("kill workers", heal))
    assert not epoch.findings.faults
    assert epoch.totals["submits acknowledged"]
    assert "longest time that submits failed while the server was up" in epoch.slowest


@pytest.mark.system
@pytest.mark.skipif(not has_faketime(), reason="faketime is missing")
def test_when_the_clock_jumps_sleeps_go_on(tmp_path: Path) -> None:
    clock = JumpingClock(tmp_path / "clock")
    clock.jump(3)
    code = "import time; time.sleep(0.01); print(time.time())"
    environment = {**os.environ, **clock.environment}
    shown = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    assert float(shown) - time.time() == pytest.approx(3 * 86_400, abs=60)


def test_the_ledger_tells_lost_doubled_and_foreign_profiles() -> None:
    maker, ledger = Maker(), Ledger(horizon=EPOCH)
    sent = [Marked(number, "a", "cpu", "", EPOCH + number) for number in range(5)]
    old = Marked(9, "a", "cpu", "", EPOCH - 1)
    for marked in (*sent, old):
        ledger.send(marked, maker.body(marked))
    for marked in (*sent[:3], old):
        ledger.acknowledge(marked)
    must = ledger.must(("a", "cpu"))
    assert must == {0, 1, 2}
    ledger.excuse([maker.body(sent[1]).digest])
    assert not [*ledger.wrong(("a", "cpu"), must, Counter({0: 1, 2: 1, 3: 1}))]
    found = [*ledger.wrong(("a", "cpu"), must, Counter({0: 1, 3: 2, 7: 1}))]
    assert [
        next(word for word in ("lost", "doubled", "never sent there") if word in each) for each in found
    ] == ["lost", "doubled", "never sent there"]
    assert not [*ledger.wrong(("a", "cpu"), must, Counter({0: 1, 3: 2, 7: 1}))]  # each fault is reported once


def test_a_merge_of_real_profiles_tells_how_often_it_counts_each(tmp_path: Path) -> None:
    maker = Maker()
    with Server(tmp_path / "home") as server:
        for number in range(maker.bases):
            marked = Marked(number, "a", "cpu", "", EPOCH + number, base=number)
            for _ in range(1 + number % 2):
                answer = server.submit(maker.body(marked).content, query={"service": "a"})
                assert answer.status_code == 204, answer.text
        merged = server.merge(query={"service": "a"}).content
    assert marks_of(merged) == dict.fromkeys(range(maker.bases), 1)
