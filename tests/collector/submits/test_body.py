"""Bodies that outgrow memory are in their files as they were sent, however many arrive at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_collector.errors import NotStored
from pgo_collector.settings import Settings
from pgo_collector.submits.body import BodyBound, BodyReader
from starlette.requests import Request
from starlette.types import Message

pytestmark = pytest.mark.any_store

_PIECE = 200 << 10


def request_with(pieces: list[bytes]) -> Request:
    """Return a request whose body arrives in these pieces, other requests' pieces in between."""
    left: Iterator[bytes] = iter(pieces)

    async def receive() -> Message:
        await asyncio.sleep(0)
        piece = next(left, None)
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


def test_large_bodies_are_whole_in_their_files(tmp_path: Path) -> None:
    sent = [[os.urandom(_PIECE) for _ in range(7)] for _ in range(3)]

    async def run() -> None:
        reader = BodyReader(Settings(), tmp_path)

        async def read(number: int) -> None:
            async with reader.read(request_with(sent[number]), BodyBound(1 << 30), "a profile") as body:
                assert (body.size, body.content) == (7 * _PIECE, body.part)
                assert body.part.read_bytes() == b"".join(sent[number])

        await asyncio.gather(*map(read, range(3)))

    asyncio.run(run())
    assert not [*tmp_path.iterdir()]


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        reader = BodyReader(Settings(), tmp_path / "missing")
        request = request_with([bytes(_PIECE)] * 7)
        with pytest.raises(NotStored):
            async with reader.read(request, BodyBound(1 << 30), "a profile"):
                pass

    asyncio.run(run())
