"""The routes to which Parca's scraper forwards profiles, and at which its agent asks whether to upload.

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
from pgo_collector.routes.parca.parca_pb2 import ShouldInitiateUploadResponse
from pgo_collector.routes.parca.write_raw import WriteOptions, unpack_write_raw
from pgo_collector.routes.push.connect import PROTOBUF, connect_error, media_type_of
from pgo_collector.routes.push.naming import sender_of
from pgo_collector.submits.submits import Submits

_STORE = "/parca.profilestore.v1alpha1.ProfileStoreService"
_DEBUGINFO = "/parca.debuginfo.v1alpha1.DebuginfoService"
_WRITE_RAW = f"{_STORE}/WriteRaw"
_SHOULD_UPLOAD = f"{_DEBUGINFO}/ShouldInitiateUpload"
_ARROW = tuple(f"{_STORE}/{method}" for method in ("Write", "WriteArrow"))
_UPLOADS = tuple(f"{_DEBUGINFO}/{method}" for method in ("InitiateUpload", "Upload", "MarkUploadFinished"))
METHODS = (_WRITE_RAW, _SHOULD_UPLOAD, *_ARROW, *_UPLOADS)
_NO_ARROW = (
    "profiles as records of Arrow aren't read, only pprof: let Parca's scraper forward it by WriteRaw, or"
    " send the host's profiles by OTLP"
)
# The agent doesn't ask again for a binary that it has asked for, whatever the reason.
_NO_UPLOAD = "binaries and their debug information aren't taken"


PARCA = Dialect(("/parca.",), connect_error, submits=(_WRITE_RAW,))


def parca_routes(submits: Submits, keys: KeyFile, most_profiles: int) -> Routes:
    """Return the routes; one request may have `most_profiles` profiles."""
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
        options = WriteOptions(most_profiles, sender_of(request))
        await submits.push(request, partial(unpack_write_raw, options))
        return Response(media_type=PROTOBUF)

    @routes.post(
        _SHOULD_UPLOAD,
        summary="Tell Parca's agent not to upload a binary",
        response_class=Response,
        response_description="No binary is taken",
        openapi_extra=parameters(body=PROTOBUF),
    )
    async def should_upload(_: Request) -> Response:
        answer = ShouldInitiateUploadResponse(reason=_NO_UPLOAD)
        return Response(answer.SerializeToString(), media_type=PROTOBUF)

    async def refuse_arrow(_: Request) -> Response:
        raise NotOffered(_NO_ARROW)

    async def refuse_upload(_: Request) -> Response:
        raise NotOffered(_NO_UPLOAD)

    for paths, refuse in ((_ARROW, refuse_arrow), (_UPLOADS, refuse_upload)):
        for path in paths:
            routes.post(path, include_in_schema=False)(refuse)
    return routes
