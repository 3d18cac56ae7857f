"""The routes that Datadog's tracers and agents upload profiles to, and ask what is supported."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pgo_collector.errors import BodyTooSlow, NotStored, PushInvalid
from pgo_collector.http.auth import allow_anyone, context_of, require_key
from pgo_collector.http.forms import FORM, form_boundary, is_form
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import NO_KEY_NEEDED, parameters
from pgo_collector.http.problems import Dialect, Failure
from pgo_collector.http.routing import Routes
from pgo_collector.routes.datadog.upload import UploadOptions, unpack_upload
from pgo_collector.routes.push.naming import UNKNOWN_SERVICE, Sender
from pgo_collector.submits.submits import Submits

UPLOAD = "/profiling/v1/input"
INFO = "/info"
KEY_HEADER = "DD-API-KEY"
# Tags that an agent adds when it forwards an upload.
_AGENT_TAGS = "X-Datadog-Additional-Tags"
# Of an agent's answer: what tracers ask for before they upload. There is no endpoint for traces or metrics.
_INFO = {
    "version": f"pgo-collector {version('pgo-collector')}",
    "endpoints": [UPLOAD, INFO],
    "client_drop_p0s": True,
    "config": {},
}


def _error(failure: Failure) -> Response:
    """Return an error as Datadog's intake answers it: JSON with a list of `errors`.

    Tracers that send a profile again do so after a 5xx or 429, and never after another 4xx.
    """
    if failure.has(NotStored, BodyTooSlow):
        failure = failure.to_retry()
    return JSONResponse({"errors": [failure.detail]}, failure.status.value, failure.headers)


DATADOG = Dialect((), _error, submits=(UPLOAD,), others=(UPLOAD,))


def datadog_routes(submits: Submits, keys: KeyFile, most_profiles: int, *, is_open: bool) -> Routes:
    """Return the routes; an upload needs one of the keys, or none if they are open.

    One upload may have `most_profiles` profiles, also after those of many sample types are split.
    """
    routes = Routes()

    @routes.post(
        UPLOAD,
        summary="Store profiles, as Datadog's tracers and agents upload them",
        response_description="The profiles are stored durably, or already were",
        openapi_extra=parameters(body=FORM),
        checks=[allow_anyone if is_open else require_key(keys, KEY_HEADER)],
    )
    async def upload(request: Request) -> Response:
        content_type = request.headers.get("Content-Type", "")
        boundary = form_boundary(content_type) if is_form(content_type) else ""
        if not boundary:
            raise PushInvalid(f"send the profiles as {FORM} with a boundary")
        service = context_of(request).caller.scope.only_service or UNKNOWN_SERVICE
        agent_tags = request.headers.get(_AGENT_TAGS, "")
        options = UploadOptions(boundary, most_profiles, agent_tags, Sender(service))
        await submits.push(request, partial(unpack_upload, options))
        return JSONResponse({})

    @routes.get(
        INFO,
        summary="Say that profiles are taken, as Datadog's agent does",
        response_description="The paths that tracers can send to",
        openapi_extra=NO_KEY_NEEDED,
    )
    async def info(_: Request) -> Response:
        return JSONResponse(_INFO)

    return routes
