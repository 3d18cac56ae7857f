from __future__ import annotations

import gzip
import hashlib
import resource
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from isal import igzip
from pprof_proto.profile_pb2 import Profile

from tests.collector.edits import edited, taken_at
from tests.faults.stacks import profile_of, tally
from tests.server import Server, bearer


def open_files(server: Server) -> list[Path]:
    return sorted((server.data / "incoming").iterdir())


def wait_until_incoming(server: Server, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(open_files(server)) != count:
        assert time.monotonic() < deadline, open_files(server)
        time.sleep(0.02)


def connect(server: Server, *headers: str) -> socket.socket:
    """Return a connection that has sent the head of a submit."""
    address = urlsplit(server.base_url)
    connection = socket.create_connection((str(address.hostname), address.port or 0), timeout=60)
    head = ["POST /v1/submit HTTP/1.1", "Host: x", f"Authorization: Bearer {Server.submit_key}", *headers]
    connection.sendall("".join(f"{line}\r\n" for line in [*head, ""]).encode())
    return connection


def counted(server: Server, *names: str) -> dict[str, int]:
    """Return how often the merge counts each of these stacks; a shared collector has others too."""
    tallied = tally(server.merge().content)
    return {name: tallied[name] for name in names}


def test_submitted_profiles_are_in_the_merge(shared: Server) -> None:
    for name in ("first", "second"):
        answer = shared.submit(profile_of(name))
        assert (answer.status_code, answer.content) == (204, b"")
    assert counted(shared, "first", "second") == {"first": 1, "second": 1}


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "br", "Content-Type": "application/json"},
    ],
)
@pytest.mark.parametrize("bare", [False, True], ids=["gzip", "bare"])
def test_gzip_is_told_by_its_magic_bytes_alone(
    shared: Server, headers: dict[str, str], *, bare: bool
) -> None:
    name = f"{bare} {headers}"
    profile = gzip.decompress(profile_of(name)) if bare else profile_of(name)
    answer = shared.client.post("/v1/submit", content=profile, headers=headers | bearer(Server.submit_key))
    assert answer.status_code == 204
    assert counted(shared, name) == {name: 1}


def test_a_profile_is_one_however_it_is_packed_and_sent(shared: Server) -> None:
    profile = profile_of("resent")
    blobs = len(shared.blobs())
    bare = gzip.decompress(profile)
    for body in (profile, bare, profile, gzip.compress(bare, 1), iter([bare[:50], bare[50:]])):
        answer = shared.client.post("/v1/submit", content=body, headers=bearer(Server.submit_key))
        assert answer.status_code == 204
    assert counted(shared, "resent") == {"resent": 1}
    assert len(shared.blobs()) == blobs + 1


def test_gzip_inside_gzip_is_stored_as_gzip(shared: Server) -> None:
    """Some releases of dd-trace-go send it. Whoever reads the blob inflates it once."""
    service, profile = "packed-twice", profile_of("packed")
    body = gzip.compress(profile)
    assert shared.submit(body, query={"service": service}).status_code == 204
    (blob,) = (path for path in shared.blobs() if f"/{service}/" in str(path))
    assert gzip.decompress(blob.read_bytes()) == gzip.decompress(profile)
    assert shared.merge(query={"service": service}).status_code == 200
    refused = shared.submit(gzip.compress(body), query={"service": service})
    assert refused.status_code == 400
    assert "gzip inside gzip inside gzip" in refused.json()["detail"]


def test_gzip_with_flags_that_mean_nothing_is_stored_as_it_came(shared: Server) -> None:
    """The engine's inflate takes it, and so does Go's; zlib doesn't."""
    body = bytearray(profile_of("flags"))
    body[3] |= 0x20
    with pytest.raises(zlib.error):
        zlib.decompress(body, 31)
    assert shared.submit(bytes(body), query={"service": "flags"}).status_code == 204
    (blob,) = (path for path in shared.blobs() if "/flags/" in str(path))
    assert blob.read_bytes() == body
    assert shared.merge(query={"service": "flags"}).status_code == 200


