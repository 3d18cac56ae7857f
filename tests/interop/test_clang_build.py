"""The same loop for C: perf records, a collector merges, and clang builds the program again with that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pprof_merge import inflate
from pprof_proto.profile_pb2 import Line, Location, Profile

from tests.interop.curl import Client
from tests.interop.native_program import SOURCE, clang, converted, needs_clang_and_perf, recorded, run
from tests.merge.command.installed import pprof_merge
from tests.server import Server

pytestmark = needs_clang_and_perf
RUNS = 3
HOT_CALL = "'next' inlined into 'string'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("native")


@pytest.fixture(scope="module")
def plain(folder: Path) -> Path:
    """The program, built without a profile; clang sees no reason to inline its hot call."""
    assert HOT_CALL not in clang("-Rpass=inline", "-o", folder / "plain")
    return folder / "plain"


@pytest.fixture(scope="module")
def profiles(plain: Path) -> list[bytes]:
    """Some runs of it under perf."""
    return [converted(recorded(plain, rounds=60)) for _ in range(RUNS)]


@pytest.fixture(scope="module")
def fleet(folder: Path, profiles: list[bytes]) -> Iterator[Client]:
    """curl, to a collector that has the profiles."""
    with Server(folder / "server") as server:
        fleet = Client(server.base_url, server, folder)
        assert {fleet.submit(profile).status for profile in profiles} == {204}
        yield fleet


@pytest.fixture(scope="module")
def sample_profile(folder: Path, fleet: Client) -> Path:
    """The merge for clang, as a pipeline fetches it."""
    answer = fleet.curl("/v1/merge?format=llvm", key=fleet.server.merge_key)
    assert answer.status == 200
    file = folder / "sample.prof"
    file.write_bytes(answer.body)
    return file


def parsed(profile: bytes) -> Profile:
    return Profile.FromString(inflate(profile))


def samples_of(profile: bytes) -> int:
    return sum(sample.value[0] for sample in parsed(profile).sample)


def test_a_recording_becomes_a_profile_with_all_that_pprof_has_fields_for(
    plain: Path, profiles: list[bytes]
) -> None:
    profile = parsed(profiles[0])
    text = profile.string_table
    assert [(text[of.type], text[of.unit]) for of in profile.sample_type] == [
        (b"samples", b"count"),
        (b"cpu", b"nanoseconds"),
    ]
    assert profile.period == 1_000_000_000 // 4999
    counted, nanoseconds = (sum(sample.value[of] for sample in profile.sample) for of in (0, 1))
    assert nanoseconds == pytest.approx(counted * profile.period, rel=0.01)
    assert 0 < nanoseconds < 1.2 * profile.duration_nanos
    assert {text[label.key] for label in profile.sample[0].label} == {b"pid", b"comm", b"thread"}

    (mapping,) = (of for of in profile.mapping if text[of.filename] == bytes(plain))
    assert mapping == profile.mapping[0]
    assert text[mapping.build_id].decode() in run("readelf", "--notes", plain)
    assert mapping.has_functions and mapping.has_line_numbers and mapping.has_inline_frames  # noqa: PT018
    functions = {function.id: function for function in profile.function}
    locations = {location.id: location for location in profile.location}

    def names(location: Location) -> list[bytes]:
        return [text[functions[line.function_id].system_name] for line in location.line]

    (start_line,) = {of.start_line for of in profile.function if text[of.system_name] == b"next"}
    assert SOURCE.read_text().split("\n")[start_line - 1] == "static int32_t next(Reader *reader)"
    own = [location for location in profile.location if location.mapping_id == mapping.id]
    assert all(mapping.memory_start <= of.address < mapping.memory_limit for of in own)
    inlined = [names(location) for location in own if len(location.line) > 1]
    assert [b"skip_space", b"value"] in inlined
    # What perf knows no name of has no line.
    stacks = [
        [name for id_ in sample.location_id for name in names(locations[id_])[-1:]]
        for sample in profile.sample
    ]
    assert any(stack[:2] == [b"next", b"string"] for stack in stacks)


def lines_of(binary: Path, profile: Profile) -> set[int]:
    """The lines at the addresses in a binary; 0 for those that aren't known."""
    (mapping,) = (of.id for of in profile.mapping if profile.string_table[of.filename] == bytes(binary))
    own = [location for location in profile.location if location.mapping_id == mapping]
    return {line.line for location in own for line in location.line or (Line(),)}


