"""Joined start lines: eBPF profiles get the first lines of functions from Go profiles of the same build."""

from __future__ import annotations

import gzip
import itertools
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_collector.blobs.copies import Copies
from pgo_collector.blobs.folder import FolderStorage
from pgo_collector.engine.pushes import PushedProfile, Unpacked
from pgo_collector.engine.start_lines import (
    Additions,
    Function,
    KnownFunction,
    StartLines,
    Tables,
    learn_start_lines,
)
from pgo_collector.routes.otlp import joining
from pgo_collector.routes.otlp.unpack import ExportOptions, unpack_export
from pgo_collector.routes.push.naming import Sender
from pprof_merge import Limits
from pprof_proto.profile_pb2 import Profile

from tests.collector.edits import edited
from tests.collector.exporting import Export, Frame, assert_exported, export
from tests.collector.pushing import stored
from tests.faults.stacks import EPOCH, profile_of
from tests.server import Server

BUILD = "0123456789abcdef"
# Well after anything was learned.
LATER = 86_400 * 10**9
# Where the first functions of a Go profile, and of symbols, have a call: 0x1001 in the file, and the next.
ADDRESSES = {"main.f": 0x401001, "main.g": 0x401002}


def go_profile(**starts: int) -> bytes:
    """Return a gzipped CPU profile of BUILD with functions that begin at these lines of /src/main.go.

    Each calls the next on its second line, and the last the first.
    """

    def edit(profile: Profile) -> None:
        def string(text: str) -> int:
            profile.string_table.append(text.encode())
            return len(profile.string_table) - 1

        profile.mapping[0].build_id = string(BUILD)
        del profile.function[:], profile.location[:], profile.sample[:]
        for id_, (name, start) in enumerate(starts.items(), 1):
            called = string(f"main.{name}")
            profile.function.add(
                id=id_, name=called, system_name=called, filename=string("/src/main.go"), start_line=start
            )
            profile.location.add(id=id_, mapping_id=1, address=0x401000 + id_).line.add(
                function_id=id_, line=start + 1
            )
            stack = [*range(id_, len(starts) + 1), *range(1, id_)]
            profile.sample.add(location_id=stack, value=[1, 10_000_000])

    return gzip.compress(edited(profile_of("a"), edit), mtime=0)


def ebpf(service: str, stack: list[Frame], taken: int, build: str = BUILD) -> bytes:
    request = Export()
    request.resource({"service.name": service})
    request.profile().time_unix_nano = taken
    request.sample(stack, timestamps=2, mapping=request.mapping("main", build), addresses=ADDRESSES)
    return request.body


def table(tmp_path: Path, since: int, **starts: int) -> StartLines:
    """Return the table of a build whose functions begin at these lines of /a.go."""
    found = {BUILD: {name.replace("_", "."): ("/a.go", line) for name, line in starts.items()}}
    additions = Additions(FolderStorage(tmp_path, tmp_path), "s", 100, since)
    (made,) = additions.add(found, is_uploaded=False)
    return StartLines(tmp_path / "s" / f"{made}.sqlite3")


def learned(tmp_path: Path, since: int, *, most: int = 100, **starts: int) -> bool:
    """Learn from a Go profile; return whether anything was new."""
    blob = tmp_path / f"{since}.pb.gz"
    blob.write_bytes(go_profile(**starts))
    storage = FolderStorage(tmp_path, tmp_path)
    grown = learn_start_lines(storage, [blob.name, "gone"], Additions(storage, "s", most, since))
    return bool(grown)


def read(tmp_path: Path, service: str, build: str) -> StartLines | None:
    tables = Tables(FolderStorage(tmp_path, tmp_path), Copies(tmp_path, 0))
    return tables.read(service, build, tables.versions(service, 0))


def find(known: StartLines, name: str, file: str, line: int, taken: int) -> KnownFunction | None:
    """Return the function that a frame of a profile taken at a time is in; None if that isn't certain."""
    found = known.find(name, file)
    return found.known if found is not None and found.has(line, taken) else None


