"""/v1/releases: the list of releases, and how people have a say in which one pipelines get."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from pgo_collector.http.auth import bearer_of
from pgo_collector.http.keys import KeyFile
from pgo_collector.releases.release import Choice, Release, number_of
from pgo_collector.releases.series_release import SeriesRelease

_READ = ["GET", "HEAD"]


def releases_routes(releases: SeriesRelease, keys: KeyFile) -> APIRouter:
    """The routes, for the releases of one series."""
    router = APIRouter(dependencies=[Depends(bearer_of(keys))])

    async def described(release: Release) -> dict[str, Any]:
        return _described(release, await releases.choice())

    @router.api_route("/v1/releases", methods=_READ)
    async def listed() -> Response:
        choice = await releases.choice()
        every = [_described(release, choice) for release in await releases.all()]
        return JSONResponse({"releases": [_without_report(release) for release in every]})

    @router.post("/v1/releases")
    async def make() -> Response:
        release, is_new = await releases.make()
        status = HTTPStatus.CREATED if is_new else HTTPStatus.OK
        location = {"Location": f"/v1/releases/{release.number}"}
        return JSONResponse(await described(release), status, location)

    @router.api_route("/v1/releases/{number}", methods=_READ)
    async def one(number: str) -> Response:
        return JSONResponse(await described(await releases.release(number_of(number))))

    @router.put("/v1/releases/{number}/pin")
    async def pin(number: str) -> Response:
        return JSONResponse(await described(await releases.pin(number_of(number))))

    @router.delete("/v1/releases/{number}/pin")
    async def unpin(number: str) -> Response:
        return JSONResponse(await described(await releases.unpin(number_of(number))))

    return router


def _described(release: Release, choice: Choice | None) -> dict[str, Any]:
    """A release as clients see it."""
    is_current = choice is not None and choice.number == release.number
    is_pinned = is_current and choice is not None and choice.pinned
    return {"current": is_current, "pinned": is_pinned, **release.model_dump(mode="json")}


def _without_report(release: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in release.items() if name != "report"}
