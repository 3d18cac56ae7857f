"""The route to which OTLP's senders export profiles.

Where some profiles of a request are refused for good, the answer is a partial success, which no sender sends
again. Where a later attempt may succeed, it is an error that senders do send again: what is stored already
isn't stored twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from types import MappingProxyType

from pprof_merge import ProfileError
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.engine.start_lines import Tables
from pgo_collector.errors import (
    ContentTypeUnknown,
    KeyRefused,
    NotStored,
    ParameterInvalid,
    PushRefused,
    Refusal,
)
from pgo_collector.http.auth import context_of, require_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import parameters
from pgo_collector.http.problems import Dialect, Failure, describe_error
from pgo_collector.http.routing import Routes
from pgo_collector.routes.otlp.export_pb2 import ExportResponse, PartialSuccess
from pgo_collector.routes.otlp.naming import patterns_of
from pgo_collector.routes.otlp.unpack import ExportOptions, unpack_export
from pgo_collector.routes.push.connect import media_type_of
from pgo_collector.routes.push.naming import sender_of
from pgo_collector.settings import Settings
from pgo_collector.submits.submits import Submits

EXPORT = "/v1development/profiles"
PROTOBUF = ("application/x-protobuf", "application/protobuf")
JSON = "application/json"

# The codes of google.rpc.Code for each status. What isn't here is an invalid argument, which no sender sends
# again.
_CODES: Mapping[int, int] = MappingProxyType(
    {401: 16, 403: 7, 404: 12, 405: 12, 408: 4, 415: 3, 429: 8, 500: 13, 503: 14}
)
_INVALID = 3
# The header of opentelemetry-proto's pull request 857, for when the wire changes again; there is only 1 yet.
_VERSION = "OTLP-Profiles-Development-Version"
_KNOWN_VERSIONS = {"", "1"}
_ENCODINGS = {"", "identity", "gzip", "zstd", "lz4"}
_SERVER_ERROR = 500


def _error(failure: Failure) -> Response:
    """Return an error of OTLP: a google.rpc.Status in the content type of the request."""
    if isinstance(failure.error, KeyRefused):
        failure = failure._replace(status=HTTPStatus.UNAUTHORIZED)
    elif failure.has(NotStored):  # senders don't send again after a 500
        failure = failure.to_retry()
    elif failure.status == HTTPStatus.UNPROCESSABLE_ENTITY:
        failure = failure._replace(status=HTTPStatus.BAD_REQUEST)
    code = _CODES.get(failure.status, _INVALID)
    if media_type_of(failure.request) == JSON:
        content, media_type = json.dumps({"code": code, "message": failure.detail}).encode(), JSON
    else:
        content, media_type = _status(code, failure.detail.encode(errors="replace")), PROTOBUF[0]
    return Response(content, failure.status.value, failure.headers, media_type)


def _status(code: int, message: bytes) -> bytes:
    """Return a google.rpc.Status as protobuf: the code is field 1, the message field 2."""
    length = len(message)  # of at most 501 characters, so that two bytes hold it
    return bytes((0x08, code, 0x12, length & 0x7F | 0x80, length >> 7)) + message


OTLP = Dialect((), _error, submits=(EXPORT,), others=(EXPORT,))


def otlp_routes(submits: Submits, keys: KeyFile, settings: Settings, start_lines: Tables) -> Routes:
    """Return the route; `start_lines` are the tables of the start lines that profiles get."""
    routes = Routes(require_key(keys))
    labels, sample_labels = map(patterns_of, (settings.otlp_labels, settings.otlp_sample_labels))

    @routes.post(
        EXPORT,
        summary="Store profiles, as OpenTelemetry's profilers and Collector export them",
        response_class=Response,
        response_description="The profiles are stored durably, or the answer says which are refused",
        openapi_extra=parameters(body=PROTOBUF[0]),
    )
    async def export(request: Request) -> Response:
        media_type = media_type_of(request)
        _check_headers(request, media_type)
        is_json = media_type == JSON
        options = ExportOptions(
            is_json, settings.otlp_profiles, labels, sample_labels, sender_of(request), start_lines
        )
        rejected = ExportResponse()
        try:
            await submits.push(request, partial(unpack_export, options))
        except (Refusal, ProfileError, PushRefused) as error:
            status, detail, _ = describe_error(request, error)
            if not context_of(request).submits or status >= _SERVER_ERROR:
                raise
            context_of(request).problem = type(error).__name__
            count = len(error.errors) if isinstance(error, PushRefused) else 1
            rejected.partial_success.MergeFrom(PartialSuccess(rejected_profiles=count, error_message=detail))
        content = _json_of(rejected) if is_json else rejected.SerializeToString()
        return Response(content, media_type=media_type)

    return routes


def _check_headers(request: Request, media_type: str) -> None:
    """Raise ContentTypeUnknown or ParameterInvalid for a body that can't be read."""
    if media_type not in {*PROTOBUF, JSON}:
        raise ContentTypeUnknown(f"send the request as {PROTOBUF[0]} or {JSON}", f"{PROTOBUF[0]}, {JSON}")
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        raise ContentTypeUnknown(
            f"Content-Encoding: {encoding[:50]} isn't read: send gzip, zstd, lz4, or none",
            f"{PROTOBUF[0]}, {JSON}",
        )
    version = request.headers.get(_VERSION, "").strip()
    if version not in _KNOWN_VERSIONS:
        raise ParameterInvalid(f"{_VERSION}: {version[:50]} isn't known, only 1 is")


def _json_of(response: ExportResponse) -> bytes:
    if not response.HasField("partial_success"):
        return b"{}"
    of = response.partial_success
    return json.dumps(
        {
            "partialSuccess": {
                "rejectedProfiles": str(of.rejected_profiles),  # 64-bit numbers are strings in OTLP's JSON
                "errorMessage": of.error_message,
            }
        }
    ).encode()
