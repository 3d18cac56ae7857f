"""Sign in, sign out, and the dependencies that check who may see a page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pgo_collector.errors import KeyRefused
from pgo_collector.http.auth import check_scope, context_of
from pgo_collector.http.keys import Key
from pgo_collector.http.routing import Check, Routes, first_values
from pgo_collector.ui.forms import check_same_site, form_of
from pgo_collector.ui.links import is_https, site_of
from pgo_collector.ui.rendering import Rendering
from pgo_collector.ui.sessions import Sessions, SessionTokens
from pgo_collector.ui.throttle import SignInThrottle

_COOKIE = "pgo_session"
_TOKEN = re.compile(rf"(?:^|;)[ \t]*{_COOKIE}=([0-9a-f.]{{1,200}})(?![^;\s])", re.ASCII)


def token_of(request: Request) -> str:
    """Return the token in our cookie, empty if there is none; other cookies may be anything, and long."""
    found = (_TOKEN.search(cookies) for cookies in request.headers.getlist("Cookie"))
    return next((match[1] for match in found if match is not None), "")


def require_session(sessions: Sessions) -> Check:
    """Return a check that notes the key of the session cookie. It raises KeyRefused if there is none."""

    async def check(request: Request) -> None:
        key = await sessions.key_of(token_of(request))
        if key is None:
            raise KeyRefused("sign in with a key for merges")
        context_of(request).key = key

    return check


def require_service(sessions: Sessions) -> Check:
    """Return a check that also checks the key's scope for the service in the path.

    It raises KeyRefused or KeyOutOfScope.
    """
    check_session = require_session(sessions)

    async def check(request: Request) -> None:
        await check_session(request)
        context_of(request).service = service = request.path_params["service"]
        check_scope(request, service)

    return check


def visitor_routes(sessions: Sessions, throttle: SignInThrottle, rendering: Rendering) -> Routes:
    """Return the routes with the routes to sign in and out, which need no session."""
    routes = Routes()

    form_page = partial(_form_page, rendering)

    async def throttled_page(request: Request, after: str, seconds: int) -> Response:
        refused = f"There were too many wrong keys. Try again in {seconds} s."
        headers = {"Retry-After": str(seconds)}
        return await form_page(request, after, refused, status=HTTPStatus.TOO_MANY_REQUESTS, headers=headers)

    @routes.get("/sign-in")
    async def sign_in_form(request: Request) -> Response:
        """Return the form; a link that the collector has printed, of a session, signs in once instead."""
        given = first_values(request)
        if "session" not in given:
            return await form_page(request, given.get("next", ""))
        check_same_site(request)  # else another site could sign visitors in with a key of its own
        key = await sessions.key_of(given["session"])
        if key is None:
            refused = "This link was used, or is too old. A restart of the collector prints another one."
            return await form_page(request, "", refused, status=HTTPStatus.FORBIDDEN)
        await sessions.end(given["session"])
        return _signed_in(request, sessions.tokens, key, given.get("next", ""))

    @routes.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        check_same_site(request)
        form = await form_of(request)
        after = form.get("next", "")
        if seconds := throttle.seconds_of_address(request):
            return await throttled_page(request, after, seconds)
        offered = form.get("key", "").strip().encode()
        key = sessions.tokens.keys.keys.match(offered)
        if key is None:
            if seconds := throttle.note_wrong(request, offered):
                return await throttled_page(request, after, seconds)
            return await form_page(request, after, "This is not a merge key.", status=HTTPStatus.FORBIDDEN)
        return _signed_in(request, sessions.tokens, key, after)

    @routes.post("/sign-out")
    async def sign_out(request: Request) -> Response:
        check_same_site(request)
        await sessions.end(token_of(request))
        answer = RedirectResponse(_home(request), HTTPStatus.SEE_OTHER)
        answer.delete_cookie(
            _COOKIE, path=site_of(request), secure=is_https(request), httponly=True, samesite="strict"
        )
        return answer

    return routes


async def _form_page(
    rendering: Rendering,
    request: Request,
    after: str,
    refused: str = "",
    *,
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
) -> Response:
    # After a link from another site the browser doesn't send the cookie, since it is SameSite=Strict. The
    # page then refreshes itself to the target, and with that request the browser sends the cookie.
    is_from_elsewhere = request.headers.get("Sec-Fetch-Site") == "cross-site"
    return await rendering.page(
        request,
        "sign_in.html",
        status,
        headers,
        after=_own_page(request, after),
        refused=refused,
        again=is_from_elsewhere,
    )


def _signed_in(request: Request, tokens: SessionTokens, key: Key, after: str) -> Response:
    """Return the redirect to a page, with the cookie of a new session."""
    context_of(request).key = key
    answer = RedirectResponse(_own_page(request, after), HTTPStatus.SEE_OTHER)
    answer.set_cookie(
        _COOKIE,
        tokens.begin(key),
        max_age=tokens.seconds,
        path=site_of(request),
        secure=is_https(request),
        httponly=True,
        samesite="strict",
    )
    return answer


def redirect_to_sign_in(request: Request) -> Response:
    """Redirect to the sign-in form, which leads back to the requested page."""
    path = context_of(request).root_path + request.url.path
    after = path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"{site_of(request)}/sign-in?{urlencode({'next': after})}", HTTPStatus.SEE_OTHER)


def _home(request: Request) -> str:
    return f"{site_of(request)}/"


def _own_page(request: Request, path: str) -> str:
    """Return the path if it is one of a page here, else that of the first page."""
    is_page = path.startswith(_home(request)) and path.isprintable() and "\\" not in path
    return path if is_page else _home(request)
