"""`/ingest`, as Pyroscope's older SDKs send profiles to it: names, times and forms, and what is refused."""

from __future__ import annotations

import gzip
import json
import socket
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from pprof_proto.profile_pb2 import Profile

from tests.collector.edits import edited
from tests.collector.pushing import basic, form, ingest, stored, without_start_lines
from tests.faults.stacks import profile_of, tally
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

SPY = {"pyroscope_spy": "unknown"}


def assert_ingested(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.content) == (HTTPStatus.OK, b""), answer.text


def refused(answer: httpx.Response, status: int, code: str = "invalid_argument") -> str:
    """Check that an answer is an error of Pyroscope, and return its message."""
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/json"), answer.text
    error = answer.json()
    assert (error.keys(), error["code"]) == ({"code", "message"}, code)
    return str(error["message"])


def typed(*types: str, unit: str = "count") -> bytes:
    """Return a bare profile of one sample, with these types."""

    def edit(profile: Profile) -> None:
        del profile.sample_type[:], profile.sample[0].value[:]
        for name in types:
            profile.string_table.extend([name.encode(), unit.encode()])
            count = len(profile.string_table)
            profile.sample_type.add(type=count - 2, unit=count - 1)
            profile.sample[0].value.append(1)

    return edited(profile_of("a"), edit)


@pytest.mark.parametrize("path", ["/ingest", "/pyroscope/ingest"])
@pytest.mark.parametrize("is_form", [False, True], ids=["raw", "form"])
@pytest.mark.parametrize("format_", [None, "pprof"])
@pytest.mark.parametrize("is_bare", [False, True], ids=["gzip", "bare"])
def test_an_ingested_profile_is_in_the_merge(
    shared: Server, path: str, format_: str | None, *, is_form: bool, is_bare: bool
) -> None:
    service = f"{path.strip('/').replace('/', '.')}-{is_form}-{format_}-{is_bare}"
    profile = gzip.decompress(profile_of("a")) if is_bare else profile_of("a")
    body, content_type = form(profile=profile) if is_form else (profile, "application/octet-stream")
    query = {"name": f"{service}{{region=eu, zone = 1 ,__hidden__=x}}", "spyName": "gospy"}
    if format_:
        query["format"] = format_
    assert_ingested(ingest(shared, body, path, content_type, **query))
    assert tally(shared.merge(query={"service": service}).content) == {"a": 1}
    labels = {"region": "eu", "zone": "1", "pyroscope_spy": "gospy"}
    assert stored(shared, service) == [("cpu", labels)]


def test_a_form_whose_part_has_no_file_name_is_taken(shared: Server) -> None:
    body, content_type = form(profile=profile_of("a"))
    body = body.replace(b'; filename="profile"', b"")
    assert_ingested(ingest(shared, body, content_type=content_type, name="nameless"))
    assert stored(shared, "nameless") == [("cpu", SPY)]


def test_a_doubled_slash_is_the_same_path(shared: Server) -> None:
    address, profile = urlsplit(shared.base_url), profile_of("a")
    with socket.create_connection((str(address.hostname), address.port or 0), timeout=60) as connection:
        head = (
            f"POST //ingest?name=doubled HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {shared.submit_key}\r\n"
            f"Content-Length: {len(profile)}\r\nConnection: close\r\n\r\n"
        )
        connection.sendall(head.encode() + profile)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    assert stored(shared, "doubled") == [("cpu", SPY)]


def test_the_bytes_say_whether_they_are_gzip_not_the_header(shared: Server) -> None:
    """pyroscope-io 0.8 sends Content-Encoding with a profile that is gzipped once."""
    for number, body in enumerate((profile_of("a"), gzip.decompress(profile_of("a")))):
        answer = shared.client.post(
            "/ingest",
            params={"name": f"encoded{number}", "format": "pprof"},
            content=body,
            headers=bearer(shared.submit_key) | {"Content-Encoding": "gzip"},
        )
        assert_ingested(answer)
        assert stored(shared, f"encoded{number}") == [("cpu", SPY)]


def dotnet_profile(*types: str) -> bytes:
    """Return a bare profile of .NET's SDK: no function has an id, and lines have their location's."""

    def edit(profile: Profile) -> None:
        profile.string_table.append(b"Main")
        profile.function.add(name=len(profile.string_table) - 1)
        profile.location.add(id=9, address=0x401100).line.add(line=3)
        profile.location[0].id = 7
        for function, location in zip(profile.function, profile.location, strict=True):
            function.id = 0
            location.line[0].function_id = location.id
        profile.sample[0].location_id[:] = [7, 9]

    return edited(gzip.compress(typed(*types)), edit)


