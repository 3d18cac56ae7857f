"""The parts of several collectors: collectors, PostgreSQL, Ceph's gateway, Dask and nginx, as real processes.

Each collector reaches PostgreSQL and the gateway by an address of its own, so that it can be cut off from one
of them alone.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final, Self

from tests.campaign.collector import Collector
from tests.campaign.firewall import Place
from tests.campaign.load import Address, Client
from tests.collector.dask_processes import DaskProcess
from tests.interop.ceph_cluster import Gateway, running_ceph
from tests.interop.listening import free_port
from tests.interop.nginx_process import balanced_nginx
from tests.interop.postgres_cluster import Database, installed_postgres
from tests.server import LogLine

COLLECTORS: Final = 3
DASK_WORKERS: Final = 2
# How long nginx waits for a collector before it asks another.
PROXY_SECONDS: Final = 30
# Both a submit key and a merge key, which a delete takes.
FULL_KEY: Final = "key-for-all"
_DASK_ADDRESS: Final = "127.0.0.10"
# A supervisor starts a collector again that ended because something that it needs was down.
_SUPERVISED_SECONDS: Final = 150.0
_SUPERVISOR_PAUSE_SECONDS: Final = 0.5
# Requests in progress may take the grace of 20 s and PGOF_BODY_TIMEOUT.
_END_SECONDS: Final = 60.0

# What nginx logs of a collector that is killed, stopped or cut off.
_OF_COLLECTORS: Final = re.compile(
    r"connect\(\) failed|recv\(\) failed|prematurely closed|timed out|no live upstreams|disabled|\[warn\]"
)

Fault = Callable[[str], None]


def own_address(number: int) -> str:
    """Return the address by which a collector reaches PostgreSQL and the gateway."""
    return f"127.0.0.{11 + number}"


class Member:
    """A collector of several, which is started again whenever it ends; `log_file` keeps all of its logs."""

    def __init__(self, number: int, home: Path, environment: Mapping[str, str], fault: Fault) -> None:
        self.name = f"collector {number}"
        self.number = number
        self.port = free_port()
        self.log_file = home.with_suffix(".log")
        self.lock = Lock()
        self.starts_refused = 0
        self.slowest_ms = 0.0
        self._fault = fault
        self._kept = 0
        self.collector = Collector(home, {**environment, "PGOF_BIND_ADDRESS": f"127.0.0.1:{self.port}"})
        for keys in (self.collector.submit_keys, self.collector.merge_keys):
            keys.write_text(f"{keys.read_text()}{FULL_KEY}\n")
        self.address = Address()
        self.address.url = f"http://127.0.0.1:{self.port}"

    @property
    def place(self) -> Place:
        """Where it listens."""
        return Place("127.0.0.1", self.port)

    def start(self, gone: Callable[[], bool] = lambda: False) -> None:
        """Start it, again and again until it serves or the campaign is `gone`, as a supervisor does.

        After a long while, give up.
        """
        deadline = time.monotonic() + _SUPERVISED_SECONDS
        while not gone():
            try:
                self._kept = 0
                self.collector.start()
            except AssertionError:
                self.kill()
                self.starts_refused += 1
                if time.monotonic() > deadline:
                    self._fault(f"{self.name} doesn't start for {_SUPERVISED_SECONDS:.0f} s")
                    return
                time.sleep(_SUPERVISOR_PAUSE_SECONDS)
            else:
                return

    def kill(self) -> None:
        """Kill all its processes."""
        self.collector.kill()
        self.keep_log()

    def end(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.collector.signal(signal.SIGTERM)
        code = self.collector.process.wait(_END_SECONDS)
        self.kill()
        return code

    def keep_log(self) -> None:
        """Append the new lines of the log to the file, and look for what must not be there."""
        lines = self.collector.log[self._kept :]
        self._kept += len(lines)
        with self.log_file.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        for line in lines:
            self._look_at(line)

    def is_ready(self) -> tuple[bool, str]:
        """Return whether /readyz says 200, and what it says."""
        with Client(self.address, timeout=10) as client:
            answer = client.ask("GET", "/readyz", "")
            return answer.status == 200, answer.text

    def _look_at(self, line: LogLine) -> None:
        if line["event"] == "request":
            self.slowest_ms = max(self.slowest_ms, float(line.get("ms", 0)))
        elif "exception" in line or "ASGI" in line["event"] or "Traceback" in str(line.get("line")):
            reason = str(line.get("exception", line)).strip().splitlines()[-1]
            self._fault(f"the log of {self.name} has {line['event']!r}: {reason[:300]}")


class Dask:
    """A scheduler and workers on ports that stay the same when they are started again."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.port = free_port()
        self.address = f"dask://127.0.0.1:{self.port}"
        self.lock = Lock()
        self._environment = environment
        self._processes: dict[str, DaskProcess] = {}

    @property
    def place(self) -> Place:
        """Where the scheduler listens."""
        return Place("127.0.0.1", self.port)

    def start(self) -> None:
        """Start what isn't running."""
        for name in ("scheduler", *(f"worker {number}" for number in range(DASK_WORKERS))):
            running = self._processes.get(name)
            if running is not None and running.is_running():
                continue
            if running is not None:
                running.stop()
            self._processes[name] = self._started(name)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the scheduler, or to a worker with all that it has started."""
        self._processes[name].signal(number)

    def close(self) -> None:
        """Kill all processes."""
        for process in self._processes.values():
            process.stop()

    def _started(self, name: str) -> DaskProcess:
        if name == "scheduler":
            arguments = ["scheduler", "--bind", f"127.0.0.1:{self.port}", "--dashboard", "127.0.0.1:0"]
            process = DaskProcess(*arguments)
            process.wait_for("Scheduler at: ")
            return process
        process = DaskProcess("worker", self.address, environment=self._environment)
        process.wait_for("Registered to")
        return process


class Machines:
    """All parts, which run within the block; `url` is nginx's."""

    def __init__(
        self, scratch: Path, settings: Mapping[str, str], fault: Fault, collectors: int = COLLECTORS
    ) -> None:
        self.scratch = scratch
        self.database_lock, self.gateway_lock = Lock(), Lock()
        self.gone = False
        self.url = Address()
        self._settings = settings
        self._fault = fault
        self._addresses = [_DASK_ADDRESS, *map(own_address, range(collectors))]
        self._stack = ExitStack()
        self.members: list[Member] = []
        self._collectors = collectors

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.gone = True
        self._stack.close()

    def environment(self, number: int, schema: str = "public") -> dict[str, str]:
        """Return the settings of a collector, with the catalog in a schema of the database."""
        address = own_address(number)
        url = f"postgresql://postgres@{address}:{self.database.port}/postgres"
        return {
            **self._settings,
            **self.gateway.environment_at(address),
            "PGOF_CATALOG": f"{url}?options=-csearch_path%3D{schema}",
            "PGOF_STORAGE": f"s3://{self.bucket}/profiles",
            "PGOF_BULK": self.dask.address,
        }

    def database_places(self, number: int | None = None) -> list[Place]:
        """Return where PostgreSQL listens, for everyone or for one collector."""
        return self._places(self.database.port, number)

    def gateway_places(self, number: int | None = None) -> list[Place]:
        """Return where the gateway listens, for everyone or for one collector."""
        return self._places(self.gateway.port, number)

    def are_ready(self, seconds: float) -> str:
        """Wait until all collectors are ready; return what is wrong if they aren't after so long."""
        deadline = time.monotonic() + seconds
        wrong = ""
        for member in self.members:
            while not (said := member.is_ready())[0]:
                if time.monotonic() > deadline:
                    wrong += f"{member.name}: {said[1]}; "
                    break
                time.sleep(0.2)
        return wrong

    def proxy_errors(self) -> list[str]:
        """Return what nginx logged besides collectors that don't answer, which explains its own 500."""
        lines = (self.scratch / "nginx" / "nginx.log").read_text().splitlines()
        return [line for line in lines if not _OF_COLLECTORS.search(line)]

    def _places(self, port: int, number: int | None) -> list[Place]:
        addresses = self._addresses if number is None else [own_address(number)]
        return [Place(address, port) for address in addresses]

    def _start(self, stack: ExitStack) -> None:
        installation = stack.enter_context(installed_postgres())
        self.database = Database(installation, *self._addresses)
        stack.callback(self.database.close)
        self.database.start()
        self.gateway: Gateway = stack.enter_context(running_ceph(*self._addresses))
        self.bucket = self.gateway.new_bucket()
        self.dask = Dask(self.gateway.environment_at(_DASK_ADDRESS))
        stack.callback(self.dask.close)
        self.dask.start()
        for number in range(self._collectors):
            home = self.scratch / f"collector-{number}"
            member = Member(number, home, self.environment(number), self._fault)
            self.members.append(member)
            stack.callback(member.kill)
            member.start()
        ports = [member.port for member in self.members]
        self.url.url = stack.enter_context(balanced_nginx(self.scratch / "nginx", ports, PROXY_SECONDS))


@contextmanager
def held(*locks: Lock) -> Iterator[bool]:
    """Yield whether nobody else harms any of these parts; nobody else does until the end of the block."""
    with ExitStack() as stack:
        taken = [lock for lock in locks if lock.acquire(blocking=False)]
        for lock in taken:
            stack.callback(lock.release)
        yield len(taken) == len(locks)


def continued(member: Member) -> None:
    """Continue all processes of a collector."""
    with suppress(AssertionError):
        member.collector.signal_group(signal.SIGCONT)
