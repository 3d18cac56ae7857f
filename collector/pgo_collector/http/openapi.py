"""OpenAPI: how routes declare their parameters and problems, and the document made from that.

FastAPI doesn't read the parameters: `selections` and `parameters` do, so that a wrong value is answered with
problem details as any other error.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette

from pgo_collector.http.first_answers import Problem
from pgo_collector.http.parameters import PARAMETERS, TEXTS
from pgo_collector.http.routing import DescribedRoute, Description

Responses = dict[int | str, dict[str, Any]]

# The stored profiles that are selected, and of these the samples.
PROFILES = ("service", "type", "labels", "from", "to", "last", "profile_id")
SELECTION = (*PROFILES, "trace_id", "span_id")
LATENCIES = ("latency_from", "latency_to")
PATTERNS = ("focus", "ignore", "hide", "trim_path")
# The part of the selected profiles that a question is about.
FOCUS = (*LATENCIES, "sample_type", *PATTERNS)
BASE = ("base_service", "base_labels", "base_from", "base_to", "base_last")

# The `openapi_extra` of a route that needs no key.
NO_KEY_NEEDED: dict[str, Any] = {"security": []}

_DESCRIPTION = (
    "A collector of pprof profiles. Send a submit key or a merge key as `Authorization:"
    " Bearer <key>`. Every route that takes GET also takes HEAD. Errors are problem details"
    " (RFC 9457)."
)

# Problem details, as JSON Schema.
_PROBLEM_DETAILS: dict[str, Any] = {
    "description": "Problem details, as RFC 9457 defines them.",
    "properties": {
        "type": {"examples": ["about:blank"], "title": "Type", "type": "string"},
        "title": {"examples": [HTTPStatus.NOT_FOUND.phrase], "title": "Title", "type": "string"},
        "status": {"examples": [HTTPStatus.NOT_FOUND.value], "title": "Status", "type": "integer"},
        "detail": {
            "examples": ["no stored profile matches the selection"],
            "title": "Detail",
            "type": "string",
        },
    },
    "required": ["type", "title", "status", "detail"],
    "title": "ProblemDetails",
    "type": "object",
}


def parameters(*names: str, body: str | None = None, several: bool = False) -> dict[str, Any]:
    """Return the `openapi_extra` of a route: its query parameters, and its body if it takes a media type.

    A route about `several` services takes `service` several times.
    """
    listed = [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": meaning}
        for name, (schema, meaning) in ((name, PARAMETERS[name]) for name in names)
    ]
    if several:
        listed = [each | {"schema": TEXTS} if each["name"] == "service" else each for each in listed]
    extra: dict[str, Any] = {"parameters": listed}
    if body is not None:
        extra["requestBody"] = {
            "required": True,
            "content": {body: {"schema": {"type": "string", "format": "binary"}}},
        }
    return extra


def problems(*statuses: int) -> Responses:
    """Return the entries of the problems that a route may answer with."""
    reference = {"$ref": f"#/components/schemas/{_PROBLEM_DETAILS['title']}"}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {Problem.media_type: {"schema": reference}},
        }
        for status in statuses
    }


def download(description: str, *media_types: str) -> Responses:
    """Return the entry of a 200 answer with a file, in one of these media types."""
    schema = {"type": "string", "format": "binary"}
    content = {media_type: {"schema": schema} for media_type in dict.fromkeys(media_types)}
    return {200: {"description": description, "content": content}}


def success(status: HTTPStatus, description: str) -> Responses:
    """Return the entry of an answer besides the one that the route is declared with."""
    return {status.value: {"description": description}}


def schema_of(app: Starlette, models: Any) -> dict[str, Any]:
    """Return the OpenAPI document; this takes a while. HEAD isn't listed: every GET route takes it.

    `models` is the module with the models of answers.
    """
    # A start without FastAPI takes a tenth less CPU time, and 6 MB less memory.
    from fastapi.openapi.utils import get_openapi  # noqa: PLC0415
    from fastapi.routing import APIRoute  # noqa: PLC0415

    routes = [
        APIRoute(
            route.path,
            route.endpoint,
            methods=route.methods,
            tags=[*route.tags],
            **_with_model(route.description, models),
        )
        for route in app.routes
        if isinstance(route, DescribedRoute)
    ]
    schema = get_openapi(
        title="pgo-collector", version=version("pgo-collector"), description=_DESCRIPTION, routes=routes
    )
    schemas = schema["components"]["schemas"]
    schemas[_PROBLEM_DETAILS["title"]] = _PROBLEM_DETAILS
    # FastAPI's own errors, which no route answers with.
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"key": []}]
    for path, method, operation in _operations(schema):
        operation["operationId"] = f"{method}_{path.strip('/').translate(_PLAIN)}"
        if "HTTPValidationError" in str(operation["responses"].get("422")):
            del operation["responses"]["422"]
    return schema


def _with_model(description: Description, models: Any) -> dict[str, Any]:
    """Return the description of a route with the model of its answer in place of its name."""
    if "response_model" not in description:
        return {**description}
    model = getattr(models, description["response_model"])
    said = (model.__doc__ or "").partition("\n")[0].rstrip(".")
    return {"response_description": said, **description, "response_model": model}


_PLAIN = str.maketrans({"/": "_", "{": None, "}": None, ".": "_"})


def _operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the path, method and entry of each operation; remove the entries of HEAD."""
    for path, methods in schema["paths"].items():
        methods.pop("head", None)
        for method, operation in methods.items():
            yield path, method, operation