def test_equal_stacks_of_another_time_are_another_profile(shared: Server) -> None:
    for time_nanos in (1, 2):
        shared.submit(taken_at(profile_of("another time"), time_nanos))
    assert counted(shared, "another time") == {"another time": 2}


@pytest.mark.folder
def test_a_blob_is_named_by_series_time_and_content(server: Server) -> None:
    profile = taken_at(profile_of("a"), 86_400 * 1_000_000_000 + 5)
    server.submit(profile)
    digest = hashlib.sha256(gzip.decompress(profile)).hexdigest()
    (blob,) = server.blobs()
    assert blob == server.data / f"blobs/default/cpu/1970-01-02/86400000000005-{digest}.pb.gz"
    assert blob.read_bytes() == profile
    assert not open_files(server)


def test_any_time_can_be_stored(server: Server) -> None:
    times = [0, -1, -(1 << 63), (1 << 63) - 1]
    for time_nanos in times:
        assert server.submit(taken_at(profile_of("a"), time_nanos)).status_code == 204
    server.restart()
    assert tally(server.merge().content) == {"a": len(times)}
    assert not server.events("unknown file ignored")


def test_services_are_kept_apart(tmp_path: Path) -> None:
    for service in ("shop", "mail"):
        with Server(tmp_path, {"PGOF_DEFAULT_SERVICE": service}) as server:
            assert server.merge().status_code == 404
            for name in ("a", "b"):
                server.submit(profile_of(f"{service} {name}"))
            assert tally(server.combine().content) == {f"{service} a": 1, f"{service} b": 1}
            assert [path.parts[-4:-2] for path in server.blobs() if service in path.parts] == [
                (service, "cpu")
            ]


def test_sample_types_in_either_order_merge(shared: Server) -> None:
    names = {"plain": False, "swapped": True, "plain again": False}
    for name, swapped in names.items():
        assert shared.submit(profile_of(name, swapped=swapped)).status_code == 204
    assert counted(shared, *names) == dict.fromkeys(names, 1)


def test_a_profile_without_a_sample_is_taken(shared: Server) -> None:
    profile = edited(profile_of("a"), lambda parsed: parsed.ClearField("sample"))
    assert shared.submit(profile).status_code == 204
    assert shared.merge().status_code == 200


def with_one_type(number: int, *, doubled: bool = False) -> bytes:
    """Return a profile with one of the two sample types of a CPU profile, maybe twice."""

    def edit(profile: Profile) -> None:
        del profile.sample_type[1 - number]
        profile.sample_type.extend([profile.sample_type[0]] * doubled)
        for sample in profile.sample:
            sample.value[:] = [sample.value[number]] * (1 + doubled)

    return edited(profile_of("a"), edit)


@pytest.mark.parametrize("number", [0, 1], ids=["samples", "CPU time"])
def test_one_sample_type_that_the_compiler_takes_is_enough(shared: Server, number: int) -> None:
    service = f"only-{number}"
    assert shared.submit(with_one_type(number), query={"service": service}).status_code == 204
    measured = ("samples/count", "cpu/nanoseconds")[number]
    report = shared.ask("/v1/report", service=service).json()
    assert [*report["totals"]] == [measured]
    assert "sample type" not in report["go"]["reason"]
    assert shared.merge(query={"service": service, "format": "go"}).status_code == 200
    assert shared.ask("/v1/release", service=service).status_code == 200
    # Profiles of another kind can't be added to it: of as many, the first ones are in the merge.
    assert shared.submit(profile_of("b"), query={"service": service}).status_code == 204
    mixed = shared.merge(query={"service": service})
    assert "different sample types" in mixed.headers["PGO-Left-Out"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"hello", id="text"),
        pytest.param(b"\x1f\x8bhello", id="broken gzip"),
        pytest.param(gzip.compress(b""), id="gzip of nothing"),
        pytest.param(gzip.compress(b"hello"), id="gzip of text"),
        pytest.param(profile_of("a")[:-9], id="truncated"),
        pytest.param(profile_of("a", type_="wall"), id="other types"),
        pytest.param(
            edited(profile_of("a"), lambda parsed: parsed.ClearField("period_type")), id="other period"
        ),
        pytest.param(with_one_type(1, doubled=True), id="one type twice"),
    ],
)
def test_what_is_no_cpu_profile_is_refused_and_leaves_nothing(shared: Server, body: bytes) -> None:
    blobs = shared.blobs()
    answer = shared.submit(body)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert answer.json()["detail"]
    assert shared.blobs() == blobs
    assert not open_files(shared)


