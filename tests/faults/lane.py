"""One of several places where a scenario is played: a data folder, a killer and the servers on it."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

import httpx

from tests.faults.killer import Killer, Mode
from tests.faults.stacks import DAY, EPOCH, profile_of, tally
from tests.faults.zygote import ForkedServer, Zygote
from tests.server import Server

Tally = Counter[str]


class Lane:
    """A server under the killer, whose data folder is filled anew for each play; a context manager."""

    def __init__(self, home: Path, library: Path, settings: Mapping[str, str] | None = None) -> None:
        home.mkdir()
        self.data = home / "data"
        self.killer = Killer(library, home / "control", self.data)
        self._zygote = Zygote(self.killer.environment)
        environment = self.killer.environment | {"PGOF_WORKERS": "1", **(settings or {})}
        self.server = ForkedServer(home, self._zygote, environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()
        self._zygote.close()

    def fill(self, template: Path) -> None:
        """The data folder becomes a copy of `template`, with no server on it."""
        self.server.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.copytree(template, self.data)

    def start(self) -> Server:
        """The server, unharmed."""
        self.server.kill()
        self.killer.stand_by()
        self.server.start()
        self.server.wait_for_log("upkeep done")  # what it does at a start isn't what is to be struck
        return self.server

    def struck_request(self, mode: Mode, target: int, send: Callable[[Server], httpx.Response]) -> bool:
        """Whether the request was answered as done, with the killer striking at one of its operations."""
        server = self.start()
        self.killer.arm(mode, target)
        try:
            response = send(server)
        except httpx.TransportError:
            done = False
        else:
            assert response.is_success, (response.status_code, response.text)
            done = True
        self.killer.disarm()
        server.kill()
        return done

    def struck_start(self, mode: Mode, target: int) -> bool:
        """The same for a start of the server, with the upkeep that belongs to it."""
        self.killer.arm_next_start(mode, target)
        try:
            self.server.start()
            self.server.wait_for_log("upkeep done")
        except AssertionError:
            self.server.kill()
            assert len(self.killer.operations) >= target > 0, self.server.log
            return False
        self.killer.disarm()
        self.server.kill()
        return True

    def struck_reindex(self, mode: Mode, target: int) -> bool:
        """The same for `pgo-collector reindex`."""
        self.killer.arm_next_start(mode, target)
        code = self.server.run("reindex").returncode
        self.killer.disarm()
        return code == 0

    def drop_catalog(self) -> None:
        """The catalog is lost; nothing else is."""
        for path in self.data.glob("catalog.sqlite3*"):
            path.unlink()

    def content(self) -> str:
        """A digest of all stored files, the catalog left out: what a lost catalog is rebuilt from."""
        digest = hashlib.sha256()
        for path in sorted(self.data.rglob("*")):
            name = path.relative_to(self.data)
            if name.parts[0] not in {"incoming", "merged", "rows"} and not name.name.startswith("catalog."):
                digest.update(f"{name}\n".encode())
                digest.update(path.read_bytes() if path.is_file() else b"")
        return digest.hexdigest()


def merged(server: Server) -> bytes:
    """The bytes of the merge, of which nothing was left out."""
    response = server.merge()
    assert response.status_code == 200, response.text
    assert "PGO-Left-Out" not in response.headers, response.headers["PGO-Left-Out"]
    return response.content


def tallied(answer: httpx.Response) -> Tally:
    """How often it counts each profile; none if that is what it says."""
    assert answer.status_code in {200, 404}, answer.text
    return tally(answer.content) if answer.status_code == 200 else Counter()


def submitted(server: Server, *stacks: str, labels: Mapping[str, str] = MappingProxyType({})) -> None:
    """Submits the profiles of these stacks, each of its own day, with the labels of those that have any."""
    for stack in stacks:
        response = server.submit(profile_named(stack), query={"labels": labels.get(stack, "")})
        assert response.status_code == 204, response.text


def profile_named(stack: str) -> bytes:
    """The profile of a stack, always the same bytes; its letter gives its day, and digits share one."""
    day = 0 if stack[0].isdigit() else ord(stack[0])
    return profile_of(stack, time_nanos=EPOCH + day * DAY)


def counted(server: Server) -> Tally:
    """How often the merge counts each profile."""
    return tally(merged(server))
