"""The steps of chaos: each harms a collector under load in one way, and says what must hold afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tests.campaign import damage
from tests.campaign.collector import Collector
from tests.campaign.load import Address, Client
from tests.faults.stacks import profile_of
from tests.server import Server

if TYPE_CHECKING:
    from tests.campaign.chaos import Epoch

T = TypeVar("T")

_LEFT_SECONDS = 10.0
_LOCK_SECONDS = 5.0


class Step(NamedTuple):
    """A kind of harm; one with a larger weight comes more often."""

    name: str
    play: Callable[[Epoch], None]
    weight: float = 1
    is_possible: Callable[[Epoch], bool] = lambda _: True


# Processes.


def kill_server(epoch: Epoch) -> None:
    """Kill the server process; its workers must end by themselves."""
    with epoch.well_again(gap_seconds=None):
        _pause(epoch)
        epoch.collector.signal(signal.SIGKILL)
        if left := epoch.collector.wait_until_left(_LEFT_SECONDS):
            epoch.fault(f"{len(left)} processes outlive their server by {_LEFT_SECONDS:.0f} s")
        epoch.ended()
        epoch.start()


def kill_group(epoch: Epoch) -> None:
    with epoch.well_again(gap_seconds=None):
        _pause(epoch)
        _killed(epoch)
        epoch.start()


def kill_worker(epoch: Epoch) -> None:
    _signal_worker(epoch, signal.SIGKILL)


def terminate_worker(epoch: Epoch) -> None:
    _signal_worker(epoch, signal.SIGTERM)


def kill_fork_server(epoch: Epoch) -> None:
    """Kill the fork server; workers are forked from a new one when the next is needed."""
    with epoch.well_again():
        for pid in epoch.collector.fork_servers():
            os.kill(pid, signal.SIGKILL)
        for pid in _some_workers(epoch):
            _signal(pid, signal.SIGKILL)


def stop_worker(epoch: Epoch) -> None:
    """Stop a worker for a while, and continue it unless it was replaced."""
    stopped = _some_workers(epoch)
    with epoch.well_again():
        for pid in stopped:
            _signal(pid, signal.SIGSTOP)
        _pause(epoch, 4)
        for pid in stopped:
            _signal(pid, signal.SIGCONT)


def hang_worker(epoch: Epoch) -> None:
    """Stop a worker for good: the server has to replace it."""
    with epoch.well_again():
        for pid in _some_workers(epoch):
            _signal(pid, signal.SIGSTOP)


def hang_worker_and_terminate(epoch: Epoch) -> None:
    """Stop a worker, and terminate the server: the worker mustn't keep it from ending."""
    with epoch.well_again(gap_seconds=None):
        for pid in _some_workers(epoch):
            _signal(pid, signal.SIGSTOP)
        _pause(epoch)
        epoch.collector.signal(signal.SIGTERM)
        _ended_well(epoch)
        epoch.start()


def stop_server(epoch: Epoch) -> None:
    """Stop the server and continue it, like a suspended host or a debugger; requests in progress go on."""
    with epoch.well_again(gap_seconds=None):
        whole = epoch.random.random() < 0.5
        send = epoch.collector.signal_group if whole else epoch.collector.signal
        send(signal.SIGSTOP)
        _pause(epoch, 4)
        send(signal.SIGCONT)


def terminate_server(epoch: Epoch) -> None:
    with epoch.well_again(gap_seconds=None):
        epoch.collector.signal(signal.SIGTERM)
        _ended_well(epoch)
        epoch.start()


def terminate_group(epoch: Epoch) -> None:
    """Signal the whole group, like Ctrl-C in a terminal or a container's init; workers then may just end."""
    with epoch.well_again(gap_seconds=None):
        before = len(epoch.collector.log)
        epoch.collector.signal_group(signal.SIGTERM)
        _ended_well(epoch)
        errors = [line for line in epoch.collector.log[before:] if line.get("level") == "error"]
        if errors:
            epoch.fault(f"SIGTERM of all its processes logs errors: {errors[0]}")
        epoch.start()


# Files. Caches are made again; damaged profiles are left out; all else stays.


def damage_merged(epoch: Epoch) -> None:
    for path in _some(epoch.random, damage.files(epoch.collector.data / "merged"), 5):
        damage.damage(path, epoch.random.choice(damage.WAYS), epoch.random)
    for owner in (("one", "cpu"), ("two", "cpu"), ("two", "wall")):
        epoch.load.check_merge(epoch.client, owner)


