"""POST /v1/symbols: take a Go program's functions, from which eBPF profiles of its build get start lines."""

from __future__ import annotations

from datetime import UTC, datetime

import structlog
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pgo_collector.http.auth import context_of, require_service_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import parameters, problems
from pgo_collector.http.routing import Routes
from pgo_collector.http.selections import service_of
from pgo_collector.settings import Settings
from pgo_collector.store.start_lines import StartLineTables
from pgo_collector.store.store import not_stored
from pgo_collector.submits.body import BodyBound, BodyReader
from pgo_collector.submits.submits import Quotas

_EXPECTED = "a pprof profile with a program's functions, as pgo-agent symbols makes it"
_log = structlog.get_logger()


def symbols_routes(
    tables: StartLineTables,
    quotas: Quotas,
    bodies: BodyReader,
    keys: KeyFile,
    settings: Settings,
) -> Routes:
    """Return the route."""
    routes = Routes()
    bound = BodyBound(settings.symbols_bytes, "PGOF_MAX_INFLATED_BYTES or PGOF_SYMBOLS_BYTES")

    @routes.post(
        "/v1/symbols",
        checks=[require_service_key(keys, settings.default_service)],
        summary="Store the symbols of a program, from which eBPF profiles of its build get start lines",
        response_description="The symbols are stored durably: their builds, and from when on they count",
        responses=problems(400, 403, 408, 413, 422, 429, 500, 503),
        openapi_extra=parameters("service", body="application/octet-stream"),
    )
    async def symbols(request: Request) -> Response:
        service = service_of(request)
        await quotas.check(service)
        async with bodies.read(request, bound, _EXPECTED, to_file=True) as body:
            context_of(request).body_bytes = body.size
            try:
                added, since = await tables.add(service, body.part)
            except (OSError, SQLAlchemyError) as error:
                raise not_stored("symbols", error) from error
        _log.info("symbols stored", service=service, builds=len(added.build_ids), functions=added.functions)
        seconds = -(-since // 10**9)
        return JSONResponse(
            {
                "service": service,
                "build_ids": added.build_ids,
                "functions": added.functions,
                "from": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )

    return routes