@pytest.mark.parametrize(
    ("frame", "is_found"),
    [
        (("main.f", "/a.go", 12), True),
        (("main.f", "/a.go", 10), True),
        (("main.f", "/a.go", 9), False),  # of what was inlined from above
        (("main.f", "/b.go", 12), False),  # of what was inlined from another file
        (("main.f", "", 12), False),
        (("main.f", "/a.go", 31), False),  # of what was inlined from below
        (("main.h", "/a.go", 31), True),
        (("main.h", "/a.go", 10**18), True),
        (("main.k", "/a.go", 31), False),
    ],
)
def test_a_frame_is_joined_only_if_its_line_is_in_the_function(
    tmp_path: Path, frame: Frame, *, is_found: bool
) -> None:
    known = table(tmp_path, 5, main_f=10, main_h=30)
    assert (find(known, *frame, 5) is not None) == is_found
    assert find(known, *frame, 4) is None


def test_a_closure_may_begin_before_a_line_of_its_function(tmp_path: Path) -> None:
    functions = {"main.f": 10, "main.f.func1": 12, "main.f-range1": 14, "main.g": 20, "main.ff": 30}
    known = table(tmp_path, 0, **functions)
    found = find(known, "main.f", "/a.go", 16, 0)
    assert found is not None
    assert found.start_line == 10
    assert find(known, "main.f.func1", "/a.go", 13, 0) is not None
    assert find(known, "main.f.func1", "/a.go", 16, 0) is None  # it would be in the other one
    assert find(known, "main.f", "/a.go", 21, 0) is None


# Closures of closures, names that only begin like a closure's, and several functions in one line.
_NAMES = st.text("ab.-!/", min_size=1, max_size=5).map(lambda rest: f"f{rest}")
_PLACES = st.tuples(st.sampled_from(["/a.go", "/b.go"]), st.integers(1, 9))
_BATCHES = st.lists(
    st.tuples(st.integers(0, 5), st.dictionaries(_NAMES, _PLACES, max_size=12)), min_size=1, max_size=5
)


def find_plainly(
    functions: Mapping[str, tuple[str, int, int]], name: str, file: str, line: int, taken: int
) -> int | None:
    """Return the start of the function, by looking at all functions of a table that are known by then."""
    known = {key: (path, start) for key, (path, start, since) in functions.items() if since <= taken}
    path, start = known.get(name, ("", 0))
    if path != file or start > line:
        return None
    for other, (of_other, begin) in known.items():
        is_closure = other.startswith((f"{name}.", f"{name}-"))
        if of_other == file and start < begin <= line and not is_closure:
            return None
    return start


