"""OTLP over gRPC: the same as over HTTP, called by grpcio's client."""

from __future__ import annotations

import gzip
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from backports import zstd
from pgo_collector.routes.otlp.export_pb2 import ExportRequest, ExportResponse

from tests.collector import calling
from tests.collector.calling import KEY, PATIENCE_SECONDS, answer_to_frames, channel_to, refused_call
from tests.collector.exporting import Export, of_stack, speaks_grpc
from tests.collector.pushing import stored
from tests.server import Server

pytestmark = pytest.mark.any_store

_NGINX = """
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/errors info;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    client_max_body_size 0;
    upstream collector {{ server {to}; keepalive 4; }}
    server {{
        listen {address} http2;
        location / {{ grpc_pass grpc://collector; }}
    }}
}}
"""
METHOD = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that takes two calls at a time."""
    settings = {"PGOF_GRPC_CALLS": "2", "PGOF_BODY_TIMEOUT": "300"}
    with speaks_grpc(tmp_path_factory.mktemp("grpc"), settings) as server:
        yield server


def call(server: Server, message: bytes, **how: Any) -> bytes:
    """Export a message, and return the raw answer."""
    return calling.call(server, message, METHOD, **how)


def refused(server: Server, message: bytes, method: str = METHOD, **how: Any) -> tuple[grpc.StatusCode, str]:
    """Return the code and the message of an export that is refused."""
    return refused_call(server, message, method, **how)


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
@pytest.mark.parametrize("before", [False, True], ids=["1.10", "1.9"])
def test_a_call_stores_profiles(server: Server, compression: grpc.Compression, *, before: bool) -> None:
    service = f"called-{compression.name}-{before}"
    body = of_stack("function-in-a-call" * 50, service, 3, before=before, k8s_pod_name="p")
    assert call(server, body, compression=compression) == b""
    assert call(server, body, compression=compression) == b""  # as a sender that lost the answer
    assert stored(server, service) == [("process_cpu", {"k8s_pod_name": "p"})]


def test_what_clients_compress_is_read_or_refused_by_name(server: Server) -> None:
    for encoding, compress in (("zstd", zstd.compress), ("gzip", gzip.compress)):
        body = compress(of_stack("a", f"encoded-by-{encoding}"))
        answer = answer_to_frames(server, body, METHOD, ("grpc-encoding", encoding))
        assert answer["grpc-status"] == "0", answer
        assert stored(server, f"encoded-by-{encoding}") == [("process_cpu", {})]
    for encoding in ("snappy", "deflate", "x" * 1000):
        answer = answer_to_frames(server, b"whatever", METHOD, ("grpc-encoding", encoding))
        assert (answer["grpc-status"], answer["grpc-accept-encoding"]) == ("12", "identity,gzip,zstd")
        assert answer["grpc-message"].endswith("isn't read: send gzip, zstd, or none")
        assert encoding[:50] in answer["grpc-message"]


def test_what_is_no_call_is_refused(server: Server) -> None:
    assert answer_to_frames(server, b"", METHOD, ("content-type", "text/plain"))[":status"] == "415"
    assert answer_to_frames(server, b"", "/")["grpc-status"] == "12"
    assert not server.events("unexpected error")


def test_the_access_log_and_the_tenant_are_those_of_http(server: Server) -> None:
    call(server, of_stack("a", "tenants"), metadata=(*KEY, ("x-scope-orgid", "eu")))
    assert stored(server, "tenants") == [("process_cpu", {"tenant": "eu"})]
    lines = [line for line in server.events("request") if line["path"] == "/v1development/profiles"]
    assert (lines[-1]["status"], lines[-1]["bytes"] > 0) == (200, True)


def test_an_empty_message_is_a_success(server: Server) -> None:
    assert call(server, b"") == b""


def test_part_of_a_call_may_be_refused(server: Server) -> None:
    request = Export()
    request.resource({"service.name": "parts"})
    for count in (2, 0):
        request.profile()
        request.sample([("a", "", 0)], timestamps=count)
    partial = ExportResponse.FromString(call(server, request.body)).partial_success
    assert partial.rejected_profiles == 1
    assert "neither values nor timestamps" in partial.error_message


def test_refusals_have_the_codes_that_senders_know(server: Server) -> None:
    good = of_stack("a", "codes")
    code, details = refused(server, b"hello")
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "ExportProfilesServiceRequest" in details
    code, details = refused(server, good, metadata=())
    assert code == grpc.StatusCode.UNAUTHENTICATED
    assert "no key" in details
    code, _ = refused(server, good, method=METHOD.replace("v1development", "v1experimental"))
    assert code == grpc.StatusCode.UNIMPLEMENTED
    code, details = refused(server, good, metadata=(*KEY, ("otlp-profiles-development-version", "2")))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "only 1 is" in details
    ancient = ExportRequest.FromString(good)
    ancient.dictionary.ClearField("stack_table")
    code, details = refused(server, ancient.SerializeToString())
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "version 1.7" in details


def test_large_messages_and_bombs_are_refused(server: Server) -> None:
    request = Export()
    request.resource({"service.name": "large"})
    request.profile()
    request.sample([(f"{number}-{'x' * 4000}", "", 0) for number in range(1500)], timestamps=1)
    assert 5 << 20 < len(request.body) < 8 << 20  # gRPC's own limit is 4 MiB
    assert call(server, request.body) == b""
    for megabytes in (9, 100):
        code, details = refused(server, bytes(megabytes << 20))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert "PGOF_MAX_COMPRESSED_BYTES" in details
    code, details = refused(server, bytes(200 << 20), compression=grpc.Compression.Gzip)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "PGOF_MAX_INFLATED_BYTES" in details
    code, details = refused(server, gzip.compress(bytes(100 << 20)))
    assert "PGOF_MAX_INFLATED_BYTES" in details
    assert not server.events("unexpected error")


def silent_until(event: threading.Event) -> Iterator[bytes]:
    """Yield an empty message once the event is set."""
    event.wait(PATIENCE_SECONDS)
    yield b""


def test_many_calls_at_once_are_bounded(server: Server) -> None:
    with ExitStack() as stack:
        channels = [stack.enter_context(channel_to(server)) for _ in range(3)]
        event, ended = threading.Event(), queue.SimpleQueue[Any]()
        for channel in channels:
            made: Any = channel.stream_unary(METHOD)
            future = made.future(silent_until(event), metadata=KEY)
            future.add_done_callback(ended.put)
        refusal = ended.get(timeout=PATIENCE_SECONDS).exception()
        assert refusal.code() == grpc.StatusCode.UNAVAILABLE
        assert "PGOF_GRPC_CALLS" in refusal.details()
        event.set()
        assert [ended.get(timeout=PATIENCE_SECONDS).result() for _ in range(2)] == [b"", b""]


def test_a_call_that_its_client_gives_up_is_no_request(server: Server) -> None:
    for seconds in (1, 4, 16, 64):  # until it has arrived before it is given up
        event = threading.Event()
        with channel_to(server) as channel:
            made: Any = channel.stream_unary(METHOD)
            error = made.future(silent_until(event), metadata=KEY, timeout=seconds).exception(
                PATIENCE_SECONDS
            )
            event.set()
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        time.sleep(1)
        if 499 in {line["status"] for line in server.events("request")}:
            return
    pytest.fail(str(server.events("request")))


@pytest.mark.system("nginx")
def test_calls_behind_nginx_have_the_same_answers(server: Server, tmp_path: Path) -> None:
    to = server.wait_for_log("listening for gRPC")["address"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    (tmp_path / "nginx.conf").write_text(_NGINX.format(folder=tmp_path, address=address, to=to))
    with subprocess.Popen(["nginx", "-c", tmp_path / "nginx.conf"]) as nginx:
        try:
            with grpc.insecure_channel(address, [("grpc.max_send_message_length", -1)]) as channel:
                made: Any = channel.unary_unary(METHOD)

                def code(body: bytes, key: tuple[tuple[str, str], ...] = KEY) -> grpc.StatusCode:
                    try:
                        made(body, metadata=key, timeout=PATIENCE_SECONDS, wait_for_ready=True)
                    except grpc.RpcError as error:
                        return error.code()
                    return grpc.StatusCode.OK

                for count in range(1, 20):
                    body = of_stack("x" * 1000 * count, "behind-nginx", count)
                    assert code(body) == grpc.StatusCode.OK
                    assert code(body, ()) == grpc.StatusCode.UNAUTHENTICATED
                assert code(bytes(9 << 20)) == grpc.StatusCode.INVALID_ARGUMENT
        finally:
            nginx.terminate()
    assert "upstream rejected" not in (tmp_path / "errors").read_text()


def test_an_address_in_use_ends_the_start(server: Server, tmp_path: Path) -> None:
    taken = server.wait_for_log("listening for gRPC")["address"]
    other = speaks_grpc(tmp_path, {"PGOF_GRPC_ADDRESS": taken})
    finished = other.run("serve")
    assert finished.returncode != 0
    assert "PGOF_GRPC_ADDRESS" in finished.stderr
