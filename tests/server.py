"""A real collector: the command as a process of its own, with its keys, its data folder and its log."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from select import select
from types import MappingProxyType
from typing import IO, Any, Protocol, Self

import httpx
import sqlalchemy as sa
from pgo_collector.blobs.storage import CLAIM

from tests.catalogs import Catalogs, Files
from tests.storages import Folders, Storages

COMMAND = str(Path(sys.executable).with_name("pgo-collector"))
_PATIENCE_SECONDS = 120.0
_CHANGED = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pgo_collector.command.cli import main
from tests.zygote import set_constants
set_constants(os.environ)
sys.exit(main(sys.argv[1:]))
"""

LogLine = dict[str, Any]


def command_in(environment: Mapping[str, str]) -> list[str]:
    """Return the command, or a program that changes its constants first, as `zygote.set_constants` says."""
    changes = any(name.startswith("pgo_collector.") for name in environment)
    return [sys.executable, "-c", _CHANGED] if changes else [COMMAND]


class Process(Protocol):
    """The methods that a server uses of its process; `subprocess.Popen` has them."""

    pid: int
    stderr: IO[bytes] | None

    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class Launcher(Protocol):
    """Starts commands of the collector with variables of the environment."""

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Process:
        """Start a command whose standard error is a pipe."""

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""


class Installed:
    """The command as it is installed, for tests of what only a process of its own has."""

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Process:
        command = [*command_in(environment), *arguments]
        return subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command_in(environment), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )


