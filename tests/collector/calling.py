"""Calls of gRPC with raw bytes, made by grpcio's client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

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
