"""Answer /profile/cpu: POST takes a profile, GET tells whether one is running, DELETE stops it.

The interface is the compute profiler's.
"""

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

from pgo_agent.backends import ProcessSampler
from pgo_agent.errors import AgentError
from pgo_agent.native import native_profile
from pgo_agent.serve.capture_request import CaptureRequest, RequestRefused
from pgo_agent.serve.captures import Capture, CaptureLock

_log = logging.getLogger(__name__)
_LARGEST_BODY = 1 << 16
_BODY_SECONDS = 10.0
PATH = "/profile/cpu"


@dataclass(frozen=True, slots=True)
class CaptureRoutes:
    """The handlers of /profile/cpu, and their settings.

    `names` are the processes to sample, `allowed_programs` the profilers that requests may name by path.
    `key` is required with every request; None means no key, which is only safe on loopback.
    """

    lock: CaptureLock
    names: tuple[str, ...]
    allowed_programs: Collection[str] = ()
    key: str | None = field(default=None, repr=False)

    async def post(self, request: Request) -> Response:
        """Take a profile and answer with it; 204 if it was stopped early and a partial one isn't wanted."""
        self._check_key(request)
        asked = CaptureRequest.parse(await _json_body(request), self.allowed_programs)
        capture = self.lock.start(partial=_wants_partial(request))
        if capture is None:
            raise RequestRefused(409, "Profiling is already in progress.")
        taking = asyncio.create_task(asyncio.to_thread(self._take, asked, capture))
        gone = asyncio.create_task(_until_gone(request))
        await asyncio.wait((taking, gone), return_when=asyncio.FIRST_COMPLETED)
        if not gone.cancel():
            capture.stop()
        try:
            profile = await taking
        except (AgentError, OSError) as error:
            _log.warning("%s gave no profile: %s", asked.backend.name, error)
            raise RequestRefused(500, f"Failed to generate pprof data: {error}") from error
        return Response(status_code=204) if profile is None else _download(profile, archive=asked.archive)

    async def get(self, request: Request) -> Response:
        """Answer 200 if a profile is being taken, 204 if not."""
        self._check_key(request)
        if self.lock.running is None:
            return Response(status_code=204)
        return JSONResponse("Profiling is currently in progress.")

    async def delete(self, request: Request) -> Response:
        """Stop the running capture; answer once it is over and its profiler's process has ended."""
        self._check_key(request)
        capture = self.lock.running
        if capture is None:
            raise RequestRefused(412, "Profiling is not in progress, there is nothing to stop.")
        capture.stop(partial=_wants_partial(request))
        await asyncio.to_thread(capture.finished.wait)
        return JSONResponse("Profiling stopped successfully.")

    def _take(self, asked: CaptureRequest, capture: Capture) -> bytes | None:
        """Return the gzipped profile; None if it was stopped and no partial profile is wanted or possible."""
        sampler = ProcessSampler(asked.backend, self.names, asked.frequency)
        try:
            recording = sampler.record(asked.duration, capture.ended)
            unwanted = capture.stopped and not capture.partial
            return None if unwanted else native_profile(recording)
        except AgentError:
            if capture.stopped:  # perhaps before it gave a sample
                return None
            raise
        finally:
            self.lock.finish(capture)

    def _check_key(self, request: Request) -> None:
        if self.key is None:
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        # Comparing digests keeps the key's length out of the timing, too.
        same = hmac.compare_digest(
            sha256(given.strip().encode()).digest(), sha256(self.key.encode()).digest()
        )
        if scheme.lower() != "bearer" or not same:
            raise RequestRefused(401, "A key is needed: Authorization: Bearer KEY.")


def create_app(routes: CaptureRoutes) -> Starlette:
    """Return the ASGI application of `pgo-agent serve`."""
    return Starlette(
        routes=[
            Route(PATH, routes.post, methods=["POST"]),
            Route(PATH, routes.get, methods=["GET"]),
            Route(PATH, routes.delete, methods=["DELETE"]),
        ],
        exception_handlers={RequestRefused: _refused, HTTPException: _refused},
    )


async def _refused(_: Request, error: Exception) -> Response:
    """Return an error response, whose body is its message as a JSON string."""
    if isinstance(error, RequestRefused):
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
        return JSONResponse(error.reason, error.status, headers)
    assert isinstance(error, HTTPException)  # noqa: S101 - the only other error handled here
    return JSONResponse(error.detail, error.status_code, error.headers)


async def _json_body(request: Request) -> bytes:
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestRefused(415, "The body must be application/json.")
    body = b""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _LARGEST_BODY:
                    raise RequestRefused(413, f"The body is larger than {_LARGEST_BODY} bytes.")
    except TimeoutError:
        raise RequestRefused(408, "The body did not come in time.") from None
    return body


async def _until_gone(request: Request) -> None:
    """Return when the client has closed its connection."""
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
