"""The routes of `pgo-agent serve`: /profile/cpu, as compute nodes have it."""

from __future__ import annotations

import asyncio
import gzip
import hmac
import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import sha256

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pgo_agent.errors import AgentError
from pgo_agent.native.native_profile import native_profile
from pgo_agent.process_sampler import ProcessSampler
from pgo_agent.serve.order import Order
from pgo_agent.serve.refusal import Refusal
from pgo_agent.serve.turn import Running, Turn

_log = logging.getLogger(__name__)
_LARGEST_BODY = 1 << 16
_BODY_SECONDS = 10.0
PATH = "/profile/cpu"


@dataclass(frozen=True, slots=True)
class Profiling:
    """What the routes are over: the processes to sample, and the programs that requests may name.

    `key` is asked for with every request; None if nobody but this machine can ask.
    """

    turn: Turn
    names: tuple[str, ...]
    allowed: Collection[str] = ()
    key: str | None = field(default=None, repr=False)

    async def post(self, request: Request) -> Response:
        """Takes a profile. If it is ended early by others, that is 204, unless the partial one is wanted."""
        self._check_key(request)
        order = Order.parse(await _json_body(request), self.allowed)
        running = self.turn.begin(partial=_wants_partial(request))
        if running is None:
            raise Refusal(409, "Profiling is already in progress.")
        taking = asyncio.create_task(asyncio.to_thread(self._take, order, running))
        gone = asyncio.create_task(_until_gone(request))
        await asyncio.wait((taking, gone), return_when=asyncio.FIRST_COMPLETED)
        if not gone.cancel():
            running.stop()
        try:
            profile = await taking
        except (AgentError, OSError) as error:
            _log.warning("no profile by %s: %s", order.backend.name, error)
            raise Refusal(500, f"Failed to generate pprof data: {error}") from error
        return Response(status_code=204) if profile is None else _download(profile, archive=order.archive)

    async def get(self, request: Request) -> Response:
        """Whether one is being taken."""
        self._check_key(request)
        if self.turn.running is None:
            return Response(status_code=204)
        return JSONResponse("Profiling is currently in progress.")

    async def delete(self, request: Request) -> Response:
        """Ends the one that is being taken; answers when that is over, and none of its processes is left."""
        self._check_key(request)
        running = self.turn.running
        if running is None:
            raise Refusal(412, "Profiling is not in progress, there is nothing to stop.")
        running.stop(partial=_wants_partial(request))
        await asyncio.to_thread(running.over.wait)
        return JSONResponse("Profiling stopped successfully.")

    def _take(self, order: Order, running: Running) -> bytes | None:
        """The gzipped profile; None if it was stopped, and nothing is wanted or there of what was sampled."""
        sampler = ProcessSampler(order.backend, self.names, order.frequency)
        try:
            recording = sampler.record(order.duration, running.ended)
            unwanted = running.stopped and not running.partial
            return None if unwanted else native_profile(recording)
        except AgentError:
            if running.stopped:  # it may not even have started
                return None
            raise
        finally:
            self.turn.end(running)

    def _check_key(self, request: Request) -> None:
        if self.key is None:
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        # Digests, so that the time tells nothing of the key's length either.
        same = hmac.compare_digest(
            sha256(given.strip().encode()).digest(), sha256(self.key.encode()).digest()
        )
        if scheme.lower() != "bearer" or not same:
            raise Refusal(401, "A key is needed: Authorization: Bearer KEY.")


def create_app(profiling: Profiling) -> Starlette:
    """The whole of the HTTP interface."""
    return Starlette(
        routes=[
            Route(PATH, profiling.post, methods=["POST"]),
            Route(PATH, profiling.get, methods=["GET"]),
            Route(PATH, profiling.delete, methods=["DELETE"]),
        ],
        exception_handlers={Refusal: _refused, HTTPException: _refused},
    )


async def _refused(_: Request, error: Exception) -> Response:
    """Every message is a JSON string."""
    if isinstance(error, Refusal):
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
        return JSONResponse(error.reason, error.status, headers)
    assert isinstance(error, HTTPException)  # noqa: S101 - nothing else is handled here
    return JSONResponse(error.detail, error.status_code, error.headers)


async def _json_body(request: Request) -> bytes:
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, "The body must be application/json.")
    body = b""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _LARGEST_BODY:
                    raise Refusal(413, f"The body is larger than {_LARGEST_BODY} bytes.")
    except TimeoutError:
        raise Refusal(408, "The body did not come in time.") from None
    return body


async def _until_gone(request: Request) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _wants_partial(request: Request) -> bool:
    return request.query_params.get("partial") == "true"


def _download(profile: bytes, *, archive: bool) -> Response:
    if archive:
        content, kind, name = profile, "application/gzip", "profile.pb.gz"
    else:
        content, kind, name = gzip.decompress(profile), "application/octet-stream", "profile.pb"
    return Response(
        content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
