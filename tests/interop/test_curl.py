"""The requests of fleets and pipelines with curl, direct and through a real nginx: requests of all shapes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from pprof_proto import profile_pb2

from tests.interop.curl import Client, total
from tests.interop.nginx_process import running_nginx
from tests.oracle.oracle import go_root
from tests.server import Server

pytestmark = pytest.mark.system("curl")


def plus(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(one + other for one, other in zip(left, right, strict=True))


@pytest.mark.parametrize("bare", [False, True], ids=["gzip", "bare"])
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--header", "Transfer-Encoding: chunked"),
        ("--header", "Content-Type: application/json"),
        ("--header", "Content-Type:"),
        ("--header", "Content-Encoding: gzip"),
        ("--header", "Content-Encoding: zstd"),
        ("--header", "Expect: 100-continue"),
        ("--http1.0",),
        ("--http2",),
        ("--http2", "--header", "Transfer-Encoding: chunked"),
        ("--header", "Connection: Upgrade", "--header", "Upgrade: websocket"),
    ],
    ids=lambda options: options[-1] if options else "plain",
)
def test_a_submit_of_any_shape_is_stored(
    client: Client, profile: bytes, options: tuple[str, ...], bare: bool
) -> None:
    before = client.total()
    answer = client.submit(gzip.decompress(profile) if bare else profile, *options)
    assert (answer.status, answer.body) == (204, b"")
    assert client.total() == plus(before, total(profile))


def test_a_proxy_may_forward_that_a_client_asks_for_another_protocol(
    server: Server, profile: bytes, another_profile: bytes, tmp_path: Path
) -> None:
    forwarding = 'proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";'
    folder = tmp_path / "nginx"
    folder.mkdir()
    with running_nginx(folder, server.base_url, request_buffering=False, also=forwarding) as url:
        client = Client(url, server, tmp_path)
        for sent, protocol in ((profile, "h2c"), (another_profile, "websocket")):
            before = client.total()
            answer = client.submit(
                sent, "--header", "Connection: Upgrade", "--header", f"Upgrade: {protocol}"
            )
            assert answer.status == 204
            assert client.total() == plus(before, total(sent))


def test_one_profile_in_several_shapes_counts_once(client: Client, profile: bytes) -> None:
    before = client.total()
    bare = gzip.decompress(profile)
    for sent in (profile, bare, gzip.compress(bare, 1), profile):
        assert client.submit(sent).status == 204
    assert client.total() == plus(before, total(profile))


def test_a_large_submit_waits_to_be_asked_for(client: Client) -> None:
    """curl asks with `Expect: 100-continue` by itself before it sends what is over a megabyte."""
    parsed = profile_pb2.Profile.FromString(
        gzip.decompress((go_root() / "src/cmd/compile/default.pgo").read_bytes())
    )
    parsed.comment.append(len(parsed.string_table))
    parsed.string_table.append(f"through {client.url}".encode())
    sent = parsed.SerializeToString()
    assert len(sent) > 1 << 20
    before = client.total()
    assert client.submit(sent, "--header", "Expect: 100-continue").status == 204
    assert client.total() == plus(before, total(sent))


@pytest.mark.parametrize(
    "options", [(), ("--header", "Transfer-Encoding: chunked")], ids=["plain", "chunked"]
)
def test_a_submit_over_the_limit_is_413(client: Client, options: tuple[str, ...]) -> None:
    assert client.submit(bytes(17 << 20), *options).status == 413


@pytest.mark.parametrize("content", [b"", b"not a profile", b"\x1f\x8b\x08 not gzip"])
def test_what_is_no_profile_is_400_and_told_why(client: Client, content: bytes) -> None:
    answer = client.submit(content)
    assert answer.status == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = json.loads(answer.body)
    assert problem["status"] == 400
    assert problem["detail"]


@pytest.mark.parametrize(
    ("options", "said"),
    [(("-F", "file=@{}"), "a form"), (("-d", "@{}"), "curl -d")],
    ids=["form", "text"],
)
def test_how_curl_sent_it_is_told(
    client: Client, profile: bytes, options: tuple[str, str], said: str
) -> None:
    """The bytes of -d lack those that end lines in text."""
    file = client.folder / "file"
    file.write_bytes(gzip.decompress(profile))
    option, what = options
    answer = client.curl("/v1/submit", option, what.format(file), key=client.server.submit_key)
    assert answer.status == 400
    detail = json.loads(answer.body)["detail"]
    assert said in detail
    assert "--data-binary" in detail


@pytest.mark.parametrize(
    "authorization", ["", "Bearer wrong", "Bearer", "Basic {submit}", "{submit}", "Bearer {merge}"]
)
def test_a_submit_without_a_submit_key_is_403(client: Client, profile: bytes, authorization: str) -> None:
    before = client.total()
    keys = {"submit": client.server.submit_key, "merge": client.server.merge_key}
    # curl sends no header whose value is empty.
    answer = client.submit(profile, "--header", f"Authorization: {authorization.format(**keys)}", key="")
    assert answer.status == 403
    assert client.total() == before


def test_a_refusal_reaches_who_sends_the_whole_body_first(client: Client) -> None:
    """The key is refused before the body is read; a proxy that still sends must not make a 502 of that."""
    answers = [client.submit(bytes(4 << 20), key="wrong") for _ in range(8)]
    assert {answer.status for answer in answers} == {403}


def test_the_scheme_of_a_key_may_be_written_in_any_case(client: Client, profile: bytes) -> None:
    header = f"authorization: bEARER {client.server.submit_key}"
    assert client.submit(profile, "--header", header, key="").status == 204


def test_a_submit_key_does_not_fetch_the_merge(client: Client) -> None:
    assert client.curl("/v1/merge", key=client.server.submit_key).status == 403


@pytest.mark.parametrize("options", [("--request", "GET"), ("--request", "PUT"), ("--head",)])
def test_only_post_submits_whatever_the_key(client: Client, options: tuple[str, ...]) -> None:
    answer = client.curl("/v1/submit", *options)
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize("options", [("--request", "POST"), ("--data", ""), ()], ids=["POST", "data", "GET"])
@pytest.mark.parametrize("accepted", ["identity", "gzip", "br"])
def test_the_merge_is_a_gzipped_profile_whatever_the_client_accepts(
    client: Client, profile: bytes, options: tuple[str, ...], accepted: str
) -> None:
    assert client.submit(profile).status == 204
    answer = client.merge(*options, "--header", f"Accept-Encoding: {accepted}")
    assert answer.status == 200
    assert answer.body.startswith(b"\x1f\x8b")
    assert answer.headers["Content-Encoding"] is None
    assert answer.headers["Content-Type"] in {"application/x-gzip", "application/octet-stream"}
    assert int(answer.headers["Content-Length"]) == len(answer.body)


def test_a_merge_that_has_not_changed_is_not_sent_again(
    client: Client, profile: bytes, another_profile: bytes
) -> None:
    assert client.submit(profile).status == 204
    etag = client.merge("--header", "Accept-Encoding: gzip").headers["ETag"]
    assert etag.startswith('"')  # strong: a proxy that compresses weakens it
    head = client.merge("--head")
    assert (head.status, head.headers["ETag"]) == (200, etag)
    condition = ("--header", f"If-None-Match: {etag}")
    again = client.merge(*condition)
    assert (again.status, again.body, again.headers["ETag"]) == (304, b"", etag)
    assert client.submit(another_profile).status == 204
    assert client.merge(*condition).status == 200


def test_a_combine_keeps_the_sum(client: Client, profile: bytes) -> None:
    assert client.submit(profile).status == 204
    before = client.total()
    combined = client.curl("/v1/merge?and_combine=true", "--request", "POST", key=client.server.merge_key)
    assert (combined.status, total(combined.body)) == (200, before)
    assert client.total() == before
    assert client.submit(profile).status == 204
    assert client.total() == before


def test_health_needs_no_key(client: Client) -> None:
    answer = client.curl("/healthz")
    assert (answer.status, answer.body) == (200, b"OK")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
