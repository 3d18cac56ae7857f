"""Bytes in another format are refused by the name of that format, with a way to a profile that works."""

from __future__ import annotations

import cProfile
import gzip
import itertools
import json
import marshal
import shlex
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Collection, Limits, MalformedProfile, ProfileError, decode, inflate, merge
from pprof_merge.codec import GZIP_MAGIC, summaries
from pprof_proto import other_formats
from pprof_proto.other_formats import other_format

from tests.merge.command.installed import pprof_merge
from tests.oracle.oracle import GO, go_environment

PROFILES = sorted((Path(__file__).parents[2] / "testdata" / "profiles").glob("*.pb.gz"))
MAPPED = b"MAPPED_LIBRARIES:\n00400000-00500000 r-xp 00000000 00:00 0 /bin/shop\n"


def gperftools(order: str, size: str, kind: int = 0) -> bytes:
    """Return a CPU profile of gperftools in words of a machine: two stacks, 10 ms a sample."""
    parts = [(0, 3, kind, 10_000, 0), (5, 2, 0x401000, 0x402000), (3, 1, 0x401500), (0, 1, 0)]
    return b"".join(struct.pack(f"{order}{len(part)}{size}", *part) for part in parts) + MAPPED


def cprofile() -> bytes:
    """Return what Python's own profiler writes to a file."""
    profiler = cProfile.Profile()
    profiler.runcall(sorted, [2, 1])
    profiler.create_stats()
    return marshal.dumps(profiler.stats)  # as `dump_stats` does


class Convertible(NamedTuple):
    """Return what `go tool pprof -proto` reads, and the sum of the last of its values."""

    data: bytes
    total: int


