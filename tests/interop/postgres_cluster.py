"""PostgreSQL from Debian, at a free port of loopback, with pgbench's tables in it."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.interop.listening import free_port
from tests.processes import state_of
from tests.server import descendants

_INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
# It doesn't run as root.
AS_POSTGRES = ("setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups", "--")
_START_SECONDS = 120.0
# States of processes: a zombie has ended as well, and so may a process that is to be stopped.
_ENDED = {"", "Z"}
_STOPPED = {"T", *_ENDED}
MISSING = "" if _INSTALLED else "PostgreSQL (Debian: postgresql) is missing"


@dataclass(frozen=True)
class Cluster:
    """A server; `pid` is its postmaster's, and `name` what all of its processes are called."""

    pid: int
    port: int
    name: str

    @contextmanager
    def pgbench(
        self, seconds: int, *arguments: str, clients: int = 2, script: str = "select-only"
    ) -> Iterator[subprocess.Popen[str]]:
        """Transactions of that many clients, while it is entered, for that many seconds at most."""
        how = ("-n", "-b", script, "-T", str(seconds), "-c", str(clients))
        command = [*self._command("pgbench"), *how, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def answers(self) -> bool:
        """Whether it takes connections."""
        done = subprocess.run(self._command("pg_isready"), check=False, capture_output=True)
        return done.returncode == 0

    def send(self, number: signal.Signals) -> None:
        """Send all its processes a signal, the postmaster first: once it stops, it starts no others."""
        _send(number, self.processes())

    def processes(self) -> list[int]:
        """Return the ids of its processes, the postmaster's first."""
        return [self.pid, *descendants(self.pid)]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop all its processes while it is entered, so that nothing answers."""
        processes = self.processes()
        try:
            _send(signal.SIGSTOP, processes)
            yield
        finally:
            _send(signal.SIGCONT, processes)

    def fill(self, scale: int) -> None:
        """Makes pgbench's tables, 15 MB for each 1 of the scale."""
        command = [*self._command("pgbench"), "-i", "-q", "-s", str(scale)]
        subprocess.run(command, check=True, capture_output=True)

    def _command(self, program: str) -> list[str | Path]:
        database = () if program == "pg_isready" else ("-U", "postgres", "postgres")
        # The name of the database comes last, and pgbench takes options after it.
        return [_INSTALLED[-1] / program, "-h", "127.0.0.1", "-p", str(self.port), *database]


def _send(number: signal.Signals, processes: list[int]) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):  # one that has ended keeps no other from its signal
            os.kill(pid, number)


@contextmanager
def only_postgres() -> Iterator[None]:
    """Wait until no other test on this machine is in here, and keep others out.

    Profilers find PostgreSQL by its name: two tests whose servers have the same one would profile both.
    """
    with (Path(tempfile.gettempdir()) / "tests-of-postgres.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Installation:
    """The files of a cluster of its own, in a folder, and the port that it is to have."""

    def __init__(self, folder: Path, name: str) -> None:
        self.port = free_port()
        self._folder = folder
        self._name = name

    @contextmanager
    def running(self, *addresses: str) -> Iterator[Cluster]:
        """Run it; at the end of the block, it closes the connections of its clients.

        It listens on 127.0.0.1, and on more addresses of loopback if they are given.
        """
        settings = {
            "port": self.port,
            "listen_addresses": ",".join(["127.0.0.1", *addresses]),
            "unix_socket_directories": "",
            "fsync": "off",
            "shared_buffers": "128MB",
        }
        command: list[str | Path] = [*_as_postgres(), self._folder / self._name, "-D", self._folder / "data"]
        command += [f"--{name}={value}" for name, value in settings.items()]
        with (self._folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
            try:
                cluster = Cluster(process.pid, self.port, self._name)
                deadline = time.monotonic() + _START_SECONDS
                while not cluster.answers():
                    assert process.poll() is None, (self._folder / "log").read_text()
                    assert time.monotonic() < deadline, (self._folder / "log").read_text()
                    time.sleep(0.1)
                yield cluster
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    _send(signal.SIGKILL, [process.pid, *descendants(process.pid)])
                    raise


class Database:
    """A cluster that is started again after what happens to it; `addresses` are as for `running`."""

    def __init__(self, installation: Installation, *addresses: str) -> None:
        self._installation = installation
        self._addresses = addresses
        self._stack = ExitStack()
        self._cluster: Cluster | None = None

    @property
    def port(self) -> int:
        """The port that it has, also while it is down."""
        return self._installation.port

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._cluster = self._stack.enter_context(self._installation.running(*self._addresses))

    def restart(self) -> None:
        """Shut it down, and start it; clients lose their connections."""
        self.close()
        self.start()

    def kill(self, down_seconds: float = 0) -> None:
        """Kill all its processes, and start it after a while: it recovers what was committed."""
        assert self._cluster is not None
        os.kill(self._cluster.pid, signal.SIGSTOP)
        while state_of(self._cluster.pid) not in _STOPPED:  # until then, it may start one more
            time.sleep(0.001)
        processes = self._cluster.processes()
        _send(signal.SIGKILL, processes)
        self.close()
        while not all(state_of(pid) in _ENDED for pid in processes):  # it doesn't start beside old ones
            time.sleep(0.01)
        time.sleep(down_seconds)
        self.start()

    def stop(self, seconds: float) -> None:
        """Stop all its processes for that long, so that nothing answers."""
        assert self._cluster is not None
        with self._cluster.stopped():
            time.sleep(seconds)

    def close(self) -> None:
        """Shut it down."""
        self._stack.close()


def _as_postgres() -> tuple[str, ...]:
    return AS_POSTGRES if os.geteuid() == 0 else ()


@contextmanager
def installed_postgres(name: str = "postgres", server: Path | None = None) -> Iterator[Installation]:
    """A cluster that doesn't care for what is lost in a crash; its processes have that name.

    `server` is a program `postgres` of one's own, in the folder that it was installed in.
    """
    server = server or _INSTALLED[-1] / "postgres"
    # pytest's own folders are closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        if _as_postgres():
            shutil.chown(folder, "postgres", "postgres")
        initdb: list[str | Path] = [
            server.with_name("initdb"),
            "-A",
            "trust",
            "-U",
            "postgres",
            "-N",
            folder / "data",
        ]
        subprocess.run([*_as_postgres(), *initdb], check=True, capture_output=True)
        (folder / name).symlink_to(server)
        yield Installation(folder, name)
    finally:
        shutil.rmtree(folder)


@contextmanager
def running_postgres(scale: int = 2, name: str = "postgres", server: Path | None = None) -> Iterator[Cluster]:
    """Such a cluster while it runs, with pgbench's tables unless the scale is 0."""
    with installed_postgres(name, server) as installation, installation.running() as cluster:
        if scale:
            cluster.fill(scale)
        yield cluster
