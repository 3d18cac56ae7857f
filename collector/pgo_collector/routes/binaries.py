"""/v1/binaries: take, list and delete programs, which name functions and make merges in llvm better."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pgo_collector.http.auth import require_service_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import parameters, problems
from pgo_collector.http.routing import Routes
from pgo_collector.http.selections import service_of
from pgo_collector.model.times import format_time
from pgo_collector.store.store import not_stored
from pgo_collector.submits.programs import ProgramUploads

_OF_SERVICE = parameters("service")


def binaries_routes(
    uploads: ProgramUploads, submit_keys: KeyFile, merge_keys: KeyFile, default_service: str
) -> Routes:
    """Return the routes; uploads take submit keys, and the others merge keys."""
    routes, binaries = Routes(), uploads.binaries
    may_submit = [require_service_key(submit_keys, default_service)]
    may_merge = [require_service_key(merge_keys, default_service)]

    @routes.post(
        "/v1/binaries",
        checks=may_submit,
        summary="Store a program that is profiled, which names functions and makes merges in llvm better",
        response_description="The program is stored durably: its build id, SHA-256 and size, and its kind",
        responses=problems(400, 403, 408, 409, 413, 422, 429, 500, 501, 503),
        openapi_extra=parameters("service", body="application/octet-stream"),
    )
    async def upload(request: Request) -> Response:
        service = service_of(request)
        facts = await uploads.take(request, service)
        return JSONResponse({"service": service, **facts._asdict()})

    @routes.get(
        "/v1/binaries",
        checks=may_merge,
        summary="List the programs that are stored, the one that was uploaded last first",
        response_description="The programs",
        responses=problems(400, 403, 500, 503),
        openapi_extra=_OF_SERVICE,
    )
    async def listed(request: Request) -> Response:
        service = service_of(request)
        files = await binaries.all(service)
        entries = [
            {
                "build_id": file.stored.build_id,
                "sha256": file.stored.sha256,
                "size": file.size,
                "kind": file.stored.kind,
                "uploaded": format_time(file.uploaded_nanos // 10**9 * 10**9),
            }
            for file in files
        ]
        return JSONResponse({"service": service, "binaries": entries})

    @routes.get(
        "/v1/binaries/{build_id}",
        checks=may_submit,
        summary="Say whether a program is stored, which then needn't be uploaded",
        response_description="It is: the SHA-256 and the kind of what is stored",
        responses=problems(400, 403, 404, 500, 503),
        openapi_extra=_OF_SERVICE,
    )
    async def one(request: Request, build_id: str) -> Response:
        service = service_of(request)
        stored = await uploads.stored(service, build_id)
        content = {"build_id": stored.build_id, "sha256": stored.sha256, "kind": stored.kind}
        return JSONResponse({"service": service, **content})

    @routes.delete(
        "/v1/binaries/{build_id}",
        status_code=HTTPStatus.NO_CONTENT,
        checks=may_merge,
        summary="Delete a program",
        response_description="The program is deleted",
        responses=problems(400, 403, 404, 500, 503),
        openapi_extra=_OF_SERVICE,
    )
    async def delete(request: Request, build_id: str) -> Response:
        try:
            await binaries.delete(service_of(request), build_id)
        except OSError as error:
            raise not_stored("deletion", error) from error
        return Response(status_code=HTTPStatus.NO_CONTENT)

    return routes
