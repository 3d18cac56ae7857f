"""Files of profilers: which format each is in, and the profile that becomes of it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pgo_collector.errors import NotPprof
from pgo_collector.readers.any_format import pprof_of
from pprof_merge import (
    FORMATS,
    LimitExceeded,
    Limits,
    MalformedProfile,
    Profile,
    ProfileError,
    decode,
    encode,
    merge,
)
from pprof_merge.analysis import default_column
from pprof_proto.profile_pb2 import Profile as Message

from tests.collector.routes.test_speedscope import EVENTED, SAMPLED, file

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.any_store

TESTDATA = Path(__file__).parents[2] / "testdata"
PROFILES = sorted((TESTDATA / "profiles").glob("*-001.pb.gz")) + sorted(TESTDATA.glob("postgres/*.pb.gz"))
PERF = (TESTDATA / "perf-script-default.txt").read_bytes()


def zstd_packed(content: bytes) -> bytes:
    return zstd.compress(content)


def read(content: bytes) -> Profile:
    return decode(pprof_of(content, Limits()))


def folded(profile: Profile) -> dict[str, int]:
    lines = FORMATS["folded"].write(merge([profile])).decode().splitlines()
    return {stack: int(value) for stack, value in (line.rsplit(" ", 1) for line in lines)}


def types(profile: Profile) -> list[str]:
    return [str(each) for each in profile.header.sample_types]


@pytest.mark.parametrize("path", PROFILES, ids=[path.name for path in PROFILES])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress], ids=["bare", "gzip", "zstd"])
def test_what_the_engine_writes_is_read_again(path: Path, pack: Callable[[bytes], bytes]) -> None:
    """Stack by stack, as the default sample type; speedscope's file has all of them."""
    profile = decode(path.read_bytes())
    for name in ("pprof", "folded", "speedscope"):
        again = read(pack(FORMATS[name].write(profile)))
        assert folded(again) == folded(profile), name
        if name != "folded":
            assert types(again) == types(profile)
            assert default_column(again.header) == default_column(profile.header)
            assert again.samples.values.sum(0).tolist() == profile.samples.values.sum(0).tolist()


def test_folded_stacks_may_have_comments_fractions_and_windows_ends() -> None:
    profile = read(b"# from a tool\r\n\r\nmain;do it (x) 3\r\nmain;do it (x) 2.5\nmain 18014398509481985\n")
    assert folded(profile) == {"main;do it (x)": 5, "main": 18014398509481985}
    assert types(profile) == ["samples/count"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"main;run 3\nmain;run\n", r"line 2 isn't a folded stack.*'main;run'"),
        (b"main 9223372036854775808\n", "64 bits"),
        (b"<html><b>Sign in</b></html>", "HTML"),
        (b"some words\n", "text, in no format.*folded stacks"),
        (b'{"nodes": [{"id": 1, "callFrame": {"functionName": "x"}}]}', "cpuprofile"),
        (file(SAMPLED)[:-20], "isn't a file of speedscope"),
        (PERF.replace(b"PyLong_FromSsize_t+0xba (", b"PyLong_FromSsize_t"), "line 2 is neither a sample"),
    ],
)
def test_what_is_in_no_format_is_refused_with_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(NotPprof, match=reason):
        pprof_of(content, Limits())


def test_profiles_of_one_speedscope_file_are_told_apart_by_a_label_of_samples() -> None:
    others = [dict(SAMPLED, name="two"), dict(EVENTED, name="three", unit="bytes")]
    profile = read(file(SAMPLED, *others))
    assert types(profile) == ["cpu/nanoseconds", "alloc_space/bytes"]
    message = Message.FromString(encode(profile))
    texts = message.string_table
    found = {texts[label.str] for sample in message.sample for label in sample.label}
    assert found == {b"one", b"two", b"three"}
    assert profile.samples.values.sum(0).tolist() == [2 * 14 * 10**9, 14]


def test_the_text_of_perf_has_threads_and_cpu_time() -> None:
    profile = read(PERF)
    assert types(profile) == ["samples/count", "cpu/nanoseconds"]
    assert str(profile.header.period_type) == "cpu/nanoseconds"
    heads = [line for line in PERF.decode().splitlines() if line.startswith("python")]
    assert profile.samples.values.sum(0).tolist() == [len(heads), 5025125 * len(heads)]
    assert profile.header.duration_nanos > 0
    assert folded(profile)["PyLong_FromSsize_t"] == 5025125  # callers in no file are where perf lost track


