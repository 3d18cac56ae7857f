from __future__ import annotations

import gzip
import hashlib
import socket
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pprof_merge
import pytest
from pprof_proto.profile_pb2 import Profile

from tests.collector.own_service import OwnService
from tests.faults.stacks import large_profile, profile_of, tally
from tests.server import Server


def test_nothing_stored_is_404_with_a_reason(own: OwnService) -> None:
    for method in ("GET", "POST"):
        answer = own.merge(method)
        assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")
        assert answer.json()["detail"] == "no stored profile matches the selection"
    assert own.merge("HEAD").status_code == 404


def test_the_merge_is_the_engines_and_keeps_what_go_needs(own: OwnService, go_profiles: list[bytes]) -> None:
    for profile in go_profiles:
        assert own.submit(profile).status_code == 204
    expected = pprof_merge.encode(pprof_merge.merge(map(pprof_merge.decode, go_profiles)))
    for answer in (own.merge("GET"), own.merge("POST")):
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["Cache-Control"] == "private, no-cache"
        assert int(answer.headers["Content-Length"]) == len(answer.content)
        assert answer.headers["ETag"] == f'"{hashlib.sha256(expected).hexdigest()}"'
        assert "PGO-Left-Out" not in answer.headers
        assert gzip.decompress(answer.content) == expected
    assert any(function.start_line for function in Profile.FromString(expected).function)


def test_head_has_the_headers_of_get_and_no_body(shared: Server) -> None:
    shared.submit(profile_of("a"))
    head, get = shared.merge("HEAD"), shared.merge("GET")
    assert head.content == b""
    for answer in (head, get):
        del answer.headers["Date"]
    assert head.headers == get.headers


def test_the_etag_changes_when_the_content_does_and_only_then(shared: Server) -> None:
    shared.submit(profile_of("a"))
    first = shared.merge().headers["ETag"]
    shared.submit(profile_of("a"))
    assert shared.merge().headers["ETag"] == first
    shared.submit(profile_of("b"))
    second = shared.merge().headers["ETag"]
    assert second != first
    assert shared.combine().headers["ETag"] == second
    assert shared.merge().headers["ETag"] == second
    shared.restart()
    assert shared.merge().headers["ETag"] == second


def test_a_client_that_has_it_gets_304(shared: Server) -> None:
    shared.submit(profile_of("a"))
    etag = shared.merge().headers["ETag"]
    for condition in (etag, f"W/{etag}", f'"x", {etag}', f'W/"y" , W/{etag},"z"', "*"):
        for method in ("GET", "HEAD"):
            answer = shared.merge(method, If_None_Match=condition)
            assert (answer.status_code, answer.content) == (304, b"")
            assert answer.headers["ETag"] == etag
    for condition in ('"other"', etag.strip('"'), f'"{etag[1:-2]}"', "", '"*"'):
        assert shared.merge(If_None_Match=condition).status_code == 200
    assert shared.merge("POST", If_None_Match=etag).status_code == 200


def test_nothing_is_merged_again_while_nothing_has_changed(server: Server) -> None:
    for name in ("a", "b"):
        server.submit(profile_of(name))
    etag = server.merge().headers["ETag"]
    server.merge()
    server.merge("POST")
    assert server.merge(If_None_Match=etag).status_code == 304
    assert len(server.events("merge made")) == 1
    server.restart()
    assert server.merge(If_None_Match=etag).status_code == 304
    assert not server.events("merge made")


def test_all_who_wait_share_one_merge(own: OwnService, go_profiles: list[bytes]) -> None:
    for profile in go_profiles:
        own.submit(profile)
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: own.merge().content, range(8)))
    assert len(set(answers)) == 1
    assert len(own.events("merge made")) == 1


def test_a_client_that_goes_away_ends_no_merge(server: Server, go_profiles: list[bytes]) -> None:
    for profile in go_profiles:
        server.submit(profile)
    with request_merge(server):
        server.client.get("/healthz")
    assert server.merge().status_code == 200
    assert len(server.events("merge made")) == 1


def request_merge(server: Server, receive_buffer: int | None = None) -> socket.socket:
    """Return a connection that has asked for the merge and read nothing."""
    address = urlsplit(server.base_url)
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(30)
    connection.connect((str(address.hostname), address.port or 0))
    connection.sendall(f"GET /v1/merge HTTP/1.0\r\nAuthorization: Bearer {Server.merge_key}\r\n\r\n".encode())
    return connection


