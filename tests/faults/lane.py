"""A lane, in which a scenario is played beside others: a data folder, a killer and the servers on it."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from types import MappingProxyType
from typing import Self

import httpx
import sqlalchemy as sa
from pgo_collector.catalog.tables import LEASES

from tests.catalogs import Files
from tests.faults.killer import Killer, Mode
from tests.faults.stacks import DAY, EPOCH, profile_of, tally
from tests.server import Server
from tests.storages import Folders
from tests.zygote import Zygote

Tally = Counter[str]


class KillableZygote(Zygote):
    """A zygote whose children killer.c watches, each with a control file and a folder of its own."""

    def __init__(self, library: Path) -> None:
        super().__init__({"LD_PRELOAD": str(library)})
        self.library = library


class Lane:
    """A server under the killer, whose data folder is filled again for each play; a context manager."""

    def __init__(self, home: Path, zygote: KillableZygote, settings: Mapping[str, str] | None = None) -> None:
        home.mkdir()
        self.data = home / "data"
        self.killer = Killer(zygote.library, home / "control", self.data)
        environment = self.killer.environment | {"PGOF_WORKERS": "1", **(settings or {})}
        self.server = Server(home, environment, zygote)

    @property
    def is_on_disk(self) -> bool:
        """Return whether all that the server stores is in its data folder."""
        return isinstance(self.server.storages, Folders) and isinstance(self.server.catalogs, Files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()

    def fill(self, template: Path) -> None:
        """Make the data folder a copy of `template`, without a server on it."""
        self.server.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.copytree(template, self.data)

    def start(self) -> Server:
        """Start the server without striking at it."""
        self.server.kill()
        self.killer.stand_by()
        self.server.start()
        self.server.wait_for_log("upkeep done")  # the operations of the start aren't to be struck
        return self.server

    def settle(self) -> None:
        """Let so much time pass that no request of a killed server to a bucket can still arrive; do upkeep.

        Before that, a combine may be left out, and the files of retired blobs stay. A disk needs none of it.
        """
        if self.is_on_disk:
            return
        self.server.kill()
        with self.server.catalog() as catalog:
            catalog.execute(sa.delete(LEASES))
        self.start()

    def struck_request(self, mode: Mode, target: int, send: Callable[[Server], httpx.Response]) -> bool:
        """Strike at one operation of a request; return whether it was answered as done."""
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
        """Do the same for a start of the server, with its first upkeep."""
        if not self.is_on_disk:
            self.killer.stand_by()
            self.server.start()
            time.sleep(target / 1000)
            self.server.kill()
            return False
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
        """Do the same for `pgo-collector reindex`."""
        self.killer.arm_next_start(mode, target)
        code = self.server.run("reindex").returncode
        self.killer.disarm()
        return code == 0

    def drop_catalog(self) -> None:
        """Delete the catalog, which nobody uses any more."""
        self.server.drop_catalog()

    def drop(self) -> None:
        """Delete all that is stored, while no server runs."""
        self.server.drop_catalog()
        self.server.storages.drop(self.data)
        shutil.rmtree(self.data)

    @contextmanager
    def struck(self, mode: Mode, target: int) -> Iterator[None]:
        """Strike at one operation on disk of what is done in the block.

        What is stored elsewhere has few of them: then the server is killed after as many milliseconds.
        """
        if self.is_on_disk:
            self.killer.arm(mode, target)
            yield
            self.killer.disarm()
            return
        kill = Timer(target / 1000, self.server.process.kill)
        kill.start()
        try:
            yield
        finally:
            kill.cancel()
            kill.join()

    def content(self) -> str:
        """Return a digest of all stored files but the catalog: those from which it can be rebuilt."""
        digest = hashlib.sha256()
        for path in sorted(self.data.rglob("*")):
            name = path.relative_to(self.data)
            if name.parts[0] not in {"incoming", "merged", "rows"} and not name.name.startswith("catalog."):
                digest.update(f"{name}\n".encode())
                digest.update(path.read_bytes() if path.is_file() else b"")
        return digest.hexdigest()


def merged(server: Server) -> bytes:
    """Return the bytes of the merge; nothing may be left out of it."""
    response = server.merge()
    assert response.status_code == 200, response.text
    assert "PGO-Left-Out" not in response.headers, response.headers["PGO-Left-Out"]
    return response.content


def tallied(answer: httpx.Response) -> Tally:
    """Return how often an answer counts each profile; an empty tally if there is nothing to merge."""
    assert answer.status_code in {200, 404}, answer.text
    return tally(answer.content) if answer.status_code == 200 else Counter()


def submitted(server: Server, *stacks: str, labels: Mapping[str, str] = MappingProxyType({})) -> None:
    """Submit the profiles of these stacks, each of its own day, with labels if they have any."""
    for stack in stacks:
        response = server.submit(profile_named(stack), query={"labels": labels.get(stack, "")})
        assert response.status_code == 204, response.text


def profile_named(stack: str) -> bytes:
    """Return the profile of a stack, always the same bytes; its letter gives the day, digits share one."""
    day = 0 if stack[0].isdigit() else ord(stack[0])
    return profile_of(stack, time_nanos=EPOCH + day * DAY)


def counted(server: Server) -> Tally:
    """Return how often the merge counts each profile."""
    return tally(merged(server))