@pytest.mark.parametrize(
    ("types", "config", "expected"),
    [
        (("cpu",), None, ("process_cpu", "cpu")),
        (("alloc-samples", "alloc-size"), None, ("memory", "alloc_samples")),
        (("inuse-space",), {"inuse-space": {}}, ("heap", "inuse_space")),
        (
            ("lock-count",),
            {"inuse-space": {}, "lock-count": {"display-name": "mutex_count"}},
            ("mutex_delta", "lock_count"),
        ),
    ],
)
def test_profiles_of_dotnet_are_repaired(
    shared: Server,
    types: tuple[str, ...],
    config: dict[str, dict[str, str]] | None,
    expected: tuple[str, str],
) -> None:
    """The SDK says what it is, or its sample types say it."""
    (type_, called), spy = expected, "dotnetspy" if config is None else ""
    name = f"net-{called}"
    body, content_type = form(
        profile=gzip.compress(dotnet_profile(*types)), sample_type_config=json.dumps(config or {}).encode()
    )
    assert_ingested(ingest(shared, body, content_type=content_type, name=name, spyName=spy))
    assert [each for each, _ in stored(shared, name)] == [type_]
    top = shared.ask("/v1/top", service=name, type_=type_, by="function", sort="cum").json()
    assert {row["name"]: (row["flat"], row["cum"]) for row in top["rows"]} == {"a": (1, 1), "Main": (0, 1)}
    profile = Profile.FromString(
        gzip.decompress(shared.merge(query={"service": name, "type": type_}).content)
    )
    assert profile.string_table[profile.sample_type[0].type] == called.encode()


def test_only_profiles_of_dotnet_are_repaired(shared: Server) -> None:
    for spy in ("gospy", "unknown", ""):
        says = refused(ingest(shared, dotnet_profile("cpu"), name="net-others", spyName=spy), 422)
        assert "function" in says
    renamed = typed("first-last")
    assert_ingested(ingest(shared, renamed, name="net-dashes", spyName="gospy"))
    assert stored(shared, "net-dashes") == [
        ("other", {"profile_name": "first-last", "pyroscope_spy": "gospy"})
    ]
    for body in (b"\x0a\xff", gzip.compress(b"hello"), b"\x1f\x8b", gzip.compress(profile_of("a"))[:-9]):
        refused(ingest(shared, body, name="net-broken", spyName="dotnetspy", format="pprof"), 422)


@pytest.mark.parametrize(
    ("types", "stored_as"),
    [
        (("samples", "wall", "cpu"), ("wall", {})),
        (("cpu",), ("process_cpu", {})),
        (("samples",), ("cpu", {})),
        (("inuse_objects", "inuse_space"), ("heap", {})),
        (("objects", "space"), ("heap", {})),
        (("alloc_objects", "alloc_space", "inuse_objects", "inuse_space"), ("memory", {})),
        (("alloc_space",), ("memory", {})),
        (("contentions", "delay"), ("mutex_delta", {})),
        (("block_count", "block_duration"), ("block_delta", {})),
        (("goroutine",), ("goroutine", {})),
        (("first", "last"), ("other", {"profile_name": "last"})),
    ],
)
def test_the_type_is_told_by_the_sample_types(
    shared: Server, types: tuple[str, ...], stored_as: tuple[str, dict[str, str]]
) -> None:
    assert_ingested(ingest(shared, typed(*types), name="-".join(("t", *types))))
    type_, labels = stored_as
    assert stored(shared, "-".join(("t", *types))) == [(type_, labels | SPY)]


def test_a_form_says_what_its_sample_types_are_called(shared: Server) -> None:
    """The Go SDK sends profiles of blocking with the sample types of mutexes, and says so."""
    config = {
        "contentions": {"units": "count", "display-name": "block_count"},
        "delay": {"units": "lock_nanoseconds", "display-name": "block_duration"},
    }
    body, content_type = form(
        profile=typed("contentions", "delay"), sample_type_config=json.dumps(config).encode()
    )
    assert_ingested(ingest(shared, body, content_type=content_type, name="blocked"))
    assert stored(shared, "blocked") == [("block_delta", SPY)]


@pytest.mark.parametrize("text", ["1700000000", "1700000000.25", "1700000000000", "1700000000000000000"])
@pytest.mark.parametrize("time_nanos", [0, 1_700_000_000_000_000], ids=["none", "1970"])
def test_a_profile_without_a_time_has_the_time_of_the_request(
    shared: Server, text: str, time_nanos: int
) -> None:
    service = f"at-{text}-{time_nanos}"
    profile = edited(profile_of("a"), lambda parsed: setattr(parsed, "time_nanos", time_nanos))
    assert_ingested(ingest(shared, profile, name=service, **{"from": text}))
    (found,) = shared.ask("/v1/profiles", service=service).json()["profiles"]
    assert found["time"] == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize("text", ["", "now-1h", "x", "99999999999", "9999999999999999999", "²" * 10])