@settings(deadline=None)
@given(_BATCHES)
def test_an_end_is_where_looking_at_all_functions_finds_it(
    batches: list[tuple[int, dict[str, tuple[str, int]]]],
) -> None:
    functions: dict[str, tuple[str, int, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        for since, starts in batches:
            Additions(FolderStorage(path, path), "s", 100, since).add({BUILD: starts}, is_uploaded=False)
            for name, place in starts.items():
                functions.setdefault(name, (*place, since))
        for known in map(StartLines, path.glob("s/*.sqlite3")):
            frames = itertools.product(functions, ("/a.go", "/b.go"), range(11), range(7))
            for name, file, line, taken in frames:
                found = find(known, name, file, line, taken)
                plain = find_plainly(functions, name, file, line, taken)
                assert (found and found.start_line) == plain, (name, file, line, taken)


def test_what_a_look_up_reads_does_not_grow_with_closures(tmp_path: Path) -> None:
    """A function of thousands of closures is as quick to find as one of none."""
    starts = {"main.f": ("/a.go", 1), "main.g": ("/a.go", 9000)}
    starts |= {f"main.f.func{number}": ("/a.go", 2 + number) for number in range(5000)}
    (made,) = Additions(FolderStorage(tmp_path, tmp_path), "s", 9000, 0).add(
        {BUILD: starts}, is_uploaded=True
    )
    known = StartLines(tmp_path / "s" / f"{made}.sqlite3")
    assert find(known, "main.f", "/a.go", 8999, 0) == KnownFunction(1, is_uploaded=True)
    assert find(known, "main.f", "/a.go", 9000, 0) is None
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    known._database.set_progress_handler(count, 1)  # noqa: SLF001 - counts the steps of SQLite's machine
    for name in ("main.f", "main.g"):
        steps = 0
        assert known.find(name, "/a.go") is not None
        assert 0 < steps < 100, name


def unpacked(body: bytes, folder: Path) -> list[Unpacked]:
    """Return the profiles of an export, read with the tables in a folder."""
    tables = Tables(FolderStorage(folder, folder), Copies(folder, 0))
    options = ExportOptions(
        is_json=False,
        most_profiles=100,
        labels=frozenset(),
        sample_labels=frozenset(),
        sender=Sender(),
        start_lines=tables,
    )
    return unpack_export(options, body, Limits())


def test_a_function_is_looked_up_once_in_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(tmp_path, 0, main_f=10)
    looked_up: list[str] = []
    plain = StartLines.find

    def noted(self: StartLines, name: str, file: str) -> Function | None:
        looked_up.append(name)
        return plain(self, name, file)

    monkeypatch.setattr(StartLines, "find", noted)
    request = Export()
    request.resource({"service.name": "s"})
    for _ in range(20):
        request.profile().time_unix_nano = LATER
        for line in range(10, 30):
            frame = "main.f", "/a.go", line
            request.sample([frame], timestamps=1, mapping=request.mapping("main", BUILD))
    assert len(unpacked(request.body, tmp_path)) == 20
    assert looked_up == ["main.f"]


def test_a_services_tables_are_listed_up_to_twice_in_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a bucket, each time is a request; and profiles may say that they were taken at any time."""
    table(tmp_path, 0, main_f=10)
    listed: list[str] = []
    plain = FolderStorage.versions

    def noted(self: FolderStorage, folder: str, moment: int) -> dict[str, str]:
        listed.append(folder)
        return plain(self, folder, moment)

    monkeypatch.setattr(FolderStorage, "versions", noted)
    request = Export()
    request.resource({"service.name": "s"})
    mapping = request.mapping("main", BUILD)
    now = time.time_ns()
    for number in range(40):
        request.profile().time_unix_nano = now + (number - 20) * LATER
        request.sample([("main.f", "/a.go", 10)], timestamps=1, mapping=mapping)
    profiles = unpacked(request.body, tmp_path)
    assert all(b"main.f" in profile.content for profile in profiles if isinstance(profile, PushedProfile))
    assert listed == ["s", "s"]


def test_a_request_looks_up_so_many_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Profiles beyond the bound get no start lines, and are stored like any other."""
    monkeypatch.setattr(joining, "_MOST_STEPS", 1000)
    table(tmp_path, 0, main_f=10)
    looked_up: list[str] = []
    monkeypatch.setattr(StartLines, "find", lambda _self, name, _file: looked_up.append(name))
    request = Export()
    request.resource({"service.name": "s"})
    for number in range(5):
        request.profile().time_unix_nano = LATER
        for line in range(200):
            frame = f"main.f{number}.{line}", "/a.go", 1
            request.sample([frame], timestamps=1, mapping=request.mapping("main", BUILD))
    profiles = unpacked(request.body, tmp_path)
    assert [type(profile) for profile in profiles] == [PushedProfile] * 5
    assert 0 < len(looked_up) < 500


def test_look_ups_are_bounded_by_the_size_before_it_is_inflated(tmp_path: Path) -> None:
    table(tmp_path, 0, main_f=10)
    request = Export()
    request.resource({"service.name": "s"})
    mapping = request.mapping("main", BUILD)
    for _ in range(100):
        request.profile().time_unix_nano = LATER
        for line in range(10, 210):
            frame = "main.f", "/a.go", line
            request.sample([frame], timestamps=1, mapping=mapping)

    def joined(body: bytes) -> int:
        profiles = [profile for profile in unpacked(body, tmp_path) if isinstance(profile, PushedProfile)]
        assert len(profiles) == 100
        read = [Profile.FromString(profile.content) for profile in profiles]
        return sum(any(function.start_line for function in profile.function) for profile in read)

    assert joined(request.body) == 100
    packed = gzip.compress(request.body)
    assert 0 < joined(packed) <= (10_000 + len(packed)) // 400 < 100


def test_a_table_only_grows_and_never_changes(tmp_path: Path) -> None:
    assert learned(tmp_path, 1, f=10)
    assert learned(tmp_path, 2, f=11, g=20)
    assert not learned(tmp_path, 3, g=20)
    assert not learned(tmp_path, 4, most=2, h=30)
    known = read(tmp_path, "s", BUILD)
    assert known is not None
    assert find(known, "main.f", "/src/main.go", 12, 1) == KnownFunction(10, is_uploaded=False)
    assert find(known, "main.g", "/src/main.go", 21, 2) == KnownFunction(20, is_uploaded=False)
    assert find(known, "main.g", "/src/main.go", 21, 1) is None
    assert find(known, "main.h", "/src/main.go", 31, 4) is None
    assert read(tmp_path, "s", "another") is None
    assert read(tmp_path, "t", BUILD) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"SQLite format 3\0" + b"\1" * 5000])