@pytest.mark.parametrize(
    ("text", "expected_types", "stacks"),
    [
        ("a b 7 [001] 1.5: cycles:u: \n\t 1f f(int)+0x1f (/bin/a)\n", ["samples/count"], {"f(int)": 1}),
        ("a 7/8 1.5: 40 cycles:pp: \n\t1f [unknown] (/bin/a)\n\n", ["samples/count", "cycles/count"],
         {"[a]": 40}),
        ("a 7 1.5: 3 faults: 1f f (/a)\na 7 1.6: 4 faults: 1f f (/a)\n", ["samples/count", "faults/count"],
         {"f": 7}),
        ("a 7 1.5: 3 faults: \n\t 1f f (/a)\n\na 7 1.6: 4 cpu_core/cycles/u: \n\t 1f f (/a)\n",
         ["cycles/count", "faults/count"], {"f": 3}),
        ("# x\na 7/7 0.0: PERF_RECORD_MMAP\na 7 1.5: sched:sched_switch: x=a ==> b\n\t1f f (a) (/a)\n",
         ["samples/count"], {"f (a)": 1}),
    ],
)  # fmt: skip
def test_perf_may_print_fewer_fields(text: str, expected_types: list[str], stacks: dict[str, int]) -> None:
    profile = read(text.encode())
    assert types(profile) == expected_types
    assert folded(profile) == stacks


@pytest.mark.system("perf")
def test_perf_itself_prints_what_is_read(tmp_path: Path) -> None:
    recording = tmp_path / "perf.data"
    program = [sys.executable, "-c", "sum(range(9_000_000))"]
    record = ["perf", "record", "-q", "-B", "-e", "cpu-clock", "-F", "499", "-g", "-o", str(recording), "--"]
    subprocess.run([*record, *program], check=True, capture_output=True)
    printed = subprocess.run(
        ["perf", "script", "--header", "-i", str(recording)], check=True, capture_output=True
    ).stdout
    count = subprocess.run(
        ["perf", "script", "-F", "tid", "-i", str(recording)], check=True, capture_output=True
    ).stdout
    profile = read(printed)
    assert profile.samples.values[:, 0].sum() == len(count.split()) > 0


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        (gzip.compress(bytes(9 << 20)), "inflated_bytes"),
        (zstd.compress(bytes(9 << 20)), "inflated_bytes"),
        (b"a;" * 10_001 + b"a 1\n", "stack_depth"),
        (b"".join(b"f%d 1\n" % number for number in range(500_001)), "samples"),
        (b"".join(b"a %d 1.5: 1 e:\n" % number for number in range(200_001)), "samples"),
        (b"".join(b"a 1 1.5: 1 e%d:\n" % number for number in range(101)), "sample_types"),
        (b"".join(b"%d;%s 1\n" % (number, b"a;" * 9000 + b"a") for number in range(300)), "frames"),
    ],
)
def test_what_is_too_large_is_refused_by_the_name_of_the_limit(content: bytes, limit: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        pprof_of(content, Limits()._replace(samples=200_000) if b" 1.5:" in content[:20] else Limits())
    assert caught.value.limit == limit


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_what_is_cut_off_is_refused(pack: Callable[[bytes], bytes]) -> None:
    with pytest.raises(MalformedProfile):
        pprof_of(pack(PERF)[:-9], Limits())


@pytest.mark.parametrize(
    "line",
    [b" " * (1 << 20) + b"x", b"a 1 " * (1 << 18), b"1f (" * (1 << 18), b"\t1f a (" + b"(" * (1 << 20)],
    ids=["blanks", "words", "brackets", "open"],
)
def test_a_long_line_takes_no_time_that_grows_with_its_square(line: bytes) -> None:
    """A quadratic one would take hours."""
    with pytest.raises((NotPprof, ProfileError)):
        pprof_of(b"a 7 1.5: 3 faults: \n" + line + b"\n", Limits())


def test_json_of_millions_of_values_is_refused() -> None:
    values = json.dumps({"$schema": "https://www.speedscope.app/file-format-schema.json", "x": [0] * 400_000})
    with pytest.raises(NotPprof, match="values"):
        pprof_of(values.encode(), Limits())
