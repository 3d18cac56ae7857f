"""Programs that the agents of Parca and Pyroscope upload: their calls, made from the schemas.

The programs are the smallest that are taken, and the symbolizer is hollow: what is read from real ones is in
`engine/test_binaries`.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from pgo_collector.errors import PushInvalid
from pgo_collector.routes.parca import parca_pb2 as parca
from pgo_collector.routes.parca.debuginfo import UploadStream
from pgo_collector.routes.pyroscope import debuginfo_pb2 as pyroscope
from starlette.requests import Request

from tests.collector.calling import PATIENCE_SECONDS, call, channel_to, refused_call
from tests.collector.exporting import speaks_grpc
from tests.collector.pushing import refused
from tests.collector.small_program import hollow_tools, small_program
from tests.server import Server, bearer

PARCA = "/parca.debuginfo.v1alpha1.DebuginfoService"
PYROSCOPE = "/debuginfo.v1alpha1.DebuginfoService"
IN_PROGRESS = "A previous upload is still in-progress and not stale yet (only stale uploads can be retried)."
MOST_BYTES = 100_000
KEYS = {"key-of-shop": "shop", "key-of-till": "till", "key-of-some": "shop,till"}
GRPC = {"Content-Type": "application/grpc+proto"}
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A collector with keys of several services; two streams may arrive at a time."""
    folder = tmp_path_factory.mktemp("uploads")
    settings = {
        "PATH": hollow_tools(folder / "tools"),
        "PGOF_BINARY_BYTES": str(MOST_BYTES),
        "PGOF_BINARIES_KEPT": "100",
        "PGOF_GRPC_CALLS": "4",
    }
    server = speaks_grpc(folder / "server", settings)
    lines = "".join(f"{key} service={services}\n" for key, services in KEYS.items())
    for file, key in ((server.submit_keys, Server.submit_key), (server.merge_keys, Server.merge_key)):
        file.write_text(f"{key}\n{lines}")
    with server:
        yield server


class Program:
    """A program of a build id of its own."""

    made = 0

    def __init__(self) -> None:
        Program.made += 1
        self.build_id = f"{Program.made:040x}"
        self.content = small_program(bytes.fromhex(self.build_id))

    def stored(self, server: Server, service: str) -> list[bytes]:
        """Return the programs of this build that are stored for a service."""
        files = server.area("binaries").rglob(f"{self.build_id}-*")
        return [file.read_bytes() for file in files if service in {"*", file.parent.name}]


@pytest.fixture
def program() -> Program:
    return Program()


