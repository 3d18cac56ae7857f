"""autopgo's API, as its command and its scrapers call it: an app is a service with CPU profiles."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, NamedTuple

from pprof_merge import Budget
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pgo_collector.catalog.inventory import Inventory
from pgo_collector.engine.outputs import refuse_too_large
from pgo_collector.engine.renditions import PLAIN_RENDITION
from pgo_collector.errors import ParameterInvalid
from pgo_collector.http.answers import merge_download
from pgo_collector.http.auth import allow_anyone, check_scope, context_of, require_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import NO_KEY_NEEDED, download, parameters, success
from pgo_collector.http.problems import Dialect, Failure
from pgo_collector.http.routing import Routes
from pgo_collector.merges.merges import Merges
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import SERVICE_PATTERN, Scope, Series
from pgo_collector.model.times import format_time
from pgo_collector.store.readiness import Readiness
from pgo_collector.submits.submits import Submits

_SERVICE = re.compile(SERVICE_PATTERN)
_PROFILES = "/api/profile"
_APP = f"{_PROFILES}/{{app}}"
_HEALTH = ("/api/health", "/api/ready")
_FILENAME = "default.pgo"
# Services that are read from the catalog at once, and the size of an entry besides the name, in bytes.
_PAGE = 500
_ENTRY_BYTES = 80
_OCTETS = "application/octet-stream"
_HEALTHY, _UNHEALTHY = "healthy", "unhealthy"


def _error(failure: Failure) -> Response:
    """Return an error of autopgo: JSON with a `message` and the status as `code`."""
    content = {"message": failure.detail, "code": failure.status.value}
    return JSONResponse(content, failure.status.value, failure.headers)


AUTOPGO = Dialect((f"{_PROFILES}/",), _error, submits=(_APP,), others=(_PROFILES, *_HEALTH))


class AutopgoParts(NamedTuple):
    """The parts of the collector that the routes call."""

    submits: Submits
    merges: Merges
    rules: RulesFolder
    readiness: Readiness


def autopgo_routes(
    parts: AutopgoParts, submit_keys: KeyFile, merge_keys: KeyFile, *, is_open: bool
) -> Routes:
    """Return the routes, which need the keys of those below /v1, or none if they are open.

    To delete takes a key that is both a submit key and a merge key.
    """
    checks = [allow_anyone if is_open else require_key(keys) for keys in (submit_keys, merge_keys)]
    submit, read = ([check] for check in checks)
    routes = Routes()
    merges = parts.merges
    inventory = Inventory(merges.store.catalog)

    @routes.post(
        _APP,
        status_code=HTTPStatus.CREATED,
        summary="Store a CPU profile of an app",
        response_description="The profile is stored durably, or already was",
        openapi_extra=parameters(body=_OCTETS),
        checks=submit,
    )
    async def upload(request: Request, app: str) -> Response:
        submitted = await parts.submits.submit(request, Series(_service_of(request, app), CPU))
        key = f"{app}/staging/{submitted.name.identity.time_nanos}"
        return JSONResponse({"key": key}, HTTPStatus.CREATED)

    @routes.get(
        _APP,
        summary="Return the merge of all CPU profiles of an app",
        response_class=Response,
        responses=download("The merge, as pprof", _OCTETS),
        checks=read,
    )
    async def merge(request: Request, app: str) -> Response:
        service = _service_of(request, app)
        ruled = await asyncio.to_thread(parts.rules.of, service)
        made = await merges.current(Selection(service, CPU), replace(PLAIN_RENDITION, rules=ruled))
        return merge_download(request, made, _FILENAME)

    @routes.delete(
        _APP,
        summary="Delete all CPU profiles of an app",
        response_description="They are deleted",
    )
    async def delete(request: Request, app: str) -> Response:
        for check in checks:
            await check(request)
            service = _service_of(request, app)
        await merges.delete(service, CPU)
        return JSONResponse({})

    @routes.get(
        _PROFILES,
        summary="List the apps that have CPU profiles",
        response_description="The apps",
        checks=read,
    )
    async def apps(request: Request) -> Response:
        scope = context_of(request).caller.scope
        with refuse_too_large("the list: "):
            entries = await asyncio.to_thread(_entries, inventory, scope, merges.budget)
        return JSONResponse({"profiles": entries})

    for path in _HEALTH:

        @routes.get(
            path,
            summary="Say whether requests can be served, as autopgo does",
            response_description="Requests can be served",
            responses=success(HTTPStatus.SERVICE_UNAVAILABLE, "Something fails; `dependencies` says what"),
            openapi_extra=NO_KEY_NEEDED,
        )
        async def health(_: Request) -> Response:
            return _health(parts.readiness.parts, await parts.readiness.faults())

    return routes


def _service_of(request: Request, app: str) -> str:
    """Return the service of an app. Raises ParameterInvalid or KeyOutOfScope."""
    if not _SERVICE.fullmatch(app):
        raise ParameterInvalid("invalid app name: it has up to 200 letters, digits, '.', '_' and '-'")
    check_scope(request, app)
    context_of(request).service = app
    return app


def _entries(inventory: Inventory, scope: Scope, budget: Budget) -> list[dict[str, Any]]:
    """Return an entry for each service in the scope that has CPU profiles, sorted by name.

    Raises OutputTooLarge.
    """
    entries: list[dict[str, Any]] = []
    size = 0
    after = ""
    while page := inventory.services(scope, _PAGE, after):
        for stored in page:
            for of_type in stored.types:
                if of_type.type == CPU:
                    modified = format_time(of_type.end_nanos)
                    entries.append({"key": stored.service, "size": of_type.size, "lastModified": modified})
                    size += _ENTRY_BYTES + len(stored.service)
        budget.check(size, "use a key for fewer services")
        after = page[-1].service
    return entries


def _health(names: Iterable[str], faults: Mapping[str, str]) -> Response:
    """Return the state of the parts with these names, and of what fails besides."""
    dependencies = [
        {"name": name, "status": _UNHEALTHY, "message": faults[name]}
        if name in faults
        else {"name": name, "status": _HEALTHY}
        for name in dict.fromkeys((*names, *faults))
    ]
    return JSONResponse(
        {"status": _UNHEALTHY if faults else _HEALTHY, "dependencies": dependencies},
        HTTPStatus.SERVICE_UNAVAILABLE if faults else HTTPStatus.OK,
        headers={"Cache-Control": "no-store"},
    )