class Server:
    """`pgo-collector serve` on a free loopback port; as a context manager it runs within the block.

    `home` holds the keys files and, in `data`, the data folder; `environment` adds to the settings, or
    overrides them, and constants, as `zygote.set_constants` says. `launcher` starts it; pytest's own one
    forks it from a process that has it loaded. `storages` knows where its blobs are, and `catalogs` where its
    catalog is.
    """

    launcher: Launcher = Installed()
    storages: Storages = Folders()
    catalogs: Catalogs = Files()
    submit_key = "key-for-submits"
    merge_key = "key-for-merges"
    # What requests below have as parameters unless they say otherwise.
    query: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self, home: Path, environment: Mapping[str, str] | None = None, launcher: Launcher | None = None
    ) -> None:
        self.home = home
        if launcher is not None:
            self.launcher = launcher
        self.data = home / "data"
        self.submit_keys = home / "submit_keys"
        self.merge_keys = home / "merge_keys"
        home.mkdir(parents=True, exist_ok=True)
        for file, key in ((self.submit_keys, self.submit_key), (self.merge_keys, self.merge_key)):
            file.write_text(f"{key}\n")
            file.chmod(0o600)  # or each start would warn of it
        self.environment = os.environ | {
            "PGOF_BIND_ADDRESS": "127.0.0.1:0",
            "PGOF_DIRECTORY": str(self.data),
            "PGOF_SUBMIT_AUTH_KEYS_FILE": str(self.submit_keys),
            "PGOF_MERGE_AUTH_KEYS_FILE": str(self.merge_keys),
            "PGOF_WORKERS": "2",
            **(environment or {}),
        }
        self.log: list[LogLine] = []
        # Held while what was read of the log is not in `log` yet.
        self._reading = threading.Lock()
        self.base_url = ""
        self._process: Process | None = None
        self._client: httpx.Client | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def process(self) -> Process:
        """The running process."""
        assert self._process is not None, "the server isn't running"
        return self._process

    @property
    def client(self) -> httpx.Client:
        """An HTTP client of the running process, without a key."""
        assert self._client is not None, "the server isn't running"
        return self._client

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its commands."""
        folder = Path(self.environment["PGOF_DIRECTORY"])
        # A catalog of its own isn't looked for elsewhere: its database may not be running.
        catalog = {} if "PGOF_CATALOG" in self.environment else self.catalogs.settings(folder)
        return {**self.storages.settings(folder), **catalog, **self.environment}

    def catalog(self) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction on the catalog, for what no collector does."""
        return self.catalogs.changing(self.data)

    def drop_catalog(self) -> None:
        """Delete the catalog, which nobody uses any more; the server must not be running."""
        self.catalogs.drop(self.data)
        claim = self.storages.area(self.data, CLAIM) / "catalog"
        if claim.exists():  # a new catalog would wait whether the bucket is in use with this one
            claim.unlink()

    def start(self) -> None:
        """Start the server and wait until it serves."""
        self.listen()
        self.wait_for_log("serving")

    def listen(self) -> None:
        """Start the server and wait until it listens."""
        self.log.clear()
        self._process = self._spawn("serve")
        self._reader = threading.Thread(target=self._read_log, args=(self._process,), daemon=True)
        self._reader.start()
        self.base_url = f"http://{self.wait_for_log('listening')['address']}"
        # To load the certificates that plain HTTP doesn't need takes longer than a request.
        self._client = httpx.Client(base_url=self.base_url, timeout=_PATIENCE_SECONDS, verify=False)  # noqa: S501

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        assert self._process is not None
        code = self._process.wait(_PATIENCE_SECONDS)
        self._reader.join(_PATIENCE_SECONDS)
        assert not self._reader.is_alive(), "a process that it started outlives it"
        if self._process.stderr is not None:
            self._process.stderr.close()
        if self._client is not None:
            self._client.close()
        self._process = self._client = None
        return code

    def kill(self) -> None:
        """Send SIGKILL; do nothing if the process has ended."""
        if self._process is not None:
            self._process.kill()
            self.wait()

    def restart(self) -> None:
        """Kill the server and start it on the same data folder."""
        self.kill()
        self.start()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command with the same settings to its end."""
        return self.launcher.run(arguments, self.variables)

    def reindex(self) -> None:
        """Rebuild the catalog; the server must not be running."""
        finished = self.run("reindex")
        assert finished.returncode == 0, finished.stderr

    def submit(
        self, profile: bytes, key: str = submit_key, query: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Send POST /v1/submit."""
        every = {**self.query, **(query or {})}
        return self.client.post("/v1/submit", content=profile, params=every, headers=bearer(key))

    def merge(
        self,
        method: str = "GET",
        key: str = merge_key,
        format_: str | None = None,
        query: Mapping[str, str] | None = None,
        **headers: str,
    ) -> httpx.Response:
        """Ask for /v1/merge. Header names may have underscores in place of hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        every = {**self.query, **({} if format_ is None else {"format": format_}), **(query or {})}
        return self.client.request(method, "/v1/merge", params=every, headers=bearer(key) | named)

    def combine(
        self, key: str = merge_key, format_: str | None = None, query: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Send POST /v1/merge?and_combine=true."""
        return self.merge("POST", key, format_, {"and_combine": "true"} | dict(query or {}))

    def release(
        self, number: int | None = None, method: str = "GET", format_: str | None = None, **headers: str
    ) -> httpx.Response:
        """Ask for /v1/release, or for the profile of a numbered release; headers are as for `merge`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        query = {**self.query, **({} if format_ is None else {"format": format_})}
        path = "/v1/release" if number is None else f"/v1/releases/{number}/profile"
        return self.client.request(method, path, params=query, headers=bearer(self.merge_key) | named)

    def releases(self, path: str = "", method: str = "GET") -> httpx.Response:
        """Call /v1/releases, followed by `path`."""
        return self.client.request(
            method, f"/v1/releases{path}", params=dict(self.query), headers=bearer(self.merge_key)
        )

    def ask(self, path: str, method: str = "GET", key: str = merge_key, **query: str) -> httpx.Response:
        """Ask a question about the stored profiles. Names of parameters may end in an underscore."""
        named = {name.rstrip("_"): value for name, value in query.items()}
        return self.client.request(method, path, params={**self.query, **named}, headers=bearer(key))

    def descendants(self) -> list[int]:
        """Return the ids of the processes that the server and its children have started."""
        return descendants(self.process.pid)

    def wait_until_read_ahead(self) -> None:
        """Wait until workers have read all stored profiles that came before now."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (rows := self.client.get("/readyz").json()["rows"])["behind"]:
            assert time.monotonic() < deadline, f"they aren't read: {rows}"
            time.sleep(0.02)

    def forget_decoded(self) -> None:
        """Kill the workers, so that what they have decoded is lost, if it isn't in the rows on disk.

        Call this after a blob was damaged: nobody would see it otherwise.
        """
        for child in self.descendants():
            for pid in descendants(child):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def blobs(self, suffix: str = ".pb.gz") -> list[Path]:
        """Return the stored blobs, or objects whose names end like this, sorted."""
        return [*self.storages.blobs(self.data, suffix)]

    def area(self, name: str) -> Path:
        """Return the folder of what it keeps beside the blobs: releases, binaries or start_lines."""
        is_local = self.environment.get("PGOF_STORAGE") == ""
        return (Folders() if is_local else self.storages).area(self.data, name)

    def events(self, event: str) -> list[LogLine]:
        """Return the log lines of one event that the process has written so far."""
        while not self._has_all_been_read():
            time.sleep(0.001)
        return [line for line in list(self.log) if line["event"] == event]

    def wait_for_log(self, event: str, count: int = 1) -> LogLine:
        """Wait for the `count`th log line of an event, and return it."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            ended = not self._reader.is_alive()
            if len(found := self.events(event)) >= count:
                return found[count - 1]
            assert not ended, f"the server ended; its log: {self.log}"
            assert time.monotonic() < deadline, f"no {event!r} in the log: {self.log}"
            time.sleep(0.01)

    def _spawn(self, *arguments: str) -> Process:
        return self.launcher.start(arguments, self.variables)

    def _read_log(self, process: Process) -> None:
        assert process.stderr is not None
        pipe, unfinished, part = process.stderr.fileno(), b"", b"\n"
        while part:
            select([pipe], [], [])
            with self._reading:
                part = os.read(pipe, 1 << 16)
                *lines, unfinished = (unfinished + (part or b"\n")).split(b"\n")
                self.log.extend(_log_line(line) for line in lines if line)

    def _has_all_been_read(self) -> bool:
        if self._process is None or self._process.stderr is None:
            return True
        with self._reading:
            unread = fcntl.ioctl(self._process.stderr, termios.FIONREAD, bytes(4))
        return not int.from_bytes(unread, sys.byteorder)


def _log_line(line: bytes) -> LogLine:
    try:
        return dict(json.loads(line))
    except ValueError:
        return {"event": "not JSON", "line": line.decode(errors="replace")}


def bearer(key: str) -> dict[str, str]:
    """Return the header that sends a key."""
    return {"Authorization": f"Bearer {key}"}


def fingerprint(key: str) -> str:
    """Return what logs show in place of a key."""
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes that a process and its children have started."""
    children: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # processes and threads end meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (task / "children").read_text().split())
    return [*children, *(found for child in children for found in descendants(child))]