def test_a_damaged_table_is_none_and_is_made_anew(tmp_path: Path, content: bytes) -> None:
    learned(tmp_path, 0, f=10)
    (target,) = (tmp_path / "s").iterdir()
    target.write_bytes(content)
    assert read(tmp_path, "s", BUILD) is None
    assert learned(tmp_path, 1, g=10)
    assert read(tmp_path, "s", BUILD) is not None


def test_ebpf_profiles_of_a_known_build_are_for_builds(tmp_path: Path) -> None:
    stack = [("main.f", "/src/main.go", 12), ("main.g", "/src/main.go", 24)]
    kernel = ("do_syscall_64", "", 0)
    with Server(tmp_path, {"PGOF_JOIN_SECONDS": "0.2"}) as server:
        for service in ("alone", "shop"):  # from one comes no profile by eBPF, so nothing is learned for it
            assert server.submit(go_profile(f=10, g=20), query={"service": service}).status_code == 204
        assert_exported(export(server, ebpf("shop", stack, EPOCH)))  # before anything was known
        assert stored(server, "shop") == [("cpu", {}), ("process_cpu", {})]
        server.wait_for_log("start lines learned")
        later = time.time_ns() + LATER
        for body in (
            ebpf("shop", [kernel, *stack], later),
            ebpf("shop", [kernel, *stack], later),  # as a sender that lost the answer
            ebpf("shop", stack, later, build="another"),
            ebpf(
                "shop", [("main.k", "/src/main.go", 3), *[("main.l", "/src/main.go", 3)] * 2, stack[0]], later
            ),
            ebpf("other", stack, later),
        ):
            assert_exported(export(server, body))
        expected = [("cpu", {}), ("cpu", {"start_lines": "joined"}), *[("process_cpu", {})] * 3]
        assert stored(server, "shop") == sorted(expected, key=str)
        assert stored(server, "other") == [("process_cpu", {})]
        assert [path.name for path in server.area("start_lines").iterdir()] == ["shop"]
        merge = server.merge(query={"service": "shop", "labels": "start_lines=joined"})
        profile = Profile.FromString(gzip.decompress(merge.content))
        texts = profile.string_table
        assert {
            (texts[each.name], texts[each.system_name], texts[each.filename], each.start_line)
            for each in profile.function
        } == {
            (b"main.f", b"main.f", b"/src/main.go", 10),
            (b"main.g", b"main.g", b"/src/main.go", 20),
            (b"do_syscall_64", b"", b"", 0),
        }
        # Callers are on the lines of their addresses, not on those that were sent.
        assert sorted(line.line for each in profile.location for line in each.line) == [0, 11, 21]
        report = server.ask("/v1/report", service="shop").json()
        assert report["kept_apart"]["profiles"] == 3
        # Two samples of four; their leaf is in the kernel, which has no start lines.
        sources = {"go_profiles": 0.5, "symbols": 0.0}
        assert report["joined"] == {
            "profiles": 1,
            "share": 0.5,
            "start_lines": 0.0,
            "resolved": 1.0,
            "sources": sources,
        }
        assert report["go"]["verdict"] == "used"
        server.restart()  # what was learned is on disk
        assert_exported(export(server, ebpf("shop", stack[:1], later + 1)))
        assert len([type_ for type_, _ in stored(server, "shop") if type_ == "cpu"]) == 3
