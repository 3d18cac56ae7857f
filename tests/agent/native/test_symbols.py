"""`pgo-agent symbols`: what it reads from programs, and what it says of those that it can't read."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from pgo_agent.errors import NotReadable
from pgo_agent.native import go_symbols
from pgo_agent.native.go_symbols import Symbols
from pprof_proto.profile_pb2 import Profile

from tests.agent.forked import run_agent
from tests.agent.scripted_server import KEY, ScriptedServer
from tests.collector.small_program import small_program
from tests.interop.go_toolchain import go


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Go program, as `go build` makes it."""
    binary = tmp_path_factory.mktemp("program") / "program"
    go("build", "-pgo=off", "-o", binary)
    return binary


@pytest.fixture(scope="module")
def symbols(program: Path) -> Symbols:
    return Symbols.read(program)


def test_each_function_of_a_profile_begins_where_the_program_says(
    program: Path, symbols: Symbols, tmp_path: Path
) -> None:
    file = tmp_path / "cpu.pb.gz"
    subprocess.run([program, file, "0.5"], check=True, stdout=subprocess.DEVNULL)
    profile = Profile.FromString(gzip.decompress(file.read_bytes()))
    texts = [text.decode() for text in profile.string_table]
    known = {each.name: each for each in symbols.functions}
    seen = [(texts[each.name], texts[each.filename], each.start_line) for each in profile.function]
    assert any(name.startswith("main.") for name, *_ in seen)
    for name, *where in seen:
        # Assembly has no first line in DWARF.
        assert name not in known or [*known[name][1:]] == where
        assert name in known or name.startswith("runtime.")
    of_go, gnu = symbols.build_ids
    assert gnu == texts[profile.mapping[0].build_id]
    assert of_go.count("/") == 3


def test_they_are_sent_as_a_profile(symbols: Symbols) -> None:
    profile = Profile.FromString(gzip.decompress(symbols.pprof()))
    texts = [text.decode() for text in profile.string_table]
    assert tuple(texts[each.build_id] for each in profile.mapping) == symbols.build_ids
    functions = {(texts[each.name], texts[each.filename], each.start_line) for each in profile.function}
    assert functions == {*map(tuple, symbols.functions)}
    assert not profile.sample


