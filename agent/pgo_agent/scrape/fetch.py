"""Gets one profile from a target, and takes nothing that isn't one."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from contextlib import aclosing
from functools import lru_cache
from pathlib import Path
from typing import IO

import httpx

from pgo_agent.endpoint import GZIP_MAGIC, Bearer
from pgo_agent.errors import ScrapeFailed
from pgo_agent.scrape.target import Profile, Target

_CONNECT_SECONDS = 5.0
_PATIENCE = 15.0
_CHUNK = 1 << 16
_LONGEST_DETAIL = 200
_GZIP = zlib.MAX_WBITS | 16


def client_for(target: Target) -> httpx.AsyncClient:
    """A client for one scrape: nothing of a target, as a cookie, is there for the next.

    It follows no redirect, whose host would be one that nobody named, and goes through no proxy. Raises
    ScrapeFailed if the token or the certificates can't be read.
    """
    try:
        return httpx.AsyncClient(
            auth=None if target.token_file is None else Bearer(target.token_file.read_text()),
            headers={"Accept-Encoding": "identity"},
            verify=_certificates(target.ca_file),
            trust_env=False,
            timeout=None,  # noqa: S113 - fetch has one for all of it
        )
    except (OSError, ValueError) as error:
        raise ScrapeFailed("no token or certificates", str(error)) from error


async def fetch(
    client: httpx.AsyncClient, profile: Profile, seconds: int, limit: int, body: IO[bytes]
) -> None:
    """Writes what a target answers to `body`: at most `limit` bytes, and within `seconds` and a bit.

    Raises ScrapeFailed.
    """
    try:
        async with asyncio.timeout(seconds + _PATIENCE):
            await _get(client, profile.url, limit, body)
    except TimeoutError:
        raise ScrapeFailed("timeout", f"not done {_PATIENCE:.0f} s after the profile should be") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ScrapeFailed(type(error).__name__, str(error)) from error


def check_pprof(body: bytes, limit: int) -> None:
    """Whether this is a pprof profile, of at most `limit` bytes when inflated. Raises ScrapeFailed."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - see CpuProfile
    from pprof_proto.profile_pb2 import Profile as Message  # noqa: PLC0415

    protobuf = _inflated(body, limit) if body.startswith(GZIP_MAGIC) else body
    try:
        message = Message.FromString(protobuf)
    except DecodeError as error:
        raise ScrapeFailed("not a pprof profile", str(error)[:_LONGEST_DETAIL]) from error
    if not message.sample_type or not message.string_table or message.string_table[0]:
        raise ScrapeFailed("not a pprof profile", "no sample types, or no strings")


async def _get(client: httpx.AsyncClient, url: str, limit: int, body: IO[bytes]) -> None:
    request = client.build_request("GET", url, timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS))
    async with aclosing(await client.send(request, stream=True)) as response:
        well = response.status_code == httpx.codes.OK
        # As it comes: who compresses though asked not to sends what is gzip itself, or no profile.
        async for chunk in response.aiter_raw(_CHUNK):
            body.write(chunk)
            if body.tell() > (limit if well else _LONGEST_DETAIL):
                break
    if not well:
        body.seek(0)
        text = body.read(_LONGEST_DETAIL).decode(errors="replace")
        raise ScrapeFailed(f"status {response.status_code}", " ".join(text.split()))
    if body.tell() > limit:
        raise ScrapeFailed("too large", f"more than {limit} bytes")


def _inflated(body: bytes, limit: int) -> bytes:
    inflating = zlib.decompressobj(_GZIP)
    try:
        inflated = inflating.decompress(body, limit + 1)
    except zlib.error as error:
        raise ScrapeFailed("not a pprof profile", str(error)) from error
    if len(inflated) > limit:
        raise ScrapeFailed("too large", f"more than {limit} bytes when inflated")
    if not inflating.eof or inflating.unused_data:
        raise ScrapeFailed("not a pprof profile", "its gzip isn't whole")
    return inflated


@lru_cache(maxsize=64)
def _certificates(ca_file: Path | None) -> ssl.SSLContext:
    """To load the system's certificates takes longer than a request."""
    return httpx.create_ssl_context() if ca_file is None else ssl.create_default_context(cafile=ca_file)