@pytest.mark.parametrize(
    ("sample_types", "meant"),
    [
        (("alloc_space", "inuse_space"), "type=heap or type=allocs"),
        (("contentions", "delay"), "type=block or type=mutex"),
        (("goroutine",), "type=goroutine"),
        (("samples", "wall"), "type=wall"),
        (("cpu",), "type=process_cpu"),
        (("cycles",), "its type, such as type=wall or type=other"),
    ],
)
def test_a_profile_without_its_type_is_told_the_type(
    shared: Server, sample_types: tuple[str, ...], meant: str
) -> None:
    answer = shared.submit(_measuring(*sample_types))
    assert answer.status_code == 400
    assert answer.json()["detail"].endswith(f"send it with {meant}")


def _measuring(*sample_types: str, unit: str = "") -> bytes:
    """Return a profile that has these sample types and no samples."""

    def edit(profile: Profile) -> None:
        del profile.sample_type[:], profile.sample[:]
        for name in sample_types:
            profile.string_table.extend((name.encode(), unit.encode()))
            profile.sample_type.add(type=len(profile.string_table) - 2, unit=len(profile.string_table) - 1)

    return edited(profile_of("a"), edit)


def test_a_profile_without_a_period_is_told_so(shared: Server) -> None:
    """Async-profiler's converter writes none."""
    of_java = Profile.FromString(_measuring("cpu"))
    of_java.ClearField("period_type")
    body = of_java.SerializeToString()
    reason = "it has no period, which must be in cpu/nanoseconds; send it with type=process_cpu"
    assert shared.submit(body).json()["detail"] == f"not a CPU profile for builds: {reason}"
    stored = shared.submit(body, query={"service": "java", "type": "process_cpu"})
    assert stored.status_code == 204


@pytest.mark.parametrize("type_", ["heap", "allocs", "block", "mutex", "goroutine", "threadcreate"])
def test_what_is_certainly_another_profile_of_go_is_refused(shared: Server, type_: str) -> None:
    answer = shared.submit(profile_of("a"), query={"type": type_, "service": "mixed"})
    assert answer.status_code == 400
    measured = "it measures samples/count, cpu/nanoseconds; send it with type=cpu"
    assert answer.json()["detail"] == f"not a profile of the type {type_}: {measured}"
    of_waits = shared.submit(_measuring("contentions", "delay"), query={"type": type_, "service": "mixed"})
    assert of_waits.status_code == (204 if type_ in {"block", "mutex"} else 400)
    assert shared.submit(_measuring("objects", "space"), query={"type": type_}).status_code == 204


@pytest.mark.parametrize("type_", ["process_cpu", "wall", "other", "offcpu"])
def test_other_types_take_any_profile(shared: Server, type_: str) -> None:
    query = {"type": type_, "service": "mixed"}
    assert shared.submit(profile_of("a"), query=query).status_code == 204
    assert shared.submit(_measuring("contentions", "delay"), query=query).status_code == 204


def test_branch_records_are_of_their_type_only_and_it_has_nothing_else(shared: Server) -> None:
    """They would count as time where they don't belong: `pgo-agent convert --branches` makes them."""
    records, query = _measuring("ranges", "branches", unit="count"), {"service": "mixed"}
    answer = shared.submit(records, query=query)
    assert (answer.status_code, answer.json()["detail"][-28:]) == (400, "; send it with type=branches")
    assert "send it with type=branches" in shared.submit(records, query=query | {"type": "heap"}).text
    reversed_, event = (
        _measuring(*names, unit="count") for names in (("branches", "ranges"), ("samples", "branches"))
    )
    for other in (profile_of("a"), reversed_, event):
        answer = shared.submit(other, query=query | {"type": "branches"})
        assert answer.status_code == 400
        assert "not a profile of the type branches: it measures" in answer.json()["detail"]
        assert "pgo-agent convert --branches makes such" in answer.json()["detail"]
    assert shared.submit(records, query=query | {"type": "branches"}).status_code == 204