def damage_blob(epoch: Epoch) -> None:
    """Damage a blob with few profiles in it, since all of them may be lost then."""
    found = _some(epoch.random, damage.blobs(epoch.collector.data), 4)
    if found:
        blob = min(found, key=lambda path: len([*damage.digests_of(path)]))
        epoch.excuse(blob)
        damage.damage(blob, epoch.random.choice(damage.WAYS), epoch.random)
        epoch.excuse(blob)


def remove_day(epoch: Epoch) -> None:
    """Delete the folder of a series' day by hand; later submits to it are stored as usual."""
    found = _some(epoch.random, damage.blobs(epoch.collector.data), 4)
    if not found:
        return
    folder = min((path.parent for path in found), key=lambda path: len([*path.iterdir()]))
    for blob in damage.blobs(epoch.collector.data):
        if blob.parent == folder:
            epoch.excuse(blob)
    shutil.rmtree(folder, ignore_errors=True)
    service, type_, *labels, day = folder.relative_to(epoch.collector.data / "blobs").parts
    if any(label.endswith("=") for label in labels):
        return  # that of a roll-up: nothing can be submitted there
    taken = time.strptime(f"{day} 12:00", "%Y-%m-%d %H:%M")
    marked = epoch.load.marked(epoch.random)._replace(
        service=service, type=type_, labels=",".join(labels), base=-1, undated=False,
        time_nanos=(int(time.mktime(taken)) - time.timezone) * 1_000_000_000,
    )  # fmt: skip
    epoch.load.send_until_acknowledged(epoch.client, marked)


def damage_rows(epoch: Epoch) -> None:
    """Damage row files while the server is down: files mapped into memory can't be checked on each use."""
    with epoch.well_again(gap_seconds=None):
        _killed(epoch)
        for path in _some(epoch.random, damage.files(epoch.collector.data / "rows"), 5):
            damage.damage(path, epoch.random.choice(damage.WAYS), epoch.random)
        epoch.start()


def delete_rows(epoch: Epoch) -> None:
    """Delete row files while the server runs, as the docs permit."""
    for path in damage.files(epoch.collector.data / "rows"):
        path.unlink(missing_ok=True)


def damage_inputs(epoch: Epoch) -> None:
    """Damage an .inputs; the catalog knows its content too, unless it is lost as well."""
    with epoch.well_again(gap_seconds=None):
        _killed(epoch)
        for path in _some(epoch.random, damage.inputs(epoch.collector.data), 2):
            digests = {*damage.digests_of(damage.blob_of(path))}
            if damage.damage(path, epoch.random.choice(damage.WAYS), epoch.random):
                epoch.inputs_victims |= digests
        epoch.start()


def lose_catalog(epoch: Epoch) -> None:
    """Delete the catalog, or only its write-ahead log."""
    with epoch.well_again(gap_seconds=None):
        _killed(epoch)
        if epoch.random.random() < 0.5:
            (epoch.collector.data / "catalog.sqlite3-wal").unlink(missing_ok=True)
        else:
            for path in epoch.collector.data.glob("catalog.sqlite3*"):
                path.unlink()
        epoch.ledger.excuse(epoch.inputs_victims)
        epoch.start()


def damage_catalog(epoch: Epoch) -> None:
    """Damage the catalog: the server refuses to start, or fails at a damaged page; both name the repair."""
    with epoch.well_again(gap_seconds=None):
        _killed(epoch)
        catalog = epoch.collector.data / "catalog.sqlite3"
        if epoch.random.random() < 0.5:
            damage.zero_pages(catalog, epoch.random)
        else:
            damage.damage(catalog, "truncated", epoch.random)
        try:
            epoch.start()
        except AssertionError:
            _check_told(epoch)
        else:
            for service, type_ in (("one", "cpu"), ("two", "cpu"), ("two", "wall")):
                query = {"service": service, "type": type_}
                answer = epoch.client.ask("GET", "/v1/merge", Server.merge_key, query)
                if answer.status >= 500 and "reindex" not in answer.text:
                    epoch.fault(
                        f"a damaged catalog is answered {answer.status} {answer.text}, without the way out"
                    )
        _killed(epoch)
        epoch.reindexed()
        epoch.start()


def _check_told(epoch: Epoch) -> None:
    log = str(epoch.collector.log)
    if "reindex" not in log:
        epoch.fault("a start on a damaged catalog fails without naming `reindex`")


