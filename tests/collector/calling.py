"""Calls of gRPC with raw bytes, made by grpcio's client."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import StreamEnded

from tests.server import Server

PATIENCE_SECONDS = 120.0
KEY = (("authorization", f"Bearer {Server.submit_key}"),)


@contextmanager
def channel_to(server: Server) -> Iterator[grpc.Channel]:
    """Open a channel with a connection of its own."""
    address = server.wait_for_log("listening for gRPC")["address"]
    options = [
        ("grpc.max_send_message_length", -1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    ]
    with grpc.insecure_channel(address, options) as channel:
        yield channel


def call(
    server: Server,
    message: bytes,
    method: str,
    metadata: tuple[tuple[str, str], ...] = KEY,
    compression: grpc.Compression = grpc.Compression.NoCompression,
) -> bytes:
    """Make a unary call with raw bytes, and return the raw answer."""
    with channel_to(server) as channel:
        made: Any = channel.unary_unary(method)
        answer: bytes = made(
            message,
            metadata=metadata,
            timeout=PATIENCE_SECONDS,
            compression=compression,
            wait_for_ready=True,
        )
        return answer


def refused_call(server: Server, message: bytes, method: str, **how: object) -> tuple[grpc.StatusCode, str]:
    """Return the code and the message of a call that is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        call(server, message, method, **how)  # type: ignore[arg-type]
    error: Any = caught.value
    return error.code(), error.details()


def answer_to_frames(server: Server, message: bytes, method: str, *fields: tuple[str, str]) -> dict[str, str]:
    """Make a call by HTTP/2 itself, with these fields besides, and return the fields of the answer."""
    host, _, port = server.wait_for_log("listening for gRPC")["address"].rpartition(":")
    head = {
        ":method": "POST", ":scheme": "http", ":path": method, ":authority": "collector",
        **dict(KEY), "content-type": "application/grpc", "te": "trailers", **dict(fields),
    }  # fmt: skip
    client = H2Connection(H2Configuration(header_encoding="utf-8"))
    client.initiate_connection()
    client.send_headers(1, [*head.items()])
    client.send_data(1, b"\1" + len(message).to_bytes(4) + message, end_stream=True)
    answer: dict[str, str] = {}
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(client.data_to_send())
        while received := connection.recv(1 << 16):
            for event in client.receive_data(received):
                answer |= dict(getattr(event, "headers", None) or ())
                if isinstance(event, StreamEnded):
                    return answer
            connection.sendall(client.data_to_send())
    return answer