def test_a_binary_that_was_built_anew_since_gives_no_lines(tmp_path: Path) -> None:
    binary = tmp_path / "json"
    clang("-o", binary)
    recording = recorded(binary, rounds=3)
    assert len(lines_of(binary, parsed(converted(recording)))) > 1
    clang("-O1", "-o", binary)
    assert lines_of(binary, parsed(converted(recording))) == {0}


def test_the_merge_has_all_samples(fleet: Client, profiles: list[bytes]) -> None:
    assert samples_of(fleet.merge().body) == sum(map(samples_of, profiles))


def test_clang_builds_another_program_with_the_merge(folder: Path, plain: Path, sample_profile: Path) -> None:
    guided, remarks = folder / "guided", ("-Rpass=inline", "-Rpass-analysis=sample-profile")
    said = clang(f"-fprofile-sample-use={sample_profile}", *remarks, "-o", guided)
    assert HOT_CALL in said
    assert run(guided, "2") == run(plain, "2")

    # clang found the counts of `next` where they were written: at lines counted from its first.
    written = re.search(r"^next:.*\n((?: \d+: \d+\n)+)", sample_profile.read_text(), flags=re.MULTILINE)
    assert written
    counts = set(re.findall(r" (\d+): (\d+)\n", written[1]))
    first = SOURCE.read_text().split("\n").index("static int32_t next(Reader *reader)") + 1
    applied = {
        (offset, count)
        for line, count, offset in re.findall(
            r":(\d+):\d+: remark: Applied (\d+) samples.*offset: (\d+)", said
        )
        if int(line) == first + int(offset)
    }
    # Lines that were sampled once or twice may be gone from the optimised code.
    assert len(applied & counts) >= len(counts) / 3


def test_llvm_indexes_the_merge(folder: Path, sample_profile: Path) -> None:
    indexed = folder / "indexed.prof"
    run("llvm-profdata", "merge", "--sample", sample_profile, "-o", indexed)
    assert HOT_CALL in clang(f"-fprofile-sample-use={indexed}", "-Rpass=inline", "-o", folder / "indexed")
    shown = run("llvm-profdata", "show", "--sample", "--function=next", indexed)
    total = re.search(r"^next:(\d+):0$", sample_profile.read_text(), flags=re.MULTILINE)
    assert total
    assert f"Function: next: {total[1]}, 0, " in shown


def test_with_the_program_uploaded_the_merge_is_that_of_the_command(
    tmp_path: Path, plain: Path, profiles: list[bytes]
) -> None:
    with Server(tmp_path / "server") as server:
        fleet = Client(server.base_url, server, tmp_path)
        assert {fleet.submit(profile).status for profile in profiles} == {204}
        without = fleet.curl("/v1/merge?format=llvm", key=server.merge_key)
        body = ("--data-binary", f"@{plain}")
        assert fleet.curl("/v1/binaries", *body, key=server.submit_key).status == 200
        answer = fleet.curl("/v1/merge?format=llvm", key=server.merge_key)
        assert answer.status == 200
        assert answer.headers["ETag"] != without.headers["ETag"]
        none = fleet.curl("/v1/merge?format=llvm&binary=none", key=server.merge_key)
        assert none.body == without.body
    files = [tmp_path / f"{number}.pb.gz" for number in range(len(profiles))]
    for file, profile in zip(files, profiles, strict=True):
        file.write_bytes(profile)
    command: tuple[str | Path, ...] = ("--format", "llvm", "--binary", plain, *files)
    assert pprof_merge(*command).stdout == answer.body
    sample_profile, guided = tmp_path / "sample.prof", tmp_path / "guided"
    sample_profile.write_bytes(answer.body)
    flags = ("-mllvm", "-sample-profile-use-profi", "-Rpass=inline")
    assert HOT_CALL in clang(f"-fprofile-sample-use={sample_profile}", *flags, "-o", guided)
    assert run(guided, "2") == run(plain, "2")
