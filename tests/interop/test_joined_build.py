"""A Go program is built with what eBPF saw: functions get start lines from a Go profile of the same build, or
from the program's symbols.

What the eBPF profiler sends is made from a profile that the program took of itself, with the lines that the
real one would have sent: `tests/collector/routes/test_ebpf_lines.py` has a request of that.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from pgo_agent.cli import main
from pprof_proto.profile_pb2 import Profile

from tests.collector.exporting import Export, assert_exported, export
from tests.faults.stacks import EPOCH
from tests.interop.go_toolchain import ENVIRONMENT, go
from tests.oracle.oracle import GO
from tests.server import Server

LATER = 86_400 * 10**9
# One of Go's profiles: 100 samples a second.
PERIOD = 10_000_000


def profiled(binary: Path, seconds: str) -> Profile:
    """Return the profile that the workload takes of itself."""
    file = binary.with_suffix(".pb.gz")
    subprocess.run([binary, file, seconds], check=True, stdout=subprocess.DEVNULL)
    return Profile.FromString(gzip.decompress(file.read_bytes()))


def lines_at(binary: Path, addresses: Sequence[int]) -> list[tuple[str, str, int]]:
    """Return the function, the file and the line of each address, from the program's table of lines.

    The function is the one whose machine code it is, and the line that of the innermost call.
    """
    asked = "".join(f"{address:#x}\n" for address in addresses)
    command: list[str | Path] = [GO, "tool", "addr2line", binary]
    done = subprocess.run(command, input=asked, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    names, places = done.stdout.splitlines()[::2], done.stdout.splitlines()[1::2]
    split = [place.rsplit(":", 1) for place in places]
    return [
        (name, file, int(line) if line.isdecimal() else 0)
        for name, (file, line) in zip(names, split, strict=True)
    ]


def as_ebpf(profile: Profile, binary: Path, service: str, taken: int) -> bytes:
    """Return a profile as OpenTelemetry's eBPF profiler would have sent it, as of commit b442421a.

    It looks up the line of the address to which a call returns, in the table that the program itself has,
    and sends that address less one: `Symbolize` in its `interpreter/go/symbolize.go`. Inlined calls aren't
    expanded, and there are neither start lines nor system names.
    """
    texts = [text.decode() for text in profile.string_table]
    own = [each for each in profile.location if each.mapping_id == profile.mapping[0].id]
    # What was stopped between two instructions is a caller; samples may end there, too.
    found = lines_at(binary, [each.address + is_caller for each in own for is_caller in (False, True)])
    frames = [(each.id, is_caller) for each in own for is_caller in (False, True)]
    lines = dict(zip(frames, found, strict=True))
    request = Export()
    request.resource({"service.name": service})
    made = request.profile(period=("cpu", "nanoseconds", PERIOD))
    made.time_unix_nano = taken
    mappings = {
        each.id: request.mapping(texts[each.filename], texts[each.build_id]) for each in profile.mapping
    }
    by_id = {each.id: each for each in profile.location}

    @cache
    def location(id_: int, is_caller: bool) -> int:
        sent = [lines[id_, is_caller]] if (id_, is_caller) in lines else []
        return request.inlined(sent, mappings[by_id[id_].mapping_id], by_id[id_].address)

    for sample in profile.sample:
        stack = [location(id_, depth > 0) for depth, id_ in enumerate(sample.location_id)]
        request.stack_sample(stack, sample.value[0])
    return request.body


def edges(profile: Path) -> set[str]:
    """Return what Go's compiler reads from a profile: calls with their offsets and weights."""
    prepared = profile.with_suffix(".preprofile")
    go("tool", "preprofile", "-o", prepared, "-i", profile)
    header, *lines = prepared.read_text().splitlines()
    assert header.startswith("GO PREPROFILE")
    return {"\n".join(lines[at : at + 3]) for at in range(0, len(lines), 3)}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workload, built without a profile, with a build id."""
    binary = tmp_path_factory.mktemp("joined") / "plain"
    go("build", "-pgo=off", "-o", binary)
    return binary


@pytest.fixture(scope="module")
def own(plain: Path) -> Profile:
    return profiled(plain, "0.7")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, own: Profile, plain: Path) -> Iterator[Server]:
    """A collector that has learned where the functions of the workload begin."""
    with Server(tmp_path_factory.mktemp("server"), {"PGOF_JOIN_SECONDS": "0.2"}) as server:
        for service in ("shop", "inlined"):
            assert_exported(export(server, as_ebpf(own, plain, service, EPOCH)))
        submitted = server.submit(own.SerializeToString(), query={"service": "shop"})
        assert submitted.status_code == 204
        server.wait_for_log("start lines learned")
        yield server


def joined(server: Server, service: str, file: Path, by: str = "joined") -> Path:
    """Fetch the merge of the joined profiles of a service."""
    answer = server.merge(query={"service": service, "labels": f"start_lines={by}"})
    assert answer.status_code == 200, answer.text
    file.write_bytes(answer.content)
    return file


@pytest.fixture(scope="module")
def guides(server: Server, own: Profile, plain: Path) -> tuple[Path, Path, Path]:
    """Return what the program says of itself, and the same as eBPF saw it and the collector joined it.

    It was joined with a Go profile of the same build, and with the symbols of the program.
    """
    for service in ("shop", "symbols"):
        if service == "symbols":
            send_symbols(server, plain, service)
        body = as_ebpf(own, plain, service, time.time_ns() + LATER)
        assert_exported(export(server, body))
    file = plain.with_name("own.pgo")
    file.write_bytes(gzip.compress(own.SerializeToString()))
    by_symbols = joined(server, "symbols", plain.with_name("symbols.pgo"), "symbols")
    return file, joined(server, "shop", plain.with_name("joined.pgo")), by_symbols


def send_symbols(server: Server, binary: Path, service: str) -> None:
    """Run `pgo-agent symbols`."""
    key_file = binary.with_name("key")
    key_file.write_text(Server.submit_key)
    arguments = ["symbols", binary, "--url", server.base_url, "--key-file", key_file, "--service", service]
    assert main([*map(str, arguments), "--json"]) == 0


@pytest.mark.exhaustive
def test_the_compiler_reads_the_same_calls(
    guides: tuple[Path, Path, Path], own: Profile, server: Server
) -> None:
    # What was stopped between two instructions isn't at a call, so symbols don't know its address. Go makes a
    # method (*circle).area that inlines circle.area; the profiler doesn't know what is inlined where.
    left_out = re.compile(r"asyncPreempt|\bcircle\b")
    of_own, of_joined, by_symbols = (
        {each for each in edges(guide) if each.startswith("main.") and not left_out.search(each)}
        for guide in guides
    )
    assert of_own == of_joined == by_symbols != set()
    for service in ("shop", "symbols"):
        report = server.ask("/v1/report", service=service).json()
        assert report["joined"]["profiles"] == 1
        assert report["joined"]["start_lines"] == pytest.approx(start_lines_of(own))
        assert report["joined"]["resolved"] > 0.95
    assert report["joined"]["sources"] == {"go_profiles": 0.0, "symbols": 1.0}


@pytest.mark.exhaustive
@pytest.mark.alike(1, family="Go compiles its library")
def test_the_build_is_the_same(guides: tuple[Path, Path, Path], plain: Path) -> None:
    """Takes over 20 s: with a new profile, Go compiles all of its library that the program uses again."""
    binaries = []
    for number, guide in enumerate(guides):
        folder = plain.with_name(f"build{number}")
        folder.mkdir()
        (folder / "default.pgo").write_bytes(guide.read_bytes())
        go(
            "build",
            f"-pgo={folder / 'default.pgo'}",
            "-trimpath",
            "-ldflags=-buildid=",
            "-o",
            folder / "binary",
        )
        binaries.append((folder / "binary").read_bytes())
    without = plain.with_name("without")
    go("build", "-pgo=off", "-trimpath", "-ldflags=-buildid=", "-o", without)
    assert binaries[0] == binaries[1] == binaries[2] != without.read_bytes()


@pytest.mark.exhaustive
def test_inlined_calls_are_expanded(guides: tuple[Path, Path, Path], plain: Path, server: Server) -> None:
    """Takes over 20 s. In a build with the profile, a call is inlined that isn't without it."""
    binary = plain.with_name("guided")
    go("build", f"-pgo={guides[0]}", "-o", binary)
    profile = profiled(binary, "0.7")
    assert any(len(location.line) > 1 for location in profile.location)
    submitted = server.submit(profile.SerializeToString(), query={"service": "inlined"})
    assert submitted.status_code == 204
    server.wait_for_log("start lines learned", 2)
    body = as_ebpf(profile, binary, "inlined", time.time_ns() + LATER)
    assert_exported(export(server, body))
    content = gzip.decompress(joined(server, "inlined", plain.with_name("inlined.pgo")).read_bytes())
    seen, claimed = (lines_of(each) for each in (profile, Profile.FromString(content)))
    assert claimed <= seen
    assert claimed


def start_lines_of(profile: Profile) -> float:
    """Return the share of samples whose running function has a start line; those in assembly have none."""
    functions = {each.id: each for each in profile.function}
    locations = {each.id: each for each in profile.location}
    running = [
        (functions[locations[each.location_id[0]].line[-1].function_id], each.value[0])
        for each in profile.sample
    ]
    return sum(count for each, count in running if each.start_line) / sum(count for _, count in running)


def lines_of(profile: Profile) -> set[tuple[bytes, int]]:
    """Return the functions and lines of all frames whose function has a start line."""
    functions = {each.id: each for each in profile.function}
    return {
        (profile.string_table[functions[line.function_id].name], line.line)
        for location in profile.location
        for line in location.line
        if functions[line.function_id].start_line
    }
