"""Uploaded symbols: eBPF profiles get start lines from them where no Go profile of the build told any."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from pathlib import Path

import pytest
from pgo_collector.blobs.folder import FolderStorage
from pgo_collector.engine.start_lines import Additions, add_symbols
from pprof_merge import Limits
from pprof_proto.profile_pb2 import Profile

from tests.collector.edits import edited
from tests.collector.engine.test_joining import ADDRESSES, BUILD, LATER, ebpf, go_profile
from tests.collector.exporting import Export, assert_exported, export
from tests.collector.pushing import stored
from tests.constants import SYMBOLS_BUILDS
from tests.cpu_meter import cpu_seconds_for
from tests.faults.stacks import profile_of
from tests.processes import stat_of
from tests.server import Server, bearer

STACK = [("main.f", "/src/main.go", 12), ("main.g", "/src/main.go", 24)]
# A backup is restored into a data folder.
LOCAL = {"PGOF_STORAGE": ""}
BOUNDS = {"PGOF_SYMBOLS_BYTES": "5000", "PGOF_SYMBOLS_FUNCTIONS": "10", SYMBOLS_BUILDS: "3"}


def symbols(*builds: str, **starts: int) -> bytes:
    """Return symbols, as bare protobuf, of a program whose functions begin at these lines of /src/main.go.

    The one named g has a call on its second line.
    """
    made = Profile(string_table=[b"", b"/src/main.go"])
    for id_, build in enumerate(builds, 1):
        made.mapping.add(id=id_, build_id=len(made.string_table))
        made.string_table.append(build.encode())
    for id_, (name, line) in enumerate(starts.items(), 1):
        made.function.add(id=id_, name=len(made.string_table), filename=1, start_line=line)
        made.string_table.append(f"main.{name}".encode())
        if name == "g":
            address = ADDRESSES["main.g"] - 0x400000
            made.location.add(id=id_, mapping_id=1, address=address).line.add(function_id=id_, line=line + 1)
    return made.SerializeToString()


def upload(
    server: Server, content: bytes, service: str = "shop", key: str = Server.submit_key
) -> dict[str, object]:
    """Upload symbols; return the answer, with its status."""
    answer = server.client.post(
        "/v1/symbols", params={"service": service}, content=content, headers=bearer(key)
    )
    if answer.status_code != 200:
        assert answer.headers["Content-Type"] == "application/problem+json"
    return {"status": answer.status_code, **answer.json()}


def test_ebpf_profiles_get_start_lines_from_symbols(tmp_path: Path) -> None:
    with Server(tmp_path, {"PGOF_JOIN_SECONDS": "0.2"}) as server:
        began = time.time()
        answer = upload(server, gzip.compress(symbols(BUILD, "go/build", f=10, g=20)))
        counts = answer.pop("from")
        assert answer == {"status": 200, "service": "shop", "build_ids": [BUILD, "go/build"], "functions": 2}
        assert isinstance(counts, str)
        assert counts > time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began))
        later = time.time_ns() + LATER
        assert_exported(export(server, ebpf("shop", STACK, time.time_ns())))  # before they count
        assert_exported(export(server, ebpf("other", STACK, later)))
        assert_exported(export(server, ebpf("shop", STACK, later)))
        server.restart()
        assert_exported(export(server, ebpf("shop", STACK, later)))  # as a sender that lost the answer
        assert_exported(export(server, ebpf("shop", STACK, later + 1, build="go/build")))
        by_symbols = ("cpu", {"start_lines": "symbols"})
        assert stored(server, "shop") == [by_symbols, by_symbols, ("process_cpu", {})]
        assert stored(server, "other") == [("process_cpu", {})]
        report = server.ask("/v1/report", service="shop").json()
        sources = {"go_profiles": 0.0, "symbols": 1.0}
        assert report["joined"] == {
            "profiles": 2,
            "share": 1.0,
            "start_lines": 1.0,
            "resolved": 1.0,
            "sources": sources,
        }


@pytest.mark.sqlite
def test_a_backup_and_a_restore_hold_the_symbols(tmp_path: Path) -> None:
    with Server(tmp_path / "own") as server, Server(tmp_path / "other", LOCAL) as other:
        assert upload(server, symbols(BUILD, f=10, g=20))["status"] == 200
        learned = tables_of(server)
        assert learned
        copied = server.run("backup", str(tmp_path / "backup"))
        assert copied.returncode == 0, copied.stderr
        other.stop()
        shutil.rmtree(other.data)
        restored = other.run("restore", str(tmp_path / "backup"))
        assert restored.returncode == 0, restored.stderr
        assert tables_of(other) == learned
        other.start()
        assert_exported(export(other, ebpf("shop", STACK, time.time_ns() + LATER)))
        assert stored(other, "shop") == [("cpu", {"start_lines": "symbols"})]


def test_locations_of_a_function_of_many_closures_cost_little(tmp_path: Path) -> None:
    """Each location read the rows of all closures once: 18 exports of 8 KB kept the workers for minutes."""
    closures = {f"f.func{number}": 1001 + number for number in range(998)}
    with Server(tmp_path, {"PGOF_JOIN_SECONDS": "0.2"}) as server:
        assert upload(server, symbols(BUILD, f=1000, **closures, g=100_000))["status"] == 200
        request = Export()
        request.resource({"service.name": "shop"})
        profile, mapping = request.profile(), request.mapping("shop", BUILD)
        for line in range(900):
            request.sample([("main.f", "/src/main.go", 3000 + line)], timestamps=1, mapping=mapping)
        before, later = cpu_seconds(server), time.time_ns() + LATER
        for number in range(18):
            profile.time_unix_nano = later + number
            content = gzip.compress(request.body)
            assert len(content) < 8192
            assert_exported(export(server, content, Content_Encoding="gzip"))
        assert cpu_seconds(server) - before <= cpu_seconds_for(18 * 0.2)
        assert stored(server, "shop") == [("cpu", {"start_lines": "symbols"})] * 18


def test_long_names_of_many_functions_cost_little(tmp_path: Path) -> None:
    """Each function read its name and file again, also where they are those of all others."""
    long = b"n" * 32_000
    made = Profile(string_table=[b"", BUILD.encode(), long])
    made.mapping.add(id=1, build_id=1)
    for id_ in range(1, 120_001):
        made.function.add(id=id_, name=2, filename=2, start_line=1)
    body = tmp_path / "body"
    body.write_bytes(made.SerializeToString())
    additions = Additions(FolderStorage(tmp_path / "tables", tmp_path), "shop", 300_000, 1)
    before = time.process_time()
    assert add_symbols(body, additions, Limits()).functions == 1
    assert time.process_time() - before <= cpu_seconds_for(0.5)


def cpu_seconds(server: Server) -> float:
    """Return the CPU time that a server and its workers have taken."""
    ticks = sum(sum(map(int, stat_of(pid)[11:13])) for pid in (server.process.pid, *server.descendants()))
    return ticks / os.sysconf("SC_CLK_TCK")


def tables_of(server: Server) -> dict[str, bytes]:
    """Return the tables of start lines in a data folder."""
    folder = server.area("start_lines")
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_go_profiles_and_symbols_add_to_each_other(tmp_path: Path) -> None:
    with Server(tmp_path, {"PGOF_JOIN_SECONDS": "0.2"}) as server:
        assert server.submit(go_profile(f=10), query={"service": "shop"}).status_code == 204
        assert_exported(export(server, ebpf("shop", STACK, 1)))
        server.wait_for_log("start lines learned")
        assert upload(server, symbols(BUILD, f=11, g=20))["status"] == 200
        later = time.time_ns() + LATER
        assert_exported(export(server, ebpf("shop", STACK, later)))
        assert_exported(export(server, ebpf("shop", STACK[:1], later)))
        labels = [labels.get("start_lines", "") for type_, labels in stored(server, "shop") if type_ == "cpu"]
        assert sorted(labels) == ["", "joined", "symbols"]
        merge = server.merge(query={"service": "shop", "labels": "start_lines=symbols"})
        profile = Profile.FromString(gzip.decompress(merge.content))
        assert sorted(each.start_line for each in profile.function) == [
            10,
            20,
        ]  # the first that is told counts
        report = server.ask("/v1/report", service="shop").json()
        assert report["joined"]["sources"] == {
            "go_profiles": pytest.approx(0.4),
            "symbols": pytest.approx(0.4),
        }


def test_symbols_are_bounded_and_refused_with_the_settings_name(tmp_path: Path) -> None:
    with Server(tmp_path, BOUNDS) as server:
        for content, status, detail in (
            (b"", 400, "the body is empty; send a pprof profile with a program's functions"),
            (b"\x0b" * 100, 400, "not symbols: "),
            (gzip.compress(b"\x0b" * 100), 400, "not symbols: "),
            (symbols(f=10), 400, "the symbols have 0 build ids; give the program's"),
            (symbols(*"abcdefghi", f=10), 400, "the symbols have 9 build ids; give the program's"),
            (symbols("b" * 201, f=10), 400, "the symbols have a build id of more than 200 letters"),
            (symbols(BUILD), 400, "no function of the symbols has a name, a file and a start line"),
            (symbols(BUILD, f=0), 400, "no function of the symbols has a name, a file and a start line"),
            (symbols(BUILD, f=-5), 400, "no function of the symbols has a name, a file and a start line"),
            (profile_of("a"), 400, "the symbols have 0 build ids"),
            (
                bytes(5001),
                413,
                "the body is larger than 5,000 bytes (PGOF_MAX_INFLATED_BYTES or PGOF_SYMBOLS_BYTES)",
            ),
            (
                gzip.compress(bytes(50_000)),
                413,
                "the symbols are larger than 5,000 bytes (PGOF_MAX_INFLATED_BYTES or PGOF_SYMBOLS_BYTES)",
            ),
            (
                symbols(BUILD, **{f"f{number}": 10 for number in range(11)}),
                413,
                "the symbols have 11 functions; the limit is 10 (PGOF_MAX_INFLATED_BYTES or PGOF_SYMBOLS_F",
            ),
        ):
            answer = upload(server, content)
            assert (answer["status"], str(answer["detail"])[: len(detail)]) == (status, detail)
        assert upload(server, symbols(BUILD, f=1), key="another")["status"] == 403
        assert not [*server.area("start_lines").iterdir()]
        assert not [*(server.data / "incoming").iterdir()]
        for number in range(5):
            assert upload(server, symbols(f"build {number}", f=1))["status"] == 200
        assert len([*(server.area("start_lines") / "shop").iterdir()]) == 3


def test_a_profile_of_the_program_are_symbols_too(tmp_path: Path) -> None:
    def edit(profile: Profile) -> None:
        profile.string_table.append(b"of a program")
        profile.mapping[0].build_id = len(profile.string_table) - 1

    with Server(tmp_path) as server:
        answer = upload(server, edited(go_profile(f=10, g=20), edit))
        assert (answer["status"], answer["build_ids"], answer["functions"]) == (200, ["of a program"], 2)