CPU = {
    f"CPU {order}{size}": Convertible(gperftools(order, size), 80_000_000) for order in "<>" for size in "IQ"
}
OLD_TEXTS = {
    "heap": Convertible(
        b"heap profile: 2: 96 [3: 160] @ heap/2\n1: 64 [2: 128] @ 0x401000\n1: 32 [1: 32] @ 0x402000\n", 96
    ),
    "heap of gperftools": Convertible(
        b"heap profile:    2:     1024 [  4:  2048] @ heapprofile\n  2: 1024 [ 4: 2048] @ 0x401000\n", 1024
    ),
    "goroutines": Convertible(b"goroutine profile: total 3\n2 @ 0x401000 0x402000\n1 @ 0x401500\n", 3),
    "threads": Convertible(b"# a comment\n\nthreadcreate profile: total 5\n5 @ 0x401000\n", 5),
    "block": Convertible(b"--- contention:\ncycles/second=1000000000\n70 2 @ 0x401000\n", 70),
    "mutex": Convertible(b"--- mutex:\ncycles/second=1000000000\nsampling period=1\n70 2 @ 0x401000\n", 70),
    "contentionz": Convertible(
        b"--- contentionz 1 ---\ncycles/second = 1000000000\nsampling period = 1\n70 2 @ 0x401000\n", 70
    ),
    "threadz": Convertible(
        b"--- threadz 1 ---\n--- Thread 7f0 (name: a/15) stack: ---\n  PC: 0x401000\n--- Memory map: ---\n",
        1,
    ),
    "heapz of Java": Convertible(
        b"--- heapz 1 ---\nformat = java\nresolution = bytes\n 64 1 @ 0x3\n 0x3 run (A.java:3)\n",
        524_320,
    ),
}
_SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"
OTHERS = {
    "CPU of Java": (gperftools("<", "Q", kind=1), "gperftools"),
    "dump of goroutines": (b"goroutine 1 [running]:\nmain.main()\n", "without `debug=2`"),
    "dump of goroutines of a crash": (b"goroutine 0 gp=0x5 m=0 mp=0x7 [idle]:\nruntime.x()\n", "goroutines"),
    "execution trace": (b"go 1.26 trace\0\0\0\1\1\xff\xff", "go tool trace"),
    "perf.data": (b"PERFILE2" + bytes(96), "`pgo-agent convert FILE"),
    "JFR": (b"FLR\0\0\2\0\1" + bytes(60), "jfrconv"),
    "GO PREPROFILE": (b"GO PREPROFILE V1\nmain.f\nmain.g\n2 5\n", "go tool preprofile"),
    "cProfile": (cprofile(), "cProfile"),
    "form": (b'--------------------------5f\r\nContent-Disposition: form-data; name="file"\r\n', "a form"),
    "ELF": (b"\x7fELF\2\1\1" + bytes(57), "a program"),
    "zip": (b"PK\3\4" + bytes(30), "zip"),
    "zstd": (b"\x28\xb5\x2f\xfd\x24\4\x21", "zstd"),
    "xz": (b"\xfd7zXZ\0\0\4", "xz"),
    "bzip2": (b"BZh91AY&SY", "bzip2"),
    "HTML": (b"<!DOCTYPE html>\n<html><head><title>Log in</title>", "HTML"),
    "HTML without its type": (b"\n <html lang=en>", "HTML"),
    "SVG": (b'<?xml version="1.0"?><svg>', "HTML or XML"),
    "JSON": (json.dumps({"traceEvents": []}).encode(), "JSON"),
    "speedscope": (
        json.dumps({"$schema": f"{_SPEEDSCOPE}#", "shared": {"frames": []}}).encode(),
        "a file of speedscope",
    ),
    "speedscope of another order": (
        json.dumps({"version": "1", "$schema": _SPEEDSCOPE}, indent=1).encode(),
        "a file of speedscope",
    ),
    "cpuprofile": (
        b'{"nodes":[{"id":1,"callFrame":{"functionName":"(root)","scriptId":"0","url":"","lineNumber":-1',
        "`npx pprof-it",
    ),
    "JSON list": (b"[\n  {}]", "JSON"),
    "folded stacks": (b"main;run;next 12\nmain;run 3\n", "folded stacks"),
    "folded stacks of Java": (b"java/lang/Thread.run;A.go [inlined] 1.5\r\nx 2\r\n", "folded stacks"),
    "text": ("Größe: unbekannt\n".encode(), "text, in no format"),
    "text that is cut within a letter": (b"a" + "ü".encode() * 4096, "text, in no format"),
}
ALL = {
    **{name: (case.data, "gperftools") for name, case in CPU.items()},
    **{name: (case.data, "old text format") for name, case in OLD_TEXTS.items()},
    **OTHERS,
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("is_packed", [False, True], ids=["bare", "gzip"])
def test_it_is_refused_by_its_name(name: str, is_packed: bool) -> None:
    data, words = ALL[name]
    body = gzip.compress(data) if is_packed else data
    with pytest.raises(MalformedProfile) as refused:
        decode(body)
    assert str(refused.value).startswith("this is ")
    assert words in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("name", CPU | OLD_TEXTS)
def test_the_conversion_that_is_named_works(name: str, tmp_path: Path) -> None:
    data, total = (CPU | OLD_TEXTS)[name]
    old, program = tmp_path / "old", Path(sys.executable).resolve()
    old.write_bytes(data)
    finished = pprof_merge(old)
    assert finished.returncode == 2
    command = finished.stderr.decode().split("`")[1]
    assert command == "go tool pprof -proto PROGRAM FILE > profile.pb.gz"
    shell = command.replace("go ", f"{shlex.quote(GO)} ", 1)
    shell = shell.replace("PROGRAM", shlex.quote(str(program))).replace("FILE", shlex.quote(str(old)))
    environment = go_environment() | {"PPROF_TMPDIR": str(tmp_path)}
    subprocess.run(["bash", "-eu", "-c", shell], cwd=tmp_path, env=environment, check=True)
    profile = decode((tmp_path / "profile.pb.gz").read_bytes())
    assert merge([profile]).samples.values[:, -1].sum() == total


def test_among_others_it_alone_is_refused() -> None:
    good = [file.read_bytes() for file in PROFILES[:2]]
    taken = [*Collection(Limits()).extend([good[0], ALL["heap"][0], good[1]])]
    assert [type(each) for each in taken] == [int, MalformedProfile, int]
    assert "text format" in str(taken[1])


def test_a_profile_is_never_taken_for_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that begins as text does: with a period type of another schema's fields, before its own."""
    monkeypatch.setattr(other_formats, "other_format", lambda _: pytest.fail("it was asked for"))
    text = b"Z%b#<html>heap profile: 1: 2 [3: 4] @ x"  # field 11, and in it field 12
    assert len(text) == 2 + ord("%") == 4 + ord("#")
    for file in PROFILES:
        profile = decode(file.read_bytes())
        disguised = decode(text + inflate(file.read_bytes()))
        assert disguised.header == profile.header
        assert disguised.samples.values.tolist() == profile.samples.values.tolist()


@pytest.mark.parametrize("limit", ["strings", "samples"])
def test_a_profile_over_a_limit_is_no_other_format(limit: str) -> None:
    with pytest.raises(ProfileError, match=f"more than 1 {limit}"):
        decode(PROFILES[0].read_bytes(), Limits(**{limit: 1}))


BEGINNINGS = st.sampled_from([b"", *(data for data, _ in ALL.values())])
CUTS = st.integers(0, 60)


@given(BEGINNINGS, CUTS, st.binary(max_size=100))
def test_no_bytes_are_too_much_for_it(beginning: bytes, cut: int, rest: bytes) -> None:
    data = beginning[: max(len(beginning) - cut, 0)] + rest
    known = other_format(data)
    (taken,) = summaries([data], Limits())
    if known and isinstance(taken, ProfileError) and not data.startswith(GZIP_MAGIC):
        assert str(taken) == f"this is {known}"


def test_it_takes_no_time() -> None:
    """The worst that its patterns can meet: lines, blanks, and separators without an end."""
    pieces = [
        b"\n",
        b"#",
        b"# \n",
        b" ",
        b"\t",
        b";",
        b"a;",
        b" 1",
        b"1",
        b"x",
        b"--- ",
        b" profile: ",
        b"{ ",
    ]
    start = time.process_time()
    for first, second in itertools.product([b"", *pieces], pieces):
        other_format(first * 2000 + second * 5000)
    assert time.process_time() - start < 2


def test_what_begins_so_by_chance_keeps_its_own_message() -> None:
    with pytest.raises(MalformedProfile, match="field 1 has wire type 3"):
        decode(b"\x0b\x0c")
    assert other_format(b"") is other_format(b" \n") is None