def test_the_command_sends_them(
    program: Path, symbols: Symbols, server: ScriptedServer, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    sending: list[str | Path] = [
        "symbols",
        program,
        "--url",
        server.url,
        "--key-file",
        key,
        "--service",
        "shop",
        "--json",
    ]
    done = run_agent(sending)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert said == {"build_ids": [*symbols.build_ids], "functions": len(symbols.functions)}
    (seen,) = server.seen
    assert seen.path == "/v1/symbols?service=shop"
    assert seen.profile == gzip.decompress(symbols.pprof())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not an ELF file with readable DWARF"),
        (small_program(b""), "it has no build id: build it with Go 1.24 or later"),
        (b"\x7fELF" + b"\xff" * 100, "not an ELF file with readable DWARF"),
        (Path(sys.executable).read_bytes()[:5000], "not an ELF file with readable DWARF"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(NotReadable, match=reason):
        Symbols.read(file)


def test_a_program_without_dwarf_says_how_to_build_it(tmp_path: Path) -> None:
    binary = tmp_path / "stripped"
    go("build", "-pgo=off", "-ldflags=-w", "-o", binary)
    with pytest.raises(NotReadable, match="it has no DWARF: build it without -ldflags=-w"):
        Symbols.read(binary)


@pytest.mark.exhaustive
def test_a_damaged_program_is_refused_or_read(tmp_path: Path) -> None:
    """Debugging information that is damaged at places is an error, or is read in part.

    The program does nothing, so that there is little to read; the information is in its second half.
    """
    (tmp_path / "main.go").write_text("package main\n\nfunc main() {}\n")
    go("build", "-pgo=off", "-o", "whole", "main.go", program=str(tmp_path))
    content, file = (tmp_path / "whole").read_bytes(), tmp_path / "damaged"
    for at in (0, *range(len(content) // 2, len(content), len(content) // 8)):
        file.write_bytes(content[:at] + bytes(64) + content[at + 64 :])
        try:
            assert Symbols.read(file).functions
        except NotReadable:
            continue


def test_without_the_library_the_command_says_what_to_install(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("key\n")
    program = "import sys; sys.modules['elftools'] = None; from pgo_agent.cli import main; sys.exit(main())"
    arguments = ["symbols", str(key), "--url", "http://127.0.0.1:1", "--key-file", str(key)]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "pgo-agent: pyelftools is not installed: pip install 'pgo-agent[symbols]'\n"


def places_of(profile: Profile) -> dict[int, list[tuple[str, str, int]]]:
    """Return the functions, files and lines of each address; those of wrappers are left out, as by Go."""
    texts = [text.decode() for text in profile.string_table]
    functions = {each.id: (texts[each.name], texts[each.filename]) for each in profile.function}
    lines = {
        each.address: [(*functions[line.function_id], line.line) for line in each.line]
        for each in profile.location
        if each.mapping_id == 1
    }
    return {
        address: [(name.split("[")[0], file, line) for name, file, line in of if file != "<autogenerated>"]
        for address, of in lines.items()
    }


def test_each_call_of_a_profile_is_on_the_line_that_the_program_says(
    program: Path, symbols: Symbols, tmp_path: Path
) -> None:
    """Calls that were inlined are told, too. Go's own profile has the addresses that eBPF profilers send."""
    file = tmp_path / "cpu.pb.gz"
    subprocess.run([program, file, "0.5"], check=True, stdout=subprocess.DEVNULL)
    profile = Profile.FromString(gzip.decompress(file.read_bytes()))
    seen, told = places_of(profile), places_of(Profile.FromString(gzip.decompress(symbols.pprof())))
    places = {each.id: each.address for each in profile.location if each.mapping_id == 1}
    # What was stopped between two instructions has called nothing; assembly has no lines in DWARF.
    addresses = {
        places[caller]
        for sample in profile.sample
        for callee, caller in pairwise(sample.location_id)
        if not seen[places[callee]][-1][0].startswith("runtime.asyncPreempt")
        and not seen[places[caller]][-1][0].startswith("runtime.")
    }
    assert len(addresses) > 1
    assert {each: told.get(each) for each in addresses} == {each: seen[each] for each in addresses}


def test_calls_are_those_of_gos_disassembler(program: Path, symbols: Symbols) -> None:
    """The disassembler knows a function without those inlined into it, and the line of the innermost."""
    listed = go("tool", "objdump", "-s", r"^(main|fmt|sort|os|runtime/pprof)\.", program)
    rows = re.findall(r"^  \S+:(\d+)\t+0x(\w+)\t+(\w+)\t+CALL ", listed, flags=re.MULTILINE)
    calls = {int(at, 16) + len(code) // 2 - 1: int(line) for line, at, code in rows}
    told = {place.address: place.lines[0].line for place in symbols.places if place.lines[0].line}
    assert len(calls) > 500
    assert {address: told.get(address) for address in calls} == calls


def test_those_of_a_large_program_are_sent_in_parts(
    symbols: Symbols, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector spends only so much time on a request."""
    assert symbols.parts == 1
    monkeypatch.setattr(go_symbols, "_PLACES", 10_000)
    parts = [Profile.FromString(gzip.decompress(symbols.pprof(part))) for part in range(symbols.parts)]
    assert len(parts) > 1
    assert len({len(part.function) for part in parts}) == 1
    addresses = [location.address for part in parts for location in part.location]
    monkeypatch.undo()
    whole = Profile.FromString(gzip.decompress(symbols.pprof()))
    assert addresses == [location.address for location in whole.location]
