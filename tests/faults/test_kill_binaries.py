"""The server is killed while it stores a program: the program is there whole, or not at all."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.faults.campaign import kill_at_points, lanes_in
from tests.faults.killer import Mode
from tests.faults.lane import KillableZygote, Lane
from tests.faults.sample import Sample
from tests.merge.binary.program import FLAGS, SOURCE
from tests.server import Server, bearer

pytestmark = pytest.mark.system("clang", "llvm-symbolizer")


def built(folder: Path, constant: int) -> bytes:
    source, program = folder / f"{constant}.c", folder / str(constant)
    source.write_text(SOURCE.replace("i * 3", f"i * {constant}"))
    subprocess.run(["clang", *FLAGS, "-o", program, source], check=True)
    return program.read_bytes()


def upload(server: Server, content: bytes) -> httpx.Response:
    return server.client.post("/v1/binaries", content=content, headers=bearer(server.submit_key))


def stored(server: Server) -> list[str]:
    """Return the SHA-256 of each program in the list, whose file must have it."""
    found = [entry["sha256"] for entry in server.ask("/v1/binaries").json()["binaries"]]
    files = {path.name: path for path in (server.data / "binaries").rglob("*.elf")}
    assert len(files) == len(found)
    for name, path in files.items():
        assert name.removesuffix(".elf").endswith(hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def test_killed(tmp_path: Path, killable: KillableZygote, sample: Sample) -> None:
    """Upload a program where one may be kept, and another is stored."""
    old, new = built(tmp_path, 5), built(tmp_path, 7)
    before, after = ([hashlib.sha256(content).hexdigest()] for content in (old, new))

    def prepare(lane: Lane) -> None:
        assert upload(lane.start(), old).status_code == 200

    def strike(lane: Lane, mode: Mode, target: int) -> bool:
        return lane.struck_request(mode, target, lambda server: upload(server, new))

    def check(lane: Lane, done: bool) -> None:
        server = lane.start()
        found = stored(server)
        assert found == after if done else found in (before, after, after + before)
        assert not list((lane.data / "incoming").iterdir())
        assert not server.events("unknown file ignored")
        assert upload(server, new).status_code == 200
        assert stored(server) == after

    (tmp_path / "lanes").mkdir()
    with lanes_in(tmp_path / "lanes", killable, {"PGOF_BINARIES_KEPT": "1"}) as lanes:
        kill_at_points(lanes, prepare, strike, check, sample)
