"""OpenAPI: what the routes say of their parameters and problems, and the schema made of it.

Parameters are read from the query by `selections` and `parameters`, so that what is wrong with one is told
as any problem is.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field

from pgo_collector.http.parameters import PARAMETERS
from pgo_collector.http.problems import Problem

Responses = dict[int | str, dict[str, Any]]

METHODS = ["GET", "HEAD"]
SELECTION = ("service", "type", "labels", "from", "to", "last")
BASE = ("base_service", "base_labels", "base_from", "base_to", "base_last")

# What a route adds to its entry that needs no key.
OPEN: dict[str, Any] = {"security": []}

_DESCRIPTION = (
    "A collector of pprof profiles. Send a submit key or a merge key as `Authorization:"
    " Bearer <key>`. Every route that takes GET also takes HEAD. Errors are problem details"
    " (RFC 9457)."
)


class ProblemDetails(BaseModel):
    """A problem, as RFC 9457 has it."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=[HTTPStatus.NOT_FOUND.phrase])
    status: int = Field(examples=[HTTPStatus.NOT_FOUND.value])
    detail: str = Field(examples=["no stored profile matches the selection"])


def parameters(*names: str, body: str | None = None) -> dict[str, Any]:
    """What a route adds to its entry: parameters of the query, and a body of that media type."""
    listed = [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": meaning}
        for name, (schema, meaning) in ((name, PARAMETERS[name]) for name in names)
    ]
    extra: dict[str, Any] = {"parameters": listed}
    if body is not None:
        extra["requestBody"] = {
            "required": True,
            "content": {body: {"schema": {"type": "string", "format": "binary"}}},
        }
    return extra


def problems(*statuses: int) -> Responses:
    """The problems that a route may answer with."""
    reference = {"$ref": f"#/components/schemas/{ProblemDetails.__name__}"}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {Problem.media_type: {"schema": reference}},
        }
        for status in statuses
    }


def download(description: str, *media_types: str) -> Responses:
    """The answer of a route that gives a file, in one of these media types."""
    schema = {"type": "string", "format": "binary"}
    content = {media_type: {"schema": schema} for media_type in dict.fromkeys(media_types)}
    return {200: {"description": description, "content": content}}


def success(status: HTTPStatus, description: str) -> Responses:
    """An answer besides the one that the route is declared with."""
    return {status.value: {"description": description}}


def schema_of(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document. Takes a while; HEAD isn't in it, since it goes wherever GET does."""
    schema = get_openapi(
        title="pgo-collector", version=version("pgo-collector"), description=_DESCRIPTION, routes=app.routes
    )
    schemas = schema["components"]["schemas"]
    schemas[ProblemDetails.__name__] = ProblemDetails.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):  # the framework's, which we never answer with
        schemas.pop(unused, None)
    schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"key": []}]
    for path, method, operation in _operations(schema):
        operation["operationId"] = f"{method}_{path.strip('/').translate(_PLAIN)}"
        if "HTTPValidationError" in str(operation["responses"].get("422")):
            del operation["responses"]["422"]
    return schema


_PLAIN = str.maketrans({"/": "_", "{": None, "}": None, ".": "_"})


def _operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and entry of each operation but HEAD, which goes."""
    for path, methods in schema["paths"].items():
        methods.pop("head", None)
        for method, operation in methods.items():
            yield path, method, operation