def key(text: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {text}"),)


def stream_of(build_id: str, content: bytes, size: int = 300) -> list[bytes]:
    """Return the messages of an upload, whose parts have up to `size` bytes."""
    info = parca.UploadInfo(build_id=build_id, upload_id="any")
    parts = [content[at : at + size] for at in range(0, len(content), size)]
    requests = [parca.UploadRequest(info=info), *(parca.UploadRequest(chunk_data=part) for part in parts)]
    return [request.SerializeToString() for request in requests]


def framed(messages: Iterable[bytes]) -> bytes:
    """Return messages as gRPC frames them."""
    return b"".join(b"\0" + len(message).to_bytes(4) + message for message in messages)


def upload(server: Server, messages: Iterable[bytes], by: str = Server.submit_key) -> parca.UploadResponse:
    """Upload by gRPC."""
    with channel_to(server) as channel:
        made: Any = channel.stream_unary(f"{PARCA}/Upload")
        answer = made(iter(messages), metadata=key(by), timeout=PATIENCE_SECONDS, wait_for_ready=True)
    return parca.UploadResponse.FromString(answer)


def refused_upload(
    server: Server, messages: Iterable[bytes], by: str = Server.submit_key
) -> tuple[Code, str]:
    """Return the code and the message of an upload that is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        upload(server, messages, by)
    error: Any = caught.value
    return error.code(), error.details()


def should(server: Server, build_id: str, by: str = Server.submit_key, **more: Any) -> tuple[bool, str]:
    """Ask as Parca's agent does whether an upload is wanted, and why."""
    asked = parca.ShouldInitiateUploadRequest(build_id=build_id, **more)
    found = call(server, asked.SerializeToString(), f"{PARCA}/ShouldInitiateUpload", key(by))
    answer = parca.ShouldInitiateUploadResponse.FromString(found)
    assert answer.reason
    return answer.should_initiate_upload, answer.reason


def initiate(server: Server, build_id: str, size: int = 1, by: str = Server.submit_key, **more: Any) -> None:
    """Have an upload begin, as Parca's agent does."""
    asked = parca.InitiateUploadRequest(build_id=build_id, size=size, **more).SerializeToString()
    found = call(server, asked, f"{PARCA}/InitiateUpload", key(by))
    instructions = parca.InitiateUploadResponse.FromString(found).upload_instructions
    assert instructions.upload_strategy == parca.UploadInstructions.UPLOAD_STRATEGY_GRPC
    assert (instructions.build_id, bool(instructions.upload_id)) == (build_id, True)


def refused_initiate(server: Server, build_id: str, size: int = 1, **more: Any) -> tuple[Code, str]:
    asked = parca.InitiateUploadRequest(build_id=build_id, size=size, **more).SerializeToString()
    return refused_call(server, asked, f"{PARCA}/InitiateUpload", metadata=key(Server.submit_key))


def mark(server: Server, build_id: str, by: str = Server.submit_key) -> None:
    asked = parca.MarkUploadFinishedRequest(build_id=build_id, upload_id="any").SerializeToString()
    assert call(server, asked, f"{PARCA}/MarkUploadFinished", key(by)) == b""


def post(server: Server, path: str, message: Any, by: str = Server.submit_key) -> httpx.Response:
    """Call a method by Connect, with protobuf."""
    headers = {"Content-Type": "application/proto"} | bearer(by)
    return server.client.post(path, content=message.SerializeToString(), headers=headers)


def post_file(server: Server, build_id: str, content: bytes, by: str = Server.submit_key) -> httpx.Response:
    """Upload as Pyroscope's clients do, which don't say how long the file is."""
    pieces = iter([content[:100], content[100:]])
    return server.client.post(f"{PYROSCOPE}/Upload/{build_id}", content=pieces, headers=bearer(by))


def wanted(server: Server, build_id: str, by: str = Server.submit_key) -> tuple[bool, str]:
    """Ask as Grafana Alloy does whether an upload is wanted, and why."""
    file = pyroscope.FileMetadata(
        gnu_build_id=build_id, name="shop", type=pyroscope.FileMetadata.TYPE_EXECUTABLE_FULL
    )
    asked = pyroscope.ShouldInitiateUploadRequest(file=file)
    found = post(server, f"{PYROSCOPE}/ShouldInitiateUpload", asked, by)
    assert found.status_code == 200, found.text
    answer = pyroscope.ShouldInitiateUploadResponse.FromString(found.content)
    return answer.should_initiate_upload, answer.reason


def test_parcas_agent_uploads_what_is_not_there(server: Server, program: Program) -> None:
    assert should(server, program.build_id, build_id_type=parca.BUILD_ID_TYPE_GNU)[0]
    initiate(server, program.build_id, len(program.content), build_id_type=parca.BUILD_ID_TYPE_GNU)
    assert should(server, program.build_id) == (False, IN_PROGRESS)
    stored = upload(server, stream_of(program.build_id, program.content))
    assert (stored.build_id, stored.size) == (program.build_id, len(program.content))
    mark(server, program.build_id)
    assert program.stored(server, "_shared") == [program.content]
    is_wanted, reason = should(server, program.build_id.upper())
    assert not is_wanted
    assert "is stored" in reason
    assert should(server, program.build_id, force=True)[0]
    assert not [*(server.data / "incoming").iterdir()]
    line = next(line for line in server.events("request")[::-1] if line["path"].endswith("/Upload"))
    assert (line["status"], line["bytes"]) == (200, len(program.content))


def test_parcas_calls_by_connect(server: Server, program: Program) -> None:
    asked = parca.ShouldInitiateUploadRequest(build_id=program.build_id)
    for content, kind in ((asked.SerializeToString(), "proto"), (json_format.MessageToJson(asked), "json")):
        headers = {"Content-Type": f"application/{kind}"} | bearer(Server.submit_key)
        path = f"{PARCA}/ShouldInitiateUpload"
        answer = server.client.post(path, content=content, headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"] == f"application/{kind}"
    assert answer.json()["shouldInitiateUpload"]
    body = framed(stream_of(program.build_id, program.content))
    headers = bearer(Server.submit_key)
    answer = server.client.post(f"{PARCA}/Upload", content=body, headers=headers)
    assert "application/grpc+proto" in refused(answer, 415, "invalid_argument")
    answer = server.client.post(f"{PARCA}/Upload", content=body, headers=headers | GRPC)
    assert parca.UploadResponse.FromString(answer.content).size == len(program.content), answer.text
    assert program.stored(server, "_shared") == [program.content]
    lacking = parca.MarkUploadFinishedRequest(build_id="abcd")
    refused(post(server, f"{PARCA}/MarkUploadFinished", lacking), 404, "not_found")


def test_pyroscopes_clients_upload_list_and_delete(server: Server) -> None:
    programs = [Program() for _ in range(2)]
    for program in programs:
        assert wanted(server, program.build_id)[0]
        assert wanted(server, program.build_id) == (False, IN_PROGRESS)
        finished = pyroscope.UploadFinishedRequest(gnu_build_id=program.build_id)
        refused(post(server, f"{PYROSCOPE}/UploadFinished", finished), 404, "not_found")
        answer = post_file(server, program.build_id, program.content)
        assert (answer.status_code, answer.content) == (200, b""), answer.text
        assert post(server, f"{PYROSCOPE}/UploadFinished", finished).status_code == 200
        is_wanted, reason = wanted(server, program.build_id)
        assert not is_wanted
        assert "is stored" in reason
    listing, delete = f"{PYROSCOPE}/ListDebuginfo", f"{PYROSCOPE}/DeleteDebuginfo"
    answer = post(server, listing, pyroscope.ListDebuginfoRequest(), Server.merge_key)
    first, second, *_ = pyroscope.ListDebuginfoResponse.FromString(answer.content).object
    assert [each.file.gnu_build_id for each in (second, first)] == [each.build_id for each in programs]
    assert (first.state, first.size_bytes) == (
        pyroscope.ObjectMetadata.STATE_UPLOADED,
        len(programs[1].content),
    )
    assert abs(first.finished_at.seconds - time.time()) < 600
    for path, message in (
        (listing, pyroscope.ListDebuginfoRequest()),
        (delete, pyroscope.DeleteDebuginfoRequest(gnu_build_id=programs[0].build_id)),
    ):
        assert "a submit key" in refused(post(server, path, message), 401, "unauthenticated")
    assert post(server, delete, message, "key-of-shop").status_code == 404
    assert post(server, delete, message, Server.merge_key).status_code == 200
    refused(post(server, delete, message, Server.merge_key), 404, "not_found")
    assert wanted(server, programs[0].build_id)[0]


def test_refusals_of_uploads_have_the_codes_that_agents_know(server: Server, program: Program) -> None:
    good = stream_of(program.build_id, program.content)
    garbled = [good[0], b"\x12\x05abc"]
    cases: Sequence[tuple[list[bytes], str]] = (
        ([], "ended before its first message"),
        (good[1:], "no info"),
        ([b"\xff" * 300], "UploadRequest"),
        ([b"\x0a\x05abc"], "UploadRequest"),
        ([b"\x12" + b"x" * 5000, *good], "the first message"),
        ([good[0], good[0]], "something else than a part"),
        (garbled, "something else than a part"),
        (good[:1], "the body is empty"),
        (good[:2], "not a program that can be used"),
        (stream_of("abcd12", program.content), f"has the build id {program.build_id}"),
        (stream_of("abcd13", bytes(MOST_BYTES + 1), 10_000), "PGOF_BINARY_BYTES"),
    )
    for messages, expected in cases:
        code, text = refused_upload(server, messages)
        assert code == Code.INVALID_ARGUMENT, (expected, code, text)
        assert expected in text
    assert refused_upload(server, good, "no key")[0] == Code.UNAUTHENTICATED
    for body, expected in (
        (b"\1" + framed(good)[1:], "compressed"),
        (framed(good)[:-1], "within a message"),
        (framed([good[0], *[b""] * 2000]), "messages of an upload"),
    ):
        headers = GRPC | bearer(Server.submit_key)
        answer = server.client.post(f"{PARCA}/Upload", content=body, headers=headers)
        assert expected in refused(answer, 400, "invalid_argument")
    assert refused_initiate(server, "abcd14", MOST_BYTES + 1)[0] == Code.INVALID_ARGUMENT
    initiate(server, "abcd15")
    assert refused_initiate(server, "abcd15") == (Code.FAILED_PRECONDITION, IN_PROGRESS)
    initiate(server, "abcd15", force=True)
    for fields in ({"type": parca.DEBUGINFO_TYPE_SOURCES}, {"build_id_type": parca.BUILD_ID_TYPE_HASH}):
        assert not should(server, "abcd16", **fields)[0]
        assert refused_initiate(server, "abcd16", **fields)[0] == Code.INVALID_ARGUMENT
    for name in ("", "a/b/c", "../../x", "ab cd", "ab" * 65):
        assert "GNU build id" in should(server, name)[1]
        assert refused_initiate(server, name)[0] == Code.INVALID_ARGUMENT
    asked = parca.MarkUploadFinishedRequest(build_id="abcd17").SerializeToString()
    code, _ = refused_call(server, asked, f"{PARCA}/MarkUploadFinished", metadata=key(Server.submit_key))
    assert code == Code.NOT_FOUND
    assert program.stored(server, "*") == []
    assert not [*(server.data / "incoming").iterdir()]
    assert not server.events("unexpected error")


def test_a_program_that_is_refused_is_not_asked_for_again(server: Server) -> None:
    assert should(server, "abcd21")[0]
    code, text = refused_upload(server, stream_of("abcd21", b"no program"))
    assert code == Code.INVALID_ARGUMENT
    assert should(server, "abcd21") == (False, text)
    assert wanted(server, "abcd21") == (False, text)
    assert refused_initiate(server, "abcd21") == (Code.INVALID_ARGUMENT, text)
    assert should(server, "abcd21", force=True)[0]
    assert should(server, "abcd21", by="key-of-shop")[0]


def test_an_upload_that_broke_off_may_come_again_at_once(server: Server, program: Program) -> None:
    messages, arrived = stream_of(program.build_id, program.content), threading.Event()

    def broken() -> Iterator[bytes]:
        yield from messages[:2]
        arrived.wait(PATIENCE_SECONDS)

    initiate(server, program.build_id)
    with channel_to(server) as channel:
        made: Any = channel.stream_unary(f"{PARCA}/Upload")
        future = made.future(broken(), metadata=key(Server.submit_key), wait_for_ready=True)
        assert should(server, program.build_id) == (False, IN_PROGRESS)
        future.cancel()
        arrived.set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not should(server, program.build_id)[0]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert program.stored(server, "*") == []
    upload(server, messages)
    assert program.stored(server, "_shared") == [program.content]


def test_the_same_bytes_may_come_again_and_others_of_the_build_are_refused(
    server: Server, program: Program
) -> None:
    for _ in range(2):
        upload(server, stream_of(program.build_id, program.content))
        assert post_file(server, program.build_id, program.content).status_code == 200
    other = program.content + b"\0"
    assert refused_upload(server, stream_of(program.build_id, other))[0] == Code.ALREADY_EXISTS
    assert refused_initiate(server, program.build_id)[0] == Code.ALREADY_EXISTS
    refused(post_file(server, program.build_id, other), 409, "already_exists")
    assert program.stored(server, "_shared") == [program.content]


def test_a_build_belongs_to_the_service_whose_key_sent_it(server: Server, program: Program) -> None:
    other = program.content + b"\0"
    upload(server, stream_of(program.build_id, program.content), "key-of-shop")
    mark(server, program.build_id, "key-of-shop")
    assert not should(server, program.build_id, "key-of-shop")[0]
    lacking = parca.MarkUploadFinishedRequest(build_id=program.build_id)
    refused(post(server, f"{PARCA}/MarkUploadFinished", lacking, "key-of-till"), 404, "not_found")
    assert wanted(server, program.build_id, "key-of-till")[0]
    assert post_file(server, program.build_id, other, "key-of-till").status_code == 200
    for by, content in (("shop", program.content), ("till", other)):
        assert program.stored(server, by) == [content]
        answer = post(server, f"{PYROSCOPE}/ListDebuginfo", pyroscope.ListDebuginfoRequest(), f"key-of-{by}")
        listed = pyroscope.ListDebuginfoResponse.FromString(answer.content).object
        assert [each.size_bytes for each in listed if each.file.gnu_build_id == program.build_id] == [
            len(content)
        ]
    assert should(server, program.build_id)[0]  # by a key of all, whose programs are shared
    for path, message in (
        (f"{PARCA}/ShouldInitiateUpload", parca.ShouldInitiateUploadRequest(build_id="abcd")),
        (f"{PYROSCOPE}/ListDebuginfo", pyroscope.ListDebuginfoRequest()),
    ):
        assert "for some services" in refused(
            post(server, path, message, "key-of-some"), 403, "permission_denied"
        )
    messages = stream_of(program.build_id, program.content)
    assert refused_upload(server, messages, "key-of-some")[0] == Code.PERMISSION_DENIED


def test_v1_says_whether_a_build_is_stored(server: Server, program: Program) -> None:
    path = f"/v1/binaries/{program.build_id}"

    def status(by: str, service: str = "shop") -> int:
        answer = server.client.get(path, params={"service": service}, headers=bearer(by))
        return answer.status_code

    assert status("key-of-shop") == 404
    upload(server, stream_of(program.build_id, program.content), "key-of-shop")
    assert (status("key-of-shop"), status(Server.submit_key), status(Server.submit_key, "till")) == (
        200,
        200,
        404,
    )
    assert (status("key-of-till"), status(Server.merge_key)) == (403, 403)
    answer = server.client.get(path, headers=bearer("key-of-shop")).json()
    assert (answer["service"], answer["build_id"]) == ("shop", program.build_id)


def test_streams_leave_room_for_other_calls(server: Server) -> None:
    event, ended = threading.Event(), queue.SimpleQueue[Any]()

    def silent() -> Iterator[bytes]:
        event.wait(PATIENCE_SECONDS)
        yield b""

    with channel_to(server) as channel:
        made: Any = channel.stream_unary(f"{PARCA}/Upload")
        for _ in range(3):
            made.future(silent(), metadata=key(Server.submit_key)).add_done_callback(ended.put)
        refusal = ended.get(timeout=PATIENCE_SECONDS).exception()
        assert (refusal.code(), "PGOF_GRPC_CALLS" in refusal.details()) == (Code.UNAVAILABLE, True)
        assert should(server, "abcd31")[0]
        event.set()
        for _ in range(2):
            assert ended.get(timeout=PATIENCE_SECONDS).exception().code() == Code.INVALID_ARGUMENT


def test_where_programs_are_not_taken_agents_are_told_so(tmp_path: Path) -> None:
    with speaks_grpc(tmp_path, {"PGOF_BINARIES_KEPT": "0"}) as off:
        for is_wanted, reason in (should(off, "abcd41"), wanted(off, "abcd41")):
            assert not is_wanted
            assert "PGOF_BINARIES_KEPT is 0" in reason
        assert refused_initiate(off, "abcd41")[0] == Code.UNIMPLEMENTED
        assert refused_upload(off, stream_of("abcd41", b"x"))[0] == Code.UNIMPLEMENTED
        assert post_file(off, "abcd41", b"x").status_code == 501


def read_stream(pieces: Iterable[bytes]) -> tuple[str, bytes]:
    """Return the build id and the file of an upload that arrives in these pieces."""
    left = [*pieces]

    async def receive() -> dict[str, Any]:
        body = left.pop(0) if left else b""
        return {"type": "http.request", "body": body, "more_body": bool(left)}

    async def read() -> tuple[str, bytes]:
        stream = UploadStream(Request({"type": "http"}, receive))
        info, file, more = await stream.begin(), b"", True
        while more:
            event = await stream.receive()
            file += event["body"]
            more = event["more_body"]
        return info.build_id, file

    return asyncio.run(read())


@given(st.binary(max_size=3000), st.integers(1, 1000), st.lists(st.integers(1, 40), max_size=400))
def test_a_stream_is_the_same_however_it_is_cut(content: bytes, size: int, cuts: list[int]) -> None:
    body, pieces = framed([*stream_of("abcd", content, size), b""]), []
    for cut in cuts:
        pieces.append(body[:cut])
        body = body[cut:]
    assert read_stream([*pieces, body]) == ("abcd", content)


@given(st.data())
def test_a_damaged_stream_is_refused_or_read(data: st.DataObject) -> None:
    body = bytearray(framed(stream_of("abcd", b"x" * 2000, 700)))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, 40) | st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    try:
        _, file = read_stream([bytes(body[:cut]), bytes(body[cut:])])
    except PushInvalid:
        return
    assert len(file) <= len(body)
