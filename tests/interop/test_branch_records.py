"""Branch records of a real run: counts as llvm-profgen's, and clang's build with those of a fleet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pgo_agent.cli
import pytest
from pprof_merge import inflate
from pprof_proto.profile_pb2 import Profile

from tests.interop.branch_trace import recorded_branches
from tests.interop.curl import Answer, Client
from tests.interop.native_program import clang, run
from tests.merge.command.installed import pprof_merge
from tests.server import Server

pytestmark = pytest.mark.system("clang", "llvm-profdata", "llvm-symbolizer", "llvm-cxxfilt", "perf")
DOCUMENT = (
    '[{"name": "an item é\\n", "value": 12.5e-1, "list": [true, null, -7]}, "a longer string"]' + " " * 99
)
HOT_CALL = "'next' inlined into 'string'"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with all that it calls: llvm-profgen 14 drops what comes before the call of a library."""
    folder = tmp_path_factory.mktemp("branches")
    assert HOT_CALL not in clang("-static", "-Rpass=inline", "-o", folder / "json")
    return folder / "json"


@pytest.fixture(scope="module")
def recording(program: Path) -> Path:
    """About 10 seconds: the program runs instruction by instruction."""
    document = program.with_name("document")
    document.write_text(DOCUMENT)
    return recorded_branches(program, "1", str(document), n=37)


@pytest.fixture(scope="module")
def profile(recording: Path) -> bytes:
    output = recording.with_name("branches.pb.gz")
    assert pgo_agent.cli.main(["convert", "--branches", str(recording), "-o", str(output)]) == 0
    return output.read_bytes()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("fleet")
    with Server(folder / "server") as server:
        yield Client(server.base_url, server, folder)


def written(program: Path, *profiles: Path) -> bytes:
    return pprof_merge("--format", "llvm", "--binary", program, *profiles).stdout


def comparable(text: str) -> dict[tuple[str, ...], str]:
    """Return what a sample profile says of each function, inlined call and line, as llvm-profgen says it.

    It counts instructions that have no line, as at line 0, and so in totals, too. Only its newer releases
    raise the count of a line to that of its calls, and only if the line isn't inlined.
    """
    said: dict[tuple[str, ...], str] = {}
    path: tuple[str, ...] = ()
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip(" "))
        if body := re.fullmatch(r" +(\d+)(\.\d+)?: (\d+)((?: \S+:\d+)*)", line):
            offset, discriminator, count, calls = body.groups("")
            called = sum(int(each.rpartition(":")[2]) for each in calls.split())
            if int(offset) < 1 << 15:
                said[(*path[:depth], offset + discriminator)] = f"{max(int(count), called)}{calls}"
        else:
            head = re.fullmatch(r" *(\S+ \S+):\d+|(\S+):\d+:(\d+)", line)
            assert head
            path = (*path[:depth], head[1] or head[2])
            said[path] = head[3] or ""
    return said


def test_counts_entries_and_calls_are_those_of_llvm_profgen(
    program: Path, recording: Path, profile: bytes
) -> None:
    """Function by function and line by line, on the same text of perf."""
    tools = sorted(Path("/usr/lib").glob("llvm-*/bin/llvm-profgen"))
    if not tools:
        pytest.skip("llvm-profgen isn't installed")
    script, peer = recording.with_name("script"), recording.with_name("peer")
    lines = run("perf", "script", "-i", recording, "--show-mmap-events", "-F", "ip,brstack").splitlines()
    # llvm-profgen 14 stops at the kernel's mapping.
    script.write_text("".join(f"{line}\n" for line in lines if " -1/0: " not in line))
    run(tools[-1], "--format=text", f"--binary={program}", f"--perfscript={script}", f"--output={peer}")
    assert profile  # is in the file
    ours = comparable(written(program, recording.with_name("branches.pb.gz")).decode())
    assert ours == comparable(peer.read_text())
    assert len(ours) > 150
    # The program enters `next` once for each character, and calls it at many lines.
    assert int(ours["next",]) > 100
    assert sum(" next:" in line for line in ours.values()) > 5


def test_clang_builds_with_the_records_of_a_fleet(
    program: Path, profile: bytes, fleet: Client, tmp_path: Path
) -> None:
    """Without the program, nobody can tell what ran; the report says so, too."""
    ask = partial(fleet.curl, key=fleet.server.merge_key)
    send = partial(fleet.curl, key=fleet.server.submit_key)
    body = ("--data-binary", f"@{program.with_name('branches.pb.gz')}")
    for instance in ("a", "b"):
        assert send(f"/v1/submit?type=branches&labels=instance={instance}", *body).status == 204
    refused = ask("/v1/merge?type=branches&format=llvm")
    assert (refused.status, b"need the program that ran: upload it" in refused.body) == (422, True)
    assert gain(ask("/v1/report?type=branches"))["verdict"] == "none"

    assert send("/v1/binaries", "--data-binary", f"@{program}").status == 200
    answer = ask("/v1/merge?type=branches&format=llvm")
    assert answer.status == 200
    assert answer.body == written(program, *[program.with_name("branches.pb.gz")] * 2)
    judged = gain(ask("/v1/report?type=branches"))
    ranges = sum(sample.value[0] for sample in Profile.FromString(inflate(profile)).sample)
    assert judged["verdict"] == "collect more"
    assert judged["samples"] == round(2 * ranges / 32)

    sample_profile, guided = tmp_path / "sample.prof", tmp_path / "guided"
    sample_profile.write_bytes(answer.body)
    entered = re.search(rb"^next:\d+:(\d+)$", answer.body, re.MULTILINE)
    assert entered
    shown = run("llvm-profdata", "show", "--sample", "--function=next", sample_profile)
    assert re.search(rf"^Function: next: \d+, {int(entered[1])}, ", shown, re.MULTILINE)
    flags = (f"-fprofile-sample-use={sample_profile}", "-mllvm", "-sample-profile-use-profi", "-Rpass=inline")
    assert HOT_CALL in clang("-static", *flags, "-o", guided)
    document = str(program.with_name("document"))
    assert run(guided, "1", document) == run(program, "1", document)


def gain(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.body)["gain"]["formats"]["llvm"]
    return found
