"""Names of the code of JIT compilers: by the files of real processes, and by those of hostile ones."""

from __future__ import annotations

import ctypes
import gzip
import os
import re
from collections.abc import Callable, Iterator
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, PROT_EXEC, PROT_READ, PROT_WRITE, mmap
from pathlib import Path

import pytest
from pgo_agent.latency import Recorder
from pgo_agent.latency.histogram import Histogram
from pgo_agent.latency.recorder import StackNamer
from pgo_agent.latency.tick import Counts, RawStack, Tick, Wait
from pgo_agent.native import MemoryMaps, Recording, Stack, native_profile
from pgo_agent.native.perf_maps import PerfMaps
from pprof_proto.profile_pb2 import Profile

SIZE = 0x40
COUNTED = dict.fromkeys(Counts.NAMES, 0)


@pytest.fixture
def code() -> Iterator[int]:
    """Yield the address of memory of this process that holds code and is no file's."""
    protection = PROT_READ | PROT_WRITE | PROT_EXEC
    area = mmap(-1, PAGESIZE, flags=MAP_PRIVATE | MAP_ANONYMOUS, prot=protection)
    held = ctypes.c_char.from_buffer(area)
    yield ctypes.addressof(held)
    del held
    area.close()


@pytest.fixture
def perf_map() -> Iterator[Path]:
    """Yield the path at which this process has its names."""
    (number,) = re.findall(r"^NSpid:.*?(\d+)$", Path("/proc/self/status").read_text(), flags=re.MULTILINE)
    path = Path(f"/tmp/perf-{number}.map")  # noqa: S108 - where JIT compilers write it
    yield path
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)


def profile_of(maps: MemoryMaps, *stacks: tuple[int, ...]) -> Profile:
    """Return a profile of some stacks of this process, leaf first."""
    pid = os.getpid()
    frames = (maps.frames(pid, (), stack) for stack in stacks)
    samples = [(Stack("jit", pid, pid, each), 1, 1) for each in frames]
    return Profile.FromString(gzip.decompress(native_profile(Recording.from_samples(0, 1, 1, samples))))


def stacks_of(profile: Profile) -> list[list[str]]:
    """Return the stacks of a profile: names, or addresses where there are none."""
    names = {each.id: profile.string_table[each.name].decode() for each in profile.function}
    places = {
        each.id: names[each.line[0].function_id] if each.line else f"{each.address:#x}"
        for each in profile.location
    }
    return [[places[id_] for id_ in sample.location_id] for sample in profile.sample]


@pytest.mark.usefixtures("stand_ins")
def test_a_function_has_one_location_wherever_its_code_is(code: int, perf_map: Path) -> None:
    perf_map.write_text(f"{code:x} {SIZE:x} JS:*hot /app/shop.js:1:13\n0x{code + SIZE:016x} 0x20 int A.b()\n")
    maps = MemoryMaps()
    maps.read(os.getpid())
    hot, other, beyond = code + 8, code + SIZE + 8, code + SIZE + 0x30
    profile = profile_of(maps, (hot, other), (hot + 4, other + 4), (beyond, other))
    function = "JS:*hot /app/shop.js:1:13"
    assert stacks_of(profile) == [[function, "int A.b()"]] * 2 + [[hex(beyond), "int A.b()"]]
    assert [location.address for location in profile.location] == [0, 0, beyond]
    assert not profile.mapping


@pytest.mark.usefixtures("stand_ins")
def test_a_tracker_names_code_as_well(code: int, perf_map: Path) -> None:
    perf_map.write_text(f"{code:x} {SIZE:x} waits\n")
    user = (code + 8).to_bytes(8, "little").hex()
    raw = RawStack(os.getpid(), "jit", "", user)
    recorder = Recorder("offcpu")
    recorder.add_tick(Tick({Wait(raw, (), 3, None): (1, 7)}, {}, {}, COUNTED, Histogram(), ""))
    profile = Profile.FromString(gzip.decompress(recorder.profile()))
    assert stacks_of(profile) == [["waits"]]
    assert StackNamer().names_of_raw([raw]) == [["waits"]]
    perf_map.unlink()
    assert StackNamer().names_of_raw([raw]) == [[hex(code + 8)]]


def named(*addresses: int) -> dict[int, str]:
    """Return the names that the file of this process has."""
    maps = PerfMaps()
    maps.look(os.getpid())
    found = maps.of(os.getpid())
    assert found is not None
    return dict(found.names(addresses))


def test_the_newest_code_at_an_address_counts(perf_map: Path) -> None:
    perf_map.write_text("100 80 old\n150 10 older_neighbor\n140 20 new\n180 10 end")
    assert named(0x120, 0x155, 0x160, 0x17F, 0x180) == {
        0x120: "old",
        0x155: "new",
        0x160: "old",
        0x17F: "old",
    }  # a line without an end is still being written


def test_a_file_that_is_written_when_the_process_was_looked_at_is_read(perf_map: Path) -> None:
    maps = PerfMaps()
    maps.look(os.getpid())
    perf_map.write_text("100 80 late\n")
    found = maps.of(os.getpid())
    assert found is not None
    assert found.names([0x110]) == {0x110: "late"}


def _links(path: Path) -> None:
    (target := path.with_suffix(".target")).write_text("100 80 stolen\n")
    path.symlink_to(target)


def _zeros(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


_HOSTILE: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
    "a link": _links,
    "zeros": _zeros,
    "one long line": lambda path: path.write_bytes(b"100 80 " + b"x" * (3 << 20)),
    "no numbers": lambda path: path.write_text("-1 80 x\n100 -80 x\n100  80 x\n100 80\n100 80 \n" * 1000),
    "huge numbers": lambda path: path.write_text(f"{'f' * 17} 1 x\n0 {'f' * 17} x\n"),
}


@pytest.mark.parametrize("made", _HOSTILE)
def test_a_hostile_file_has_no_names(made: str, perf_map: Path) -> None:
    try:
        _HOSTILE[made](perf_map)
        assert named(0x110) == {}
    finally:
        perf_map.with_suffix(".target").unlink(missing_ok=True)


def test_a_file_of_anything_gives_at_most_short_texts(perf_map: Path) -> None:
    perf_map.write_bytes(b"0 ffffffffffffffff \xff\x1b[31m" + b"x" * 5000 + b"\n\0\n" * 100)
    (name,) = named(0x110).values()
    assert len(name) <= 512


def test_of_a_huge_file_the_end_is_read(perf_map: Path) -> None:
    line = b"200 80 " + b"x" * 1016 + b"\n"
    with perf_map.open("wb") as file:
        file.write(b"100 80 first\n")
        file.writelines(line for _ in range(33 << 10))
        file.write(b"300 80 last\n")
    assert named(0x110, 0x310) == {0x310: "last"}


@pytest.mark.system("root")
def test_a_file_of_another_user_isnt_read(perf_map: Path) -> None:
    perf_map.write_text("100 80 planted\n")
    os.chown(perf_map, 12345, 12345)
    assert named(0x110) == {}


def test_descriptors_are_closed_when_nothing_needs_them(perf_map: Path) -> None:
    perf_map.write_text("100 80 named\n")
    before = len([*Path("/proc/self/fd").iterdir()])
    maps = PerfMaps()
    for _ in range(100):
        maps.look(os.getpid())
    assert len([*Path("/proc/self/fd").iterdir()]) == before + 1
    del maps
    assert len([*Path("/proc/self/fd").iterdir()]) == before
