"""Routes: a path, checks such as that of a key, a function that answers, and what the API's document says.

FastAPI finds out what a function takes from its signature, for each route at each start, and for each request
again. Functions here take the request and parameters of their path, so that FastAPI reads them for the
document alone (`openapi.schema_of`). `check_parameters` is a check that most routes have.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from inspect import signature
from threading import Lock
from typing import Any, Protocol, TypedDict, Unpack

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from pgo_collector.errors import ParameterInvalid, ParameterUnknown

_LONGEST_UNKNOWN = 50

Check = Callable[[Request], Awaitable[None]]
# Takes the request, and parameters of the path by their names.
Endpoint = Callable[..., Awaitable[Response]]
Decorator = Callable[[Endpoint], Endpoint]


class Description(TypedDict, total=False):
    """The entry of a route in the API's document; see FastAPI's `APIRoute`.

    `response_model` is the name of a model in `queries.answers`, whose docstring describes the response.
    """

    summary: str
    status_code: int
    response_class: type[Response]
    response_description: str
    response_model: str
    responses: dict[int | str, dict[str, Any]]
    openapi_extra: dict[str, Any]
    include_in_schema: bool


class DescribedRoute(Route):
    """A route of the application, and what the API's document says about it.

    `tags` and `description` are as FastAPI's `APIRoute` takes them, which `openapi.schema_of` makes of it.
    `parameters` are the schemas of its query parameters, by name. Requests have it as `scope["route"]`.
    """

    def __init__(
        self,
        path: str,
        endpoint: Endpoint,
        methods: Sequence[str],
        checks: Sequence[Check],
        tags: Sequence[str],
        **description: Unpack[Description],
    ) -> None:
        super().__init__(path, endpoint, include_in_schema=description.get("include_in_schema", True))
        self.methods = {*methods}  # Starlette adds HEAD to GET, also for a stream of events, which never ends
        self.app = self._answer
        self._checks, self.tags, self.description = checks, tags, description
        self._path_names = signature(endpoint).parameters.keys() & self.param_convertors.keys()
        listed = description.get("openapi_extra", {}).get("parameters", ())
        self.parameters = {each["name"]: each["schema"] for each in listed}

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the checks, one after another, and then the endpoint; send its answer."""
        request = Request(scope, receive, send)
        scope["route"] = self
        for check in self._checks:
            await check(request)
        answer: Response = await self.endpoint(
            request, **{name: request.path_params[name] for name in self._path_names}
        )
        await answer(scope, receive, send)


class Routes:
    """Routes whose paths begin with `prefix`, and that have checks and tags in common.

    Its methods return decorators of functions, as those of FastAPI's `APIRouter` do.
    """

    def __init__(self, *checks: Check, prefix: str = "", tags: Sequence[str] = ()) -> None:
        self.routes: list[Route] = []
        self._checks, self._prefix, self._tags = checks, prefix, tags

    def add(
        self,
        methods: Sequence[str],
        path: str,
        checks: Sequence[Check] = (),
        **description: Unpack[Description],
    ) -> Decorator:
        """Return a decorator that has a function answer these methods of a path, after more checks."""

        def added(endpoint: Endpoint) -> Endpoint:
            every = (*self._checks, *checks)
            route = DescribedRoute(self._prefix + path, endpoint, methods, every, self._tags, **description)
            self.routes.append(route)
            return endpoint

        return added

    def get(self, path: str, checks: Sequence[Check] = (), **description: Unpack[Description]) -> Decorator:
        """Return a decorator of what answers GET and HEAD."""
        return self.add(["GET", "HEAD"], path, checks, **description)

    def post(self, path: str, checks: Sequence[Check] = (), **description: Unpack[Description]) -> Decorator:
        """Return a decorator of what answers POST."""
        return self.add(["POST"], path, checks, **description)

    def put(self, path: str, checks: Sequence[Check] = (), **description: Unpack[Description]) -> Decorator:
        """Return a decorator of what answers PUT."""
        return self.add(["PUT"], path, checks, **description)

    def delete(
        self, path: str, checks: Sequence[Check] = (), **description: Unpack[Description]
    ) -> Decorator:
        """Return a decorator of what answers DELETE."""
        return self.add(["DELETE"], path, checks, **description)


class Site(Protocol):
    """An ASGI application with routes, as those of Starlette are."""

    @property
    def routes(self) -> list[BaseRoute]:
        """Return the routes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""


class OnFirstRequest:
    """An ASGI application that `make` imports and makes at its first request, in a thread. A start takes less
    CPU time and memory without it.
    """

    def __init__(self, make: Callable[[], Site]) -> None:
        self._make = make
        self._made: Site | None = None
        self._lock = Lock()

    @property
    def routes(self) -> list[BaseRoute]:
        """Return the routes; the application is made now if it wasn't yet."""
        return self._application().routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        made = self._made
        if made is None:
            made = await asyncio.to_thread(self._application)
        await made(scope, receive, send)

    def _application(self) -> Site:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made


async def check_parameters(request: Request) -> None:
    """Refuse unknown parameters, and repeated ones that take a single value. A check.

    An unknown parameter is often a misspelled `labels` or `from`: if it were ignored, the request would
    select everything. Raises ParameterUnknown and ParameterInvalid.
    """
    route: DescribedRoute = request.scope["route"]
    schemas = route.parameters
    given = [name for name, _ in request.query_params.multi_items()]
    for name, times in Counter(given).items() if given else ():
        if name not in schemas:
            raise ParameterUnknown(_unknown(name[:_LONGEST_UNKNOWN], [*schemas]))
        if times > 1 and schemas[name]["type"] != "array":
            raise ParameterInvalid(f"{name}: give it once, not {times:,} times")


def _unknown(name: str, known: list[str]) -> str:
    close = get_close_matches(name.lower(), known, n=1)
    if close:
        hint = f"did you mean {close[0]!r}?"
    else:
        hint = f"this route takes {', '.join(known)}" if known else "this route takes none"
    return f"unknown parameter {name!r}; {hint}"


def first_values(request: Request) -> dict[str, str]:
    """Return the query parameters that are given, each with its first value."""
    values: dict[str, str] = {}
    for name, text in request.query_params.multi_items():
        values.setdefault(name, text)
    return values