def delete_lock(epoch: Epoch) -> None:
    """Delete the lock and start a second server on the folder: at most one of them accepts submits."""
    with epoch.well_again(gap_seconds=None):
        lock = epoch.collector.data / "lock"
        lock.unlink()
        environment = epoch.collector.environment | {"PGOF_DIRECTORY": str(epoch.collector.data)}
        second = Collector(epoch.scratch / "second", environment)
        second.environment["PGOF_DIRECTORY"] = str(epoch.collector.data)
        pid = 0
        try:
            with suppress(AssertionError):  # it may refuse to start
                second.start()
                pid = second.process.pid
                _check_one_serves(epoch, second)
        finally:
            second.kill()
            if epoch.clock is not None and pid:
                epoch.clock.forget(pid)
        _killed(epoch)
        epoch.start()


def _check_one_serves(epoch: Epoch, second: Collector) -> None:
    time.sleep(_LOCK_SECONDS)
    address = Address()
    taken = []
    with Client(address, 5) as client:
        for collector in (epoch.collector, second):
            address.url = collector.base_url
            query = {"service": "locked", "type": "cpu"}
            content = profile_of(collector.base_url)
            taken.append(client.ask("POST", "/v1/submit", Server.submit_key, query, content).status)
    if taken == [204, 204]:
        epoch.fault("with its lock deleted, two servers take submits to one folder")
        epoch.is_broken = True  # or its losses would be reported again and again


# Disk, clock, backups.


def fill_disk(epoch: Epoch) -> None:
    """Fill the disk: /readyz says so, nothing is lost, and all goes on when there is space again."""
    assert epoch.ballast is not None
    with epoch.well_again(gap_seconds=None):
        since = time.monotonic()
        for size in (1 << 20, 4096):
            with suppress(OSError), epoch.ballast.open("ab", buffering=0) as file:
                while file.write(bytes(size)):
                    pass
        time.sleep(epoch.random.uniform(3, 5))
        if epoch.watch.said_ready_throughout(since + 2, time.monotonic()):
            epoch.fault("the disk was full, and /readyz said 200")
        epoch.ballast.unlink()


def jump(epoch: Epoch) -> None:
    assert epoch.clock is not None
    epoch.clock.jump(epoch.random.choice((0, 1 / 24, 1, 3, -1 / 24, -2)))


def back_up(epoch: Epoch) -> None:
    epoch.backed_up()


def nothing(_: Epoch) -> None:
    """Do nothing: every failure is a fault."""
    time.sleep(1)


def _pause(epoch: Epoch, most_seconds: float = 1) -> None:
    time.sleep(epoch.random.uniform(0, most_seconds))


def _killed(epoch: Epoch) -> None:
    if epoch.collector.is_running():
        epoch.collector.signal_group(signal.SIGKILL)
    epoch.ended()


def _ended_well(epoch: Epoch) -> None:
    try:
        epoch.ended(code=0)
    except Exception as error:  # noqa: BLE001 - subprocess's or a timeout's
        epoch.fault(f"it doesn't end after SIGTERM: {type(error).__name__}")
        epoch.ended()


def _some_workers(epoch: Epoch) -> list[int]:
    """Return one worker, or now and then all of them."""
    workers = epoch.collector.workers()
    return workers if epoch.random.random() < 0.25 else _some(epoch.random, workers, 1)


def _signal_worker(epoch: Epoch, number: int) -> None:
    with epoch.well_again():
        for pid in _some_workers(epoch):
            _signal(pid, number)
        _pause(epoch)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _some(random: Random, of: list[T], most: int) -> list[T]:
    return random.sample(of, min(most, len(of)))


STEPS = (
    Step("kill the server", kill_server),
    Step("kill all processes", kill_group),
    Step("kill workers", kill_worker),
    Step("terminate workers", terminate_worker, 0.5),
    Step("kill the fork server", kill_fork_server, 0.5),
    Step("stop workers for a while", stop_worker),
    Step("stop workers for good", hang_worker),
    Step("stop workers, terminate the server", hang_worker_and_terminate, 0.3),
    Step("stop the server for a while", stop_server, 0.5),
    Step("terminate the server", terminate_server, 0.5),
    Step("terminate all processes", terminate_group, 0.5),
    Step("damage merges", damage_merged),
    Step("damage a blob", damage_blob),
    Step("remove a day", remove_day, 0.5),
    Step("damage rows", damage_rows, 0.5),
    Step("delete rows", delete_rows, 0.3),
    Step("damage .inputs", damage_inputs, 0.7),
    Step("lose the catalog", lose_catalog, 0.5),
    Step("damage the catalog", damage_catalog, 0.5),
    Step("delete the lock", delete_lock, 0.4),
    Step("fill the disk", fill_disk, 0.7, lambda epoch: epoch.ballast is not None),
    Step("jump of the clock", jump, 1, lambda epoch: epoch.clock is not None),
    Step("backup", back_up, 0.5),
    Step("nothing", nothing, 0.5),
)