@pytest.mark.parametrize("packed", [bytes, gzip.compress], ids=["bare", "gzip"])
def test_a_body_in_another_format_is_told_what_it_is(
    shared: Server, packed: Callable[[bytes], bytes]
) -> None:
    answer = shared.submit(packed(b"goroutine profile: total 1\n1 @ 0x401000\n"))
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert answer.json() == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "detail": "not a profile: this is a profile in pprof's old text format; convert it with "
        "`go tool pprof -proto PROGRAM FILE > profile.pb.gz`, or fetch it without `debug=1`",
    }


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a collector with small limits."""
    limits = {"COMPRESSED_BYTES": "2000", "INFLATED_BYTES": "4000"}
    environment = {f"PGOF_MAX_{name}": value for name, value in limits.items()}
    with Server(tmp_path_factory.mktemp("strict"), environment) as server:
        yield server


def test_a_declared_length_over_the_limit_is_refused_before_reading(strict: Server) -> None:
    with connect(strict, "Content-Length: 4001") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_over_the_limit_is_refused(strict: Server) -> None:
    with connect(strict, "Transfer-Encoding: chunked") as connection:
        connection.sendall((b"3e8\r\n" + bytes(1000) + b"\r\n") * 5)  # and more to come
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
    wait_until_incoming(strict, 0)


def test_gzip_over_either_limit_is_refused(strict: Server) -> None:
    incompressible = b"".join(hashlib.sha256(bytes([part])).digest() for part in range(70))
    for body in (gzip.compress(incompressible), gzip.compress(bytes(4001))):
        assert strict.submit(body).status_code == 413


def test_a_body_that_comes_too_slowly_is_given_up(stopped: Server) -> None:
    stopped.environment["PGOF_BODY_TIMEOUT"] = "0.5"
    stopped.start()
    with connect(stopped, "Content-Length: 100") as connection:
        connection.sendall(b"x")
        answer = connection.recv(1000)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in answer.lower()
    wait_until_incoming(stopped, 0)


def test_what_a_client_leaves_when_it_goes_away_is_removed(shared: Server) -> None:
    with connect(shared, "Content-Length: 2000000") as connection:
        connection.sendall(bytes(1_000_000))
        wait_until_incoming(shared, 1)
    wait_until_incoming(shared, 0)


def resident_bytes(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    return 0


def test_a_gzip_bomb_costs_no_more_memory_than_the_limit(server: Server) -> None:
    bomb = igzip.compress(bytes(512 << 20), 3)
    server.submit(profile_of("a"))
    assert len(server.descendants()) >= 2
    before = {pid: resident_bytes(pid, "VmRSS") for pid in (server.process.pid, *server.descendants())}
    assert server.submit(bomb).status_code == 413
    for pid, resident in before.items():
        assert resident_bytes(pid, "VmHWM") - resident < (8 << 20) + (64 << 20)
    assert tally(server.merge().content) == {"a": 1}


@pytest.mark.sqlite
def test_a_full_disk_is_500_and_keeps_nothing_half(server: Server) -> None:
    """A limit on the size of files stands for the full disk: first for the body, then for the catalog."""
    server.submit(profile_of("a"))
    unlimited = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    for largest in (10, 20_000):
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
        answer = server.submit(profile_of("b"))
        assert answer.status_code == 500
        assert "could not be stored" in answer.json()["detail"]
        assert not open_files(server)
        assert len(server.blobs()) == 1
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)
    assert tally(server.merge().content) == {"a": 1}
    assert server.submit(profile_of("b")).status_code == 204
    assert tally(server.merge().content) == {"a": 1, "b": 1}
    server.stop()
    causes = [line["cause"] for line in server.events("request") if line["status"] == 500]
    assert len(causes) == 2
    file, row = "OSError: [Errno 27] File too large, in blobs/", "OperationalError: disk I/O error, in "
    assert all(cause.startswith((file, row)) for cause in causes), causes
    server.start()
    assert tally(server.merge().content) == {"a": 1, "b": 1}
