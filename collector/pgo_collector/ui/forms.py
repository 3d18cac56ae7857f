"""Forms: check that a page of this site sent one, and read its fields."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from starlette.requests import Request

from pgo_collector.errors import BodyTooLarge, BodyTooSlow, FromAnotherSite

_MAX_FORM = 16 << 10
_FORM_SECONDS = 10


def check_same_site(request: Request) -> None:
    """Raise FromAnotherSite if the browser sent a form for a page of another site.

    Browsers tell the site in Sec-Fetch-Site or, over plain HTTP, in Origin; a client that sends neither
    header isn't a browser.
    """
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is None:
        is_ours = origin is None or origin.partition("://")[2] == request.headers.get("Host")
    else:
        is_ours = site in {"same-origin", "none"}
    if not is_ours:
        raise FromAnotherSite("this form was sent by a page of another site")


async def form_of(request: Request) -> dict[str, str]:
    """Return the first value of each field. Raises BodyTooLarge and BodyTooSlow."""
    body = b""
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _MAX_FORM:
                    raise BodyTooLarge(f"the form is larger than {_MAX_FORM:,} bytes")
    except TimeoutError:
        raise BodyTooSlow(f"the form took longer than {_FORM_SECONDS} seconds") from None
    fields = parse_qs(body.decode("latin-1"), encoding="utf-8", errors="replace")
    return {name: values[0] for name, values in fields.items()}
