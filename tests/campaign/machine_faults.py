"""The faults that happen to the parts of several collectors: killed, stopped, restarted and cut off."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from random import Random
from threading import Event, Lock, Thread
from typing import Final, NamedTuple

from tests.campaign.firewall import Cut, Firewall, Place
from tests.campaign.machine_parts import DASK_WORKERS, Machines, Member, continued, held

_MOST_STOPPED_SECONDS: Final = 25.0
_MOST_CUT_SECONDS: Final = 15.0
_MOST_DOWN_SECONDS: Final = 5.0
# Faults that happen at the same time, to different parts.
LANES: Final = 2
_MOST_PAUSE_SECONDS: Final = 4.0


class Harm(NamedTuple):
    """Everything that a fault may use: the machines, the firewall if there is one, and what it draws from."""

    machines: Machines
    firewall: Firewall | None
    random: Random
    note: Callable[[str], None]

    def seconds(self, most: float) -> float:
        """Return how long something is to last, and short times as often as long ones."""
        return self.random.choice((self.random.uniform(0, 1), self.random.uniform(1, most)))

    def member(self) -> Member:
        """Return one of the collectors."""
        return self.random.choice(self.machines.members)

    def cut(self, what: str, places: list[Place]) -> None:
        """Cut connections to these places for a while."""
        assert self.firewall is not None
        way, seconds = Cut.any(self.random), self.random.uniform(1, _MOST_CUT_SECONDS)
        self.note(f"{what}: {way} for {seconds:.1f} s")
        self.firewall.cut(places, way, seconds)


class Happening(NamedTuple):
    """A kind of fault; one with a larger weight comes more often. Returns whether it could happen now."""

    name: str
    play: Callable[[Harm], bool]
    weight: float = 1
    cuts: bool = False


def kill_collector(harm: Harm) -> bool:
    member, down = harm.member(), harm.seconds(_MOST_DOWN_SECONDS)
    with held(member.lock) as free:
        if free:
            harm.note(f"kill {member.name}, and start it after {down:.1f} s")
            _kill_and_start(harm, [member], down)
    return free


def kill_all_collectors(harm: Harm) -> bool:
    members, down = harm.machines.members, harm.seconds(_MOST_DOWN_SECONDS)
    with held(*(member.lock for member in members)) as free:
        if free:
            harm.note(f"kill all collectors, and start them after {down:.1f} s")
            _kill_and_start(harm, members, down)
    return free


def end_collector(harm: Harm) -> bool:
    """End a collector by SIGTERM, and start it, as an update does."""
    member = harm.member()
    with held(member.lock) as free:
        if free:
            harm.note(f"end {member.name} by SIGTERM")
            with suppress(Exception):  # how long it may take is the matter of `chaos`
                member.end()
            _kill_and_start(harm, [member], 0)
    return free


def kill_worker(harm: Harm) -> bool:
    """Kill a worker process of a collector."""
    member = harm.member()
    with held(member.lock) as free:
        if free and (workers := member.collector.workers()):
            harm.note(f"kill a worker of {member.name}")
            with suppress(ProcessLookupError):
                os.kill(harm.random.choice(workers), signal.SIGKILL)
    return free


def stop_collector(harm: Harm) -> bool:
    """Stop a collector with all its processes, or only its first one."""
    member, seconds = harm.member(), harm.seconds(_MOST_STOPPED_SECONDS)
    whole = harm.random.random() < 0.7
    with held(member.lock) as free:
        if free:
            harm.note(f"stop {member.name}{'' if whole else ', not its workers,'} for {seconds:.1f} s")
            send = member.collector.signal_group if whole else member.collector.signal
            try:
                send(signal.SIGSTOP)
                time.sleep(seconds)
            finally:
                continued(member)
    return free


def cut_collector(harm: Harm) -> bool:
    """Cut a collector off from nginx and clients."""
    member = harm.member()
    with held(member.lock) as free:
        if free:
            harm.cut(f"cut {member.name} off from nginx", [member.place])
    return free


def cut_from_database(harm: Harm) -> bool:
    """Cut one collector off from PostgreSQL: others go on, and take its leases."""
    member = harm.member()
    with held(member.lock) as free:
        if free:
            places = harm.machines.database_places(member.number)
            harm.cut(f"cut {member.name} off from PostgreSQL", places)
    return free


def cut_from_gateway(harm: Harm) -> bool:
    member = harm.member()
    with held(member.lock) as free:
        if free:
            places = harm.machines.gateway_places(member.number)
            harm.cut(f"cut {member.name} off from the gateway", places)
    return free


def kill_database(harm: Harm) -> bool:
    down = harm.seconds(_MOST_DOWN_SECONDS)
    with held(harm.machines.database_lock) as free:
        if free:
            harm.note(f"kill PostgreSQL, and start it after {down:.1f} s")
            harm.machines.database.kill(down)
    return free


def restart_database(harm: Harm) -> bool:
    with held(harm.machines.database_lock) as free:
        if free:
            harm.note("restart PostgreSQL")
            harm.machines.database.restart()
    return free


def stop_database(harm: Harm) -> bool:
    seconds = harm.seconds(_MOST_STOPPED_SECONDS)
    with held(harm.machines.database_lock) as free:
        if free:
            harm.note(f"stop PostgreSQL for {seconds:.1f} s")
            harm.machines.database.stop(seconds)
    return free


def cut_database(harm: Harm) -> bool:
    with held(harm.machines.database_lock) as free:
        if free:
            harm.cut("cut PostgreSQL off", harm.machines.database_places())
    return free


def kill_gateway(harm: Harm) -> bool:
    down = harm.seconds(_MOST_DOWN_SECONDS)
    with held(harm.machines.gateway_lock) as free:
        if free:
            harm.note(f"kill the gateway, and start it after {down:.1f} s")
            harm.machines.gateway.send(signal.SIGKILL)
            time.sleep(down)
            harm.machines.gateway.start()
    return free


def stop_gateway(harm: Harm) -> bool:
    """Stop the gateway; what was asked of it meanwhile, it does later, when nobody waits for it any more."""
    seconds = harm.seconds(_MOST_STOPPED_SECONDS)
    with held(harm.machines.gateway_lock) as free:
        if free:
            harm.note(f"stop the gateway for {seconds:.1f} s")
            try:
                harm.machines.gateway.send(signal.SIGSTOP)
                time.sleep(seconds)
            finally:
                harm.machines.gateway.send(signal.SIGCONT)
    return free


def cut_gateway(harm: Harm) -> bool:
    with held(harm.machines.gateway_lock) as free:
        if free:
            harm.cut("cut the gateway off", harm.machines.gateway_places())
    return free


def kill_dask(harm: Harm) -> bool:
    name = _part_of_dask(harm)
    with held(harm.machines.dask.lock) as free:
        if free:
            harm.note(f"kill Dask's {name}")
            harm.machines.dask.signal(name, signal.SIGKILL)
            time.sleep(harm.seconds(_MOST_DOWN_SECONDS))
            harm.machines.dask.start()
    return free


def stop_dask(harm: Harm) -> bool:
    name, seconds = _part_of_dask(harm), harm.seconds(_MOST_STOPPED_SECONDS)
    with held(harm.machines.dask.lock) as free:
        if free:
            harm.note(f"stop Dask's {name} for {seconds:.1f} s")
            try:
                harm.machines.dask.signal(name, signal.SIGSTOP)
                time.sleep(seconds)
            finally:
                harm.machines.dask.signal(name, signal.SIGCONT)
            harm.machines.dask.start()
    return free


def cut_dask(harm: Harm) -> bool:
    with held(harm.machines.dask.lock) as free:
        if free:
            harm.cut("cut Dask's scheduler off", [harm.machines.dask.place])
            harm.machines.dask.start()
    return free


def _part_of_dask(harm: Harm) -> str:
    return harm.random.choice(("scheduler", *(f"worker {number}" for number in range(DASK_WORKERS))))


def _kill_and_start(harm: Harm, members: list[Member], down: float) -> None:
    """Kill collectors, and start them at the same time after a while."""
    for member in members:
        member.kill()
    time.sleep(down)
    starts = [Thread(target=member.start, args=(lambda: harm.machines.gone,)) for member in members]
    for start in starts:
        start.start()
    for start in starts:
        start.join()


HAPPENINGS: Final = (
    Happening("kill a collector", kill_collector, 2),
    Happening("kill all collectors", kill_all_collectors, 0.5),
    Happening("end a collector", end_collector, 0.5),
    Happening("kill a worker", kill_worker, 0.5),
    Happening("stop a collector", stop_collector, 2),
    Happening("cut a collector off from nginx", cut_collector, 1, cuts=True),
    Happening("cut a collector off from PostgreSQL", cut_from_database, 2, cuts=True),
    Happening("cut a collector off from the gateway", cut_from_gateway, 2, cuts=True),
    Happening("kill PostgreSQL", kill_database),
    Happening("restart PostgreSQL", restart_database, 0.5),
    Happening("stop PostgreSQL", stop_database),
    Happening("cut PostgreSQL off", cut_database, 1, cuts=True),
    Happening("kill the gateway", kill_gateway),
    Happening("stop the gateway", stop_gateway),
    Happening("cut the gateway off", cut_gateway, 1, cuts=True),
    Happening("kill a part of Dask", kill_dask),
    Happening("stop a part of Dask", stop_dask, 0.5),
    Happening("cut Dask's scheduler off", cut_dask, 0.5, cuts=True),
)


class Trouble:
    """Lanes in which one fault comes after another; `over` ends them once their faults have healed."""

    def __init__(
        self,
        machines: Machines,
        firewall: Firewall | None,
        seed: str,
        note: Callable[[str], None],
        fault: Callable[[str], None],
    ) -> None:
        self.happened: Counter[str] = Counter()
        self._fault = fault
        self._over = Event()
        self._lock = Lock()
        self._possible = [each for each in HAPPENINGS if firewall is not None or not each.cuts]
        randoms = (Random(f"{seed}/{lane}") for lane in range(LANES))  # noqa: S311 - nothing secret
        self._lanes = [
            Thread(target=self._run, args=(Harm(machines, firewall, random, note),)) for random in randoms
        ]

    def play(self, seconds: float) -> None:
        """Have faults happen for so long, and return when all have healed."""
        with ExitStack() as stack:
            for lane in self._lanes:
                lane.start()
                stack.callback(lane.join)
            stack.callback(self._over.set)
            time.sleep(seconds)

    def _run(self, harm: Harm) -> None:
        try:
            while not self._over.wait(harm.random.uniform(0, _MOST_PAUSE_SECONDS)):
                weights = [each.weight for each in self._possible]
                happening = harm.random.choices(self._possible, weights)[0]
                if happening.play(harm):
                    with self._lock:
                        self.happened[happening.name] += 1
        except Exception as error:  # noqa: BLE001 - without faults a campaign finds nothing
            self._fault(f"the campaign's own faults ended: {type(error).__name__}: {error}")
