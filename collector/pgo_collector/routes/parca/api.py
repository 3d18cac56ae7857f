"""The routes to which Parca's scraper forwards profiles, and those of `debuginfo` beside them.

They have the paths of gRPC's methods, and Connect's errors.
"""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.errors import ContentTypeUnknown, NotOffered
from pgo_collector.http.auth import require_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import parameters
from pgo_collector.http.problems import Dialect
from pgo_collector.http.routing import Routes
from pgo_collector.routes.parca.debuginfo import STREAMS, UNARY, debuginfo_routes
from pgo_collector.routes.parca.write_raw import WriteOptions, unpack_write_raw
from pgo_collector.routes.push.connect import PROTOBUF, Messages, connect_error, media_type_of
from pgo_collector.routes.push.naming import sender_of
from pgo_collector.routes.push.uploads import AgentUploads
from pgo_collector.settings import Settings
from pgo_collector.submits.submits import Submits

_STORE = "/parca.profilestore.v1alpha1.ProfileStoreService"
_WRITE_RAW = f"{_STORE}/WriteRaw"
_ARROW = tuple(f"{_STORE}/{method}" for method in ("Write", "WriteArrow"))
# The methods of one message, and those to which a client streams messages.
METHODS = (_WRITE_RAW, *_ARROW, *UNARY)
STREAM_METHODS = STREAMS
_NO_ARROW = (
    "profiles as records of Arrow aren't read, only pprof: let Parca's scraper forward it by WriteRaw, or"
    " send the host's profiles by OTLP"
)


PARCA = Dialect(("/parca.",), connect_error, submits=(_WRITE_RAW,))


def parca_routes(
    submits: Submits, uploads: AgentUploads, read: Messages, keys: KeyFile, settings: Settings
) -> Routes:
    """Return the routes."""
    routes = Routes(require_key(keys))

    @routes.post(
        _WRITE_RAW,
        summary="Store profiles, as Parca's scraper forwards them",
        response_class=Response,
        response_description="The profiles are stored durably, or already were",
        openapi_extra=parameters(body=PROTOBUF),
    )
    async def write_raw(request: Request) -> Response:
        if media_type_of(request) != PROTOBUF:
            raise ContentTypeUnknown(f"send the request as {PROTOBUF}", PROTOBUF)
        options = WriteOptions(settings.push_profiles, sender_of(request))
        await submits.push(request, partial(unpack_write_raw, options))
        return Response(media_type=PROTOBUF)

    async def refuse_arrow(_: Request) -> Response:
        raise NotOffered(_NO_ARROW)

    for path in _ARROW:
        routes.post(path, include_in_schema=False)(refuse_arrow)
    debuginfo_routes(routes, uploads, read, settings)
    return routes