def test_a_time_that_is_none_is_now(shared: Server, text: str) -> None:
    service = f"now-{len(text)}-{text[:1] == 'n'}"
    profile = edited(profile_of("a"), lambda parsed: parsed.ClearField("time_nanos"))
    assert_ingested(ingest(shared, profile, name=service, **{"from": text}))
    (found,) = shared.ask("/v1/profiles", service=service).json()["profiles"]
    assert found["time"] > "2024"


@pytest.mark.parametrize("name", ["", "{a=b}", "app{a}", "app{a=b", "app{a=b}c", "app{ä=b}", "a b", "x\ny"])
def test_a_name_that_is_none_is_refused(shared: Server, name: str) -> None:
    assert "name" in refused(ingest(shared, profile_of("a"), name=name), 400)


@pytest.mark.parametrize("format_", ["jfr", "trie", "tree", "lines"])
def test_other_formats_are_refused_by_name(shared: Server, format_: str) -> None:
    message = refused(ingest(shared, b"x", name="other-format", format=format_), 422)
    assert f"in the format {format_}; only pprof can be read" in message


def test_other_formats_are_told_by_the_content_type_and_the_form(shared: Server) -> None:
    answer = ingest(shared, b"x", content_type="binary/octet-stream+trie")
    assert "the format trie" in refused(answer, 422)
    body, content_type = form(jfr=b"FLR\0")
    assert "the format jfr" in refused(ingest(shared, body, content_type=content_type), 422)
    body, content_type = form(profile=profile_of("a"), prev_profile=profile_of("b"))
    assert "update the client" in refused(ingest(shared, body, content_type=content_type), 422)
    assert "only pprof can be read" in refused(ingest(shared, b"main;work 3\n"), 422)


@pytest.mark.parametrize("body", [b"hello", profile_of("a")[:-5], gzip.compress(b"hello", mtime=0)])
def test_what_is_no_profile_is_unprocessable(shared: Server, body: bytes) -> None:
    assert "not a profile" in refused(ingest(shared, body, format="pprof"), 422)


@pytest.mark.parametrize(
    "parts", [{}, {"other": b"x"}, {"profile": b"\x0a", "sample_type_config": b"[1]"},
              {"profile": b"\x0a", "sample_type_config": b"[" * 100_000}]
)  # fmt: skip
def test_a_form_that_lacks_a_profile_or_has_no_settings_is_refused(
    shared: Server, parts: dict[str, bytes]
) -> None:
    body, content_type = form(**parts)
    refused(ingest(shared, body, content_type=content_type), 400)


def test_a_form_has_few_parts(shared: Server) -> None:
    body, content_type = form(**{f"part{number}": b"" for number in range(1000)})
    assert "parts" in refused(ingest(shared, body, content_type=content_type), 400)


def test_an_empty_profile_is_stored_as_nothing(shared: Server) -> None:
    body, content_type = form(profile=b"")
    assert_ingested(ingest(shared, body, content_type=content_type, name="nothing"))
    assert_ingested(ingest(shared, b"", name="nothing", format="pprof"))
    empty = edited(profile_of("a"), lambda parsed: parsed.ClearField("sample"))
    assert_ingested(ingest(shared, empty, name="nothing"))
    assert not stored(shared, "nothing")


def test_a_profile_that_compilers_cannot_use_is_kept_apart(shared: Server) -> None:
    assert_ingested(ingest(shared, without_start_lines(profile_of("a")), name="python"))
    assert stored(shared, "python") == [("process_cpu", SPY)]


def test_too_much_is_413_and_without_a_key_it_is_401(tmp_path: Path) -> None:
    with Server(tmp_path, {"PGOF_MAX_INFLATED_BYTES": "100000"}) as server:
        answer = ingest(server, gzip.compress(bytes(200_000)))
        assert "PGOF_MAX_INFLATED_BYTES" in refused(answer, 413)
        assert "PGOF_MAX_COMPRESSED_BYTES" in refused(ingest(server, bytes(9 << 20)), 413)
        answer = server.client.post("/ingest", headers=basic("user", "wrong"))
        refused(answer, 401, "unauthenticated")
        answer = server.client.post(
            "/ingest", params={"name": "x"}, content=profile_of("a"), headers=basic("user", server.submit_key)
        )
        assert_ingested(answer)
