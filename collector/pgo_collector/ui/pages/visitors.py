"""Signing in and out, and who may see which page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pgo_collector.errors import KeyRefused
from pgo_collector.http.auth import check_scope
from pgo_collector.http.context import context_of
from pgo_collector.http.openapi import METHODS
from pgo_collector.http.selections import first
from pgo_collector.ui.forms import check_same_site, form_of
from pgo_collector.ui.rendering import Rendering
from pgo_collector.ui.sessions import Sessions
from pgo_collector.ui.throttle import SignInThrottle

HOME = "/ui/"
SIGN_IN = "/ui/sign-in"
_COOKIE = "pgo_session"

Dependency = Callable[[Request], Awaitable[None]]


def signed_in(sessions: Sessions) -> Dependency:
    """A dependency as `holder_of` is one, by the cookie. Raises KeyRefused."""

    async def check(request: Request) -> None:
        key = sessions.key_of(request.cookies.get(_COOKIE, ""))
        if key is None:
            raise KeyRefused("sign in with a key for merges")
        context_of(request).key = key

    return check


def sees_service(sessions: Sessions) -> Dependency:
    """A dependency as `bearer_of` is one, by the cookie; the service is part of the path.

    Raises KeyRefused or KeyOutOfScope.
    """
    hold = signed_in(sessions)

    async def check(request: Request) -> None:
        await hold(request)
        context_of(request).service = service = request.path_params["service"]
        check_scope(request, service)

    return check


def visitor_routes(sessions: Sessions, throttle: SignInThrottle, rendering: Rendering) -> APIRouter:
    """The routes, which ask for no session."""
    router = APIRouter()

    async def form_page(
        request: Request,
        after: str,
        refused: str = "",
        status: HTTPStatus = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        # Who comes by a link from another site is taken here without the cookie, though there may be one: the
        # page leads on by itself, and by then the browser sends it.
        is_from_elsewhere = request.headers.get("Sec-Fetch-Site") == "cross-site"
        return await rendering.page(
            request,
            "sign_in.html",
            status,
            headers,
            after=_ours(after),
            refused=refused,
            again=is_from_elsewhere,
        )

    async def throttled_page(request: Request, after: str, seconds: int) -> Response:
        refused = f"There were too many wrong keys. Try again in {seconds} s."
        headers = {"Retry-After": str(seconds)}
        return await form_page(request, after, refused, HTTPStatus.TOO_MANY_REQUESTS, headers)

    @router.api_route("/sign-in", methods=METHODS)
    async def sign_in_form(request: Request) -> Response:
        return await form_page(request, first(request, "next") or HOME)

    @router.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        check_same_site(request)
        form = await form_of(request)
        after = form.get("next", HOME)
        if seconds := throttle.seconds_of_address(request):
            return await throttled_page(request, after, seconds)
        offered = form.get("key", "").strip().encode()
        key = sessions.keys.keys.match(offered)
        if key is None:
            if seconds := throttle.note_wrong(request, offered):
                return await throttled_page(request, after, seconds)
            return await form_page(request, after, "This is no key for merges.", HTTPStatus.FORBIDDEN)
        context_of(request).key = key
        answer = RedirectResponse(_ours(form.get("next", HOME)), HTTPStatus.SEE_OTHER)
        answer.set_cookie(
            _COOKIE,
            sessions.begin(key),
            max_age=sessions.seconds,
            path="/ui",
            secure=is_https(request),
            httponly=True,
            samesite="strict",
        )
        return answer

    @router.post("/sign-out")
    async def sign_out(request: Request) -> Response:
        check_same_site(request)
        answer = RedirectResponse(HOME, HTTPStatus.SEE_OTHER)
        answer.delete_cookie(_COOKIE, path="/ui", secure=is_https(request), httponly=True, samesite="strict")
        return answer

    return router


def to_sign_in(request: Request) -> Response:
    """Leads to the form, and from there back to what was asked for."""
    after = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"{SIGN_IN}?{urlencode({'next': after})}", HTTPStatus.SEE_OTHER)


def is_https(request: Request) -> bool:
    """Whether the browser came by HTTPS, also to a proxy; who lies about that gets a cookie it can't use."""
    forwarded = request.headers.get("X-Forwarded-Proto", "").partition(",")[0].strip().lower()
    return "https" in {request.url.scheme, forwarded}


def _ours(path: str) -> str:
    """The path, if it is one of a page, and else the first page."""
    is_page = path.startswith(HOME) and path.isprintable() and "\\" not in path
    return path if is_page else HOME