def test_a_lost_file_of_the_last_merge_is_made_again(server: Server) -> None:
    server.submit(profile_of("a"))
    before = server.merge().content
    for path in (server.data / "merged").iterdir():
        path.unlink()
    assert server.merge().content == before
    assert len(list((server.data / "merged").iterdir())) == 1


def left_out(answer: httpx.Response) -> str:
    header: str = answer.headers["PGO-Left-Out"]
    return header


def test_what_cannot_be_read_is_left_out_and_named(server: Server) -> None:
    for name in ("a", "b", "c", "d", "e"):
        server.submit(profile_of(name))
    by_stack = {name: server.blobs()[0].parent / blob_name(profile_of(name)) for name in ("a", "b", "c", "d")}
    by_stack["a"].write_bytes(by_stack["a"].read_bytes()[:-20])
    by_stack["b"].unlink()
    by_stack["c"].write_bytes(profile_of("c", type_="wall"))
    by_stack["d"].write_bytes(profile_of("somebody else's"))
    server.forget_decoded()
    for answer in (server.merge(), server.merge(), server.combine(), server.merge()):
        assert answer.status_code == 200
        assert tally(answer.content) == {"e": 1}
        for path in by_stack.values():
            assert f'"default/cpu/{path.parent.name}/{path.name}";reason="' in left_out(answer)
        assert left_out(answer).isascii()
    warned = {line["blob"].rsplit("/")[-1] for line in server.events("blob left out")}
    assert warned == {path.name for path in by_stack.values()}
    assert by_stack["a"].exists()


def blob_name(profile: bytes, time_nanos: int = 1_700_000_000_000_000_000) -> str:
    return f"{time_nanos}-{hashlib.sha256(gzip.decompress(profile)).hexdigest()}.pb.gz"


def test_a_blob_put_back_is_merged_again(own: OwnService) -> None:
    for name in ("a", "b"):
        own.submit(profile_of(name))
    blob = own.blobs()[0]
    content = blob.read_bytes()
    blob.write_bytes(content[:50])
    own.forget_decoded()
    answer = own.merge()
    assert "PGO-Left-Out" in answer.headers
    assert sum(tally(answer.content).values()) == 1
    blob.write_bytes(content)
    again = own.merge()
    assert "PGO-Left-Out" not in again.headers
    assert tally(again.content) == {"a": 1, "b": 1}


def test_what_was_read_once_counts_whatever_becomes_of_its_blob(server: Server) -> None:
    server.submit(profile_of("a"))
    server.merge()
    server.blobs()[0].write_bytes(b"")
    server.submit(profile_of("b"))
    assert tally(server.combine().content) == {"a": 1, "b": 1}
    server.restart()
    assert tally(server.merge().content) == {"a": 1, "b": 1}


def test_so_many_merges_are_kept_as_the_setting_says(stopped: Server) -> None:
    stopped.environment["PGOF_MERGES_KEPT"] = "2"
    stopped.start()
    for number in range(4):
        stopped.submit(profile_of(f"{number}"))
        stopped.merge()
        assert len(list((stopped.data / "merged").iterdir())) == min(number + 1, 2)


def test_with_nothing_that_can_be_read_it_is_404(own: OwnService) -> None:
    own.submit(profile_of("a"))
    own.blobs()[0].write_bytes(b"")
    own.forget_decoded()
    answer = own.merge()
    assert answer.status_code == 404
    assert answer.json()["detail"] == "none of the 1 stored profiles can be merged: the input is empty"


@pytest.fixture
def large(server: Server) -> Server:
    """Return a collector whose merge is larger than a submit may be and than a connection buffers."""
    for number in range(2):
        assert server.submit(large_profile(f"large {number}", number)).status_code == 204
    return server


def test_a_client_that_reads_slowly_holds_up_nobody(large: Server) -> None:
    before = large.merge()
    with request_merge(large, receive_buffer=4096) as slow:
        assert slow.recv(100).startswith(b"HTTP/1.1 200 ")
        requests = len(large.events("request"))
        assert large.combine().content == before.content
        assert large.submit(profile_of("meanwhile")).status_code == 204
        assert tally(large.merge().content) == {"large 0": 1, "large 1": 1, "meanwhile": 1}
        assert len(large.events("request")) >= requests + 2
        assert len([line for line in large.events("request") if line["status"] == 200]) < 4, "it wasn't slow"
        received = bytearray()
        while chunk := slow.recv(1 << 20):
            received += chunk
    assert received.endswith(before.content[-1000:])
