"""Pyroscope's DebuginfoService: Grafana Alloy and `profilecli debuginfo` upload programs that are profiled.

A client asks whether an upload is wanted, sends the file by a plain POST, and says that it has finished. The
build id alone says which upload it is, so that each call may come to another collector.
"""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.http.auth import require_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import parameters
from pgo_collector.http.routing import Routes
from pgo_collector.routes.push.connect import Messages
from pgo_collector.routes.push.uploads import WANTED, AgentUploads, service_of_key
from pgo_collector.routes.pyroscope import debuginfo_pb2 as messages
from pgo_collector.store.binaries import Binaries
from pgo_collector.store.store import not_stored

_SERVICE = "/debuginfo.v1alpha1.DebuginfoService"


def debuginfo_routes(
    uploads: AgentUploads, binaries: Binaries, read: Messages, submit_keys: KeyFile, merge_keys: KeyFile
) -> Iterator[Routes]:
    """Yield the routes of uploads, which take submit keys, and the others, which take merge keys."""
    routes = Routes(require_key(submit_keys))
    asked = _Uploads(uploads)
    read.serve(
        routes,
        f"{_SERVICE}/ShouldInitiateUpload",
        "Say whether an upload is wanted, as Grafana Alloy and profilecli ask",
        messages.ShouldInitiateUploadRequest,
        asked.should_initiate,
    )
    read.serve(
        routes,
        f"{_SERVICE}/UploadFinished",
        "Say whether an upload is stored, as Grafana Alloy and profilecli ask",
        messages.UploadFinishedRequest,
        asked.finished,
    )

    @routes.post(
        f"{_SERVICE}/Upload/{{build_id}}",
        summary="Store a program or its debug information, as Grafana Alloy and profilecli upload it",
        response_class=Response,
        response_description="The program is stored durably, or already was",
        openapi_extra=parameters(body="application/octet-stream"),
    )
    async def upload(request: Request, build_id: str) -> Response:
        await uploads.take(request, service_of_key(request), build_id.lower())
        return Response()

    yield routes
    routes = Routes(require_key(merge_keys))
    stored = _Stored(binaries)
    read.serve(
        routes,
        f"{_SERVICE}/ListDebuginfo",
        "List programs, as profilecli asks for it",
        messages.ListDebuginfoRequest,
        stored.listed,
    )
    read.serve(
        routes,
        f"{_SERVICE}/DeleteDebuginfo",
        "Delete a program, as profilecli asks for it",
        messages.DeleteDebuginfoRequest,
        stored.delete,
    )
    yield routes


class _Uploads:
    """The calls of those that upload."""

    def __init__(self, uploads: AgentUploads) -> None:
        self._uploads = uploads

    async def should_initiate(
        self, request: Request, asked: messages.ShouldInitiateUploadRequest
    ) -> messages.ShouldInitiateUploadResponse:
        """Say whether an upload is wanted, and why; all others then wait for it."""
        service, build_id = service_of_key(request), asked.file.gnu_build_id.lower()
        unwanted = await self._uploads.reason(service, build_id)
        if not unwanted:
            self._uploads.expect(service, build_id)
        return messages.ShouldInitiateUploadResponse(
            should_initiate_upload=not unwanted, reason=unwanted or WANTED
        )

    async def finished(
        self, request: Request, asked: messages.UploadFinishedRequest
    ) -> messages.UploadFinishedResponse:
        """Check that the program is stored. Raises NoSuchBinary."""
        await self._uploads.programs.stored(service_of_key(request), asked.gnu_build_id.lower())
        return messages.UploadFinishedResponse()


class _Stored:
    """The calls about what is stored."""

    def __init__(self, binaries: Binaries) -> None:
        self._binaries = binaries

    async def listed(
        self, request: Request, _: messages.ListDebuginfoRequest
    ) -> messages.ListDebuginfoResponse:
        """List the programs of the key's service; with a key for all services, the shared ones."""
        answer = messages.ListDebuginfoResponse()
        for file in await self._binaries.all(service_of_key(request)):
            added = answer.object.add(state=messages.ObjectMetadata.STATE_UPLOADED, size_bytes=file.size)
            added.file.gnu_build_id = file.stored.build_id
            added.finished_at.FromNanoseconds(file.uploaded_nanos)
        return answer

    async def delete(
        self, request: Request, asked: messages.DeleteDebuginfoRequest
    ) -> messages.DeleteDebuginfoResponse:
        """Delete one of these programs. Raises NoSuchBinary and NotStored."""
        try:
            await self._binaries.delete(service_of_key(request), asked.gnu_build_id.lower())
        except OSError as error:
            raise not_stored("deletion", error) from error
        return messages.DeleteDebuginfoResponse()
