"""Uploaded programs: merges in the format llvm are made with them, and hostile ones are refused.

`store/test_binaries` has what needs no compiler.
"""

from __future__ import annotations

import json
import os
import random
import re
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pgo_agent.cli
import pytest
from pprof_merge.binary import Binary, BinaryLimits
from pprof_proto.profile_pb2 import Profile

from tests.merge.binary.program import FLAGS, SOURCE, sampled
from tests.merge.command.installed import pprof_merge
from tests.server import Server, bearer

pytestmark = pytest.mark.system("clang", "llvm-symbolizer", "objcopy")

LLVM = {"service": "shop", "format": "llvm"}


def built(path: Path, *flags: str, source: str = SOURCE) -> Path:
    """Build a program with clang."""
    file = path.with_suffix(".c")
    file.write_text(source)
    subprocess.run(["clang", *FLAGS, *flags, "-o", path, file], check=True)
    return path


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two builds of a program."""
    folder = tmp_path_factory.mktemp("programs")
    return [built(folder / "one"), built(folder / "two", source=SOURCE.replace("i * 3", "i * 5 + 1"))]


def build_id(program: Path) -> str:
    return Binary.at(str(program), BinaryLimits()).build_id


def profile_of_program(program: Path, each: int) -> bytes:
    """Return a profile with `each` samples at each fourth byte at which an instruction may be."""
    binary = Binary.at(str(program), BinaryLimits())
    listed = subprocess.run(["objdump", "-d", program], capture_output=True, text=True, check=True).stdout
    (body,) = re.findall(r"<work>:\n(.*?)\n\n", listed, re.DOTALL)
    addresses = [int(found, 16) for found in re.findall(r"^ *([0-9a-f]+):", body, re.MULTILINE)]
    return cpu_profile(sampled(binary, dict.fromkeys(addresses[::2], each)))


def cpu_profile(samples: bytes) -> bytes:
    """Return a profile of samples with their CPU time, as the collector takes it."""
    profile = Profile.FromString(samples)
    profile.string_table.extend([b"cpu", b"nanoseconds"])
    cpu = {"type": len(profile.string_table) - 2, "unit": len(profile.string_table) - 1}
    profile.sample_type.add(**cpu)
    profile.period_type.CopyFrom(profile.sample_type[1])
    profile.period = 10**7
    for sample in profile.sample:
        sample.value.append(sample.value[0] * profile.period)
    return profile.SerializeToString()


def upload(server: Server, content: bytes, key: str = Server.submit_key) -> httpx.Response:
    return server.client.post(
        "/v1/binaries", params={"service": "shop"}, content=content, headers=bearer(key)
    )


def listed(server: Server) -> list[dict[str, Any]]:
    answer = server.ask("/v1/binaries", service="shop")
    assert answer.status_code == 200
    entries: list[dict[str, Any]] = answer.json()["binaries"]
    return entries


def builds(server: Server) -> list[str]:
    return [entry["build_id"] for entry in listed(server)]


def delete(server: Server, id_: str) -> httpx.Response:
    return server.client.delete(
        f"/v1/binaries/{id_}", params={"service": "shop"}, headers=bearer(server.merge_key)
    )


def by_command(program: Path, profiles: Sequence[bytes], folder: Path) -> bytes:
    """Return what `pprof-merge --binary` writes."""
    files = [folder / f"{number}.pb" for number in range(len(profiles))]
    for file, profile in zip(files, profiles, strict=True):
        file.write_bytes(profile)
    report = folder / "report.json"
    finished = pprof_merge("--format", "llvm", "--binary", program, "--report", report, *files)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(report.read_bytes())["gain"]["formats"]["llvm"]["samples"]
    return finished.stdout


def gain_by_llvm(server: Server) -> tuple[str, int]:
    """Return the verdict of the report on the format llvm, and how many samples it keeps."""
    found = server.ask("/v1/report", service="shop").json()["gain"]["formats"]["llvm"]
    return found["verdict"], found["samples"]


def samples_of(text: bytes) -> int:
    """Return the number of samples in a merge with a program, which has ten times as many."""
    return sum(int(total) for total in re.findall(rb"^\S.*:(\d+):0$", text, re.MULTILINE)) // 10


def refused(answer: httpx.Response, status: int) -> str:
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    return str(answer.json()["detail"])


def test_a_merge_is_made_with_the_program_as_the_command_makes_it(
    tmp_path: Path, programs: list[Path]
) -> None:
    program, other = programs
    profiles = [profile_of_program(program, 30), profile_of_program(other, 20)]
    with Server(tmp_path / "server", {"PGOF_RELEASE_CHECK_SECONDS": "0"}) as server:
        for profile in profiles:
            assert server.submit(profile, query={"service": "shop"}).status_code == 204
        assert "no source lines" in refused(server.merge(query=LLVM), 422)
        assert gain_by_llvm(server) == ("none", 0)
        answer = upload(server, other.read_bytes())
        assert answer.status_code == 200
        assert answer.json() == {
            "service": "shop",
            "build_id": build_id(other),
            "sha256": listed(server)[0]["sha256"],
            "size": other.stat().st_size,
            "kind": "program",
        }
        first = server.merge(query=LLVM)
        assert first.content == by_command(other, profiles, tmp_path)
        assert first.headers["PGO-Binary"] == build_id(other)
        assert "PGO-Binary" not in server.merge(query={"service": "shop"}).headers
        assert gain_by_llvm(server) == ("collect more", samples_of(first.content))
        # The other build has more samples.
        assert upload(server, program.read_bytes()).status_code == 200
        assert builds(server) == [build_id(program), build_id(other)]
        second = server.merge(query=LLVM, if_none_match=first.headers["ETag"])
        assert second.status_code == 200
        assert gain_by_llvm(server) == ("collect more", samples_of(second.content))
        assert 0 < samples_of(first.content) < samples_of(second.content)
        assert second.content == by_command(program, profiles, tmp_path)
        unchanged = server.merge(query=LLVM, if_none_match=second.headers["ETag"])
        assert (unchanged.status_code, unchanged.headers["PGO-Binary"]) == (304, build_id(program))
        named = server.merge(query=LLVM | {"binary": build_id(other)})
        assert (named.content, named.headers["ETag"]) == (first.content, first.headers["ETag"])
        assert "no source lines" in refused(server.merge(query=LLVM | {"binary": "none"}), 422)
        released = server.ask("/v1/release", service="shop", format="llvm")
        assert released.content == second.content
        # What is stored stays through a restart, and without a catalog.
        server.kill()
        server.drop_catalog()
        server.reindex()
        server.start()
        assert server.merge(query=LLVM).content == second.content
        assert delete(server, build_id(program)).status_code == 204
        assert server.merge(query=LLVM).content == first.content
        assert build_id(program) in refused(delete(server, build_id(program)), 404)
        assert "GET /v1/binaries" in refused(server.merge(query=LLVM | {"binary": build_id(program)}), 404)
        assert "format=llvm" in refused(server.merge(query={"service": "shop", "binary": "none"}), 400)
        assert delete(server, build_id(other)).status_code == 204
        assert not [*server.area("binaries").iterdir()]
        # The release keeps its bytes.
        assert server.ask("/v1/release", service="shop", format="llvm").content == second.content


def test_a_named_program_must_have_samples(tmp_path: Path, programs: list[Path]) -> None:
    program, other = programs
    with Server(tmp_path) as server:
        assert server.submit(profile_of_program(program, 5), query={"service": "shop"}).status_code == 204
        for each in programs:
            assert upload(server, each.read_bytes()).status_code == 200
        assert server.merge(query=LLVM).status_code == 200
        detail = refused(server.merge(query=LLVM | {"binary": build_id(other)}), 422)
        assert f"the program with the build id {build_id(other)} doesn't help: no sample is in" in detail


def test_the_agent_sends_it(tmp_path: Path, programs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    with Server(tmp_path) as server:
        arguments = ["--url", server.base_url, "--key-file", str(server.submit_keys), "--service", "shop"]
        assert pgo_agent.cli.main(["binary", *map(str, programs), *arguments, "--json"]) == 0
        assert {*builds(server)} == {*map(build_id, programs)}
        assert build_id(programs[0]) in capsys.readouterr().out
        assert [entry["size"] for entry in listed(server)] == [
            each.stat().st_size for each in reversed(programs)
        ]
        stripped = tmp_path / "stripped"
        subprocess.run(["strip", "-o", stripped, programs[0]], check=True)
        assert pgo_agent.cli.main(["binary", str(stripped), *arguments]) == 2
        assert "400 not a program that can be used: it has no symbols" in capsys.readouterr().err
        assert pgo_agent.cli.main(["binary", str(server.submit_keys), *arguments]) == 2
        assert "not an ELF file" in capsys.readouterr().err


def test_where_they_cannot_be_read_it_is_said(tmp_path: Path, programs: list[Path]) -> None:
    with Server(tmp_path / "server") as server:
        assert upload(server, programs[0].read_bytes()).status_code == 200
        assert server.submit(profile_of_program(programs[0], 5), query={"service": "shop"}).status_code == 204
        server.kill()
        server.environment["PATH"] = str(tmp_path)
        server.start()
        assert upload(server, programs[1].read_bytes()).json()["kind"] == "debug"
        detail = refused(server.merge(query=LLVM), 422)
        assert "llvm-symbolizer isn't on PATH" in detail
        assert "binary=none" in detail


def test_other_files_are_refused_with_a_reason(tmp_path: Path, programs: list[Path]) -> None:
    program, work = programs[0], tmp_path / "work"
    content = program.read_bytes()

    def changed(*command: str) -> bytes:
        subprocess.run([*command, program, work], check=True)
        return work.read_bytes()

    def edited(at: int, format_: str, value: int) -> bytes:
        body = bytearray(content)
        struct.pack_into(format_, body, at, value)
        return bytes(body)

    plain = built(tmp_path / "plain", "-Wl,--build-id=none").read_bytes()
    with Server(tmp_path / "server", {"PGOF_BINARY_BYTES": "100000"}) as server:
        for body, status, reason in (
            (b"", 400, "the body is empty; send the ELF program"),
            (b"#!/bin/sh\n", 400, "it is not an ELF file"),
            (content[:200], 400, "it is a damaged ELF file"),
            (content[: len(content) // 2], 400, "it is a damaged ELF file"),
            (changed("objcopy", "--strip-all"), 400, "it has no symbols"),
            (plain, 400, "it has no build id"),
            (edited(4, "<B", 1), 400, ""),
            (edited(60, "<H", 60_000), 400, "it has more than 10,000 sections"),
            (edited(58, "<H", 0), 400, ""),
            (edited(40, "<Q", 1 << 62), 400, "it is a damaged ELF file"),
            (bytes(100_001), 413, "the body is larger than 100,000 bytes (PGOF_BINARY_BYTES)"),
        ):
            detail = refused(upload(server, body), status)
            assert reason in detail, detail
        assert not [*server.area("binaries").iterdir()]
        assert not [*(server.data / "incoming").iterdir()]


def test_sections_that_would_be_huge_are_refused(tmp_path: Path) -> None:
    """A bomb: zeros, which zlib makes a thousandth, in the place of debug lines."""
    program, zeros, bomb = built(tmp_path / "program"), tmp_path / "zeros", tmp_path / "bomb"
    zeros.write_bytes(bytes(64 << 20))
    subprocess.run(["objcopy", "--update-section", f".debug_str={zeros}", program, bomb], check=True)
    subprocess.run(["objcopy", "--compress-debug-sections=zlib", bomb], check=True)
    assert bomb.stat().st_size < 1 << 20
    with Server(tmp_path / "server", {"PGOF_BINARY_BYTES": str(1 << 20)}) as server:
        detail = refused(upload(server, bomb.read_bytes()), 400)
        assert "its sections take more than 1,048,576 bytes when unpacked" in detail
        # Honest compressed sections are read.
        assert server.submit(profile_of_program(program, 5), query={"service": "shop"}).status_code == 204
        packed = tmp_path / "packed"
        subprocess.run(["objcopy", "--compress-debug-sections=zlib", program, packed], check=True)
        assert upload(server, packed.read_bytes()).status_code == 200
        assert server.merge(query=LLVM).content.startswith(b"work:")


CIRCULAR = """
static inline __attribute__((always_inline)) int inner(int n) { return n * 3 + 1; }
__attribute__((noinline)) int work(int n, int mode) { return inner(n) * inner(mode) + inner(n + mode); }
int main(int argc, char **argv) { return work(argc, argc); }
"""


def test_circular_debug_information_is_refused_or_read(tmp_path: Path) -> None:
    """Each entry of an inlined call says that its origin is the entry itself."""
    source, assembly = tmp_path / "circular.c", tmp_path / "circular.s"
    source.write_text(CIRCULAR)
    subprocess.run(["clang", *FLAGS[:-1], "-S", "-o", assembly, source], check=True)
    place, lines = "", []
    for line in assembly.read_text().splitlines():
        if found := re.search(r"# Abbrev \[\d+\] (0x[0-9a-f]+):", line):
            place = found[1]
        lines.append(
            re.sub(r"\.long\s+\S+", f".long {place}", line) if "DW_AT_abstract_origin" in line else line
        )
    assert sum("DW_AT_abstract_origin" in line for line in lines) >= 3
    assembly.write_text("\n".join(lines) + "\n")
    program = tmp_path / "circular"
    subprocess.run(["clang", FLAGS[-1], "-o", program, assembly], check=True)
    with Server(tmp_path / "server", {"PGOF_BINARY_SECONDS": "5"}) as server:
        assert upload(server, program.read_bytes()).status_code == 200
        assert server.submit(profile_of_program(program, 5), query={"service": "shop"}).status_code == 204
        answer = server.merge(query=LLVM)
        assert answer.status_code == 200 or "doesn't help" in refused(answer, 422)
        assert not server.events("unexpected error")


def test_a_reader_that_does_not_end_is_ended(tmp_path: Path, programs: list[Path]) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    tool = tools / "llvm-symbolizer"
    tool.write_text("#!/bin/sh\nexec sleep 600\n")
    tool.chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    with Server(tmp_path / "server", {"PGOF_BINARY_SECONDS": "0.3", "PATH": path}) as server:
        assert upload(server, programs[0].read_bytes()).status_code == 200
        assert server.submit(profile_of_program(programs[0], 5), query={"service": "shop"}).status_code == 204
        detail = refused(server.merge(query=LLVM), 422)
        assert "llvm-symbolizer took over 0.3 s" in detail
        # A worker that is replaced takes it along.
        server.kill()
        server.environment |= {"PGOF_BINARY_SECONDS": "500", "PGOF_TASK_SECONDS": "1"}
        server.start()
        assert "PGOF_TASK_SECONDS" in refused(server.merge(query=LLVM), 503)
        deadline = time.monotonic() + 20
        while _runs("sleep 600", tools) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _runs("sleep 600", tools)


def _runs(command: str, tools: Path) -> bool:
    """Return whether a process runs that was started for a server with these tools."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()
            if words == command and str(tools).encode() in (process / "environ").read_bytes():
                return True
        except OSError:
            continue
    return False


def test_damaged_programs_are_refused_or_used(tmp_path: Path, programs: list[Path]) -> None:
    content, chance = programs[0].read_bytes(), random.Random(20)  # noqa: S311 - not for secrets
    id_ = build_id(programs[0])
    with Server(tmp_path, {"PGOF_BINARY_SECONDS": "5"}) as server:
        assert server.submit(profile_of_program(programs[0], 5), query={"service": "shop"}).status_code == 204
        for number in range(18):
            body = bytearray(content)
            places = (range(1000), range(len(body) - 2400, len(body)), range(len(body)))[number % 3]
            for place in chance.sample(places, 6):
                body[place] = chance.randrange(256)
            answer = upload(server, bytes(body))
            assert answer.status_code == 200 or refused(answer, 400)
            assert server.merge(query=LLVM).status_code in {200, 422}
            for each in builds(server):
                assert delete(server, each).status_code == 204
        assert upload(server, content).json()["build_id"] == id_
        assert server.merge(query=LLVM).status_code == 200
        assert not server.events("unexpected error")
