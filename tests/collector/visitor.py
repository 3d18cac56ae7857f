"""A visitor of the pages without a browser: a session, and pages as lists of tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from typing import Any

import httpx

from tests.server import Server

# The start of one of these elements separates words.
_BLOCKS = {"dd", "dt", "li", "p", "td", "th", "a", "span", "small"}


@dataclass
class Tag:
    """An element: its name, its attributes, and all text in it up to its end tag."""

    name: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """A page as a list of its elements, in order."""

    answer: httpx.Response
    tags: list[Tag] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[Tag] = []
        self.feed(self.answer.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self.handle_data(" ")
        found = Tag(tag, {name: value or "" for name, value in attrs})
        self.tags.append(found)
        self._open.append(found)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        while self._open:
            if self._open.pop().name == tag:
                break

    def handle_data(self, data: str) -> None:
        for tag in self._open:
            tag.text += data

    def all(self, name: str, **attributes: str) -> list[Tag]:
        """Return the elements of a name with these attributes; attribute names may end in an underscore."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        return [tag for tag in self.tags if tag.name == name and wanted.items() <= tag.attributes.items()]

    def links(self) -> list[str]:
        return [tag.attributes["href"] for tag in self.all("a") if "href" in tag.attributes]

    @property
    def text(self) -> str:
        (body,) = self.all("body")
        return " ".join(body.text.split())


class Visitor:
    """A client with cookies, which it keeps when the server restarts; signed in if it has a key."""

    def __init__(self, server: Server, key: str | None = Server.merge_key) -> None:
        self._server = server
        self.cookies: dict[str, str] = {}
        if key is not None:
            answer = self.sign_in(key)
            assert answer.status_code == 303, answer.text

    def sign_in(self, key: str, after: str = "/ui/", **headers: str) -> httpx.Response:
        return self.post("/ui/sign-in", {"key": key, "next": after}, **headers)

    def post(self, path: str, form: Mapping[str, str] | None = None, **headers: str) -> httpx.Response:
        """Send a form as a page does; names of headers may have underscores for hyphens."""
        return self._request("POST", path, headers, data=dict(form or {}))

    def post_files(self, path: str, files: Mapping[str, tuple[str, bytes]], **headers: str) -> httpx.Response:
        """Send a form with files, each a name and its content, as a page does."""
        return self._request("POST", path, headers, files=files)

    def get(self, path: str, headers: Mapping[str, str] | None = None, **query: str) -> httpx.Response:
        """Request a path; names of parameters may end in an underscore."""
        named = {name.rstrip("_"): value for name, value in query.items()}
        return self._request("GET", path, dict(headers or {}), params=named or None)

    def page(self, path: str, status: int = 200, **query: str) -> Page:
        """Request a page, and check its status and type."""
        answer = self.get(path, None, **query)
        assert answer.status_code == status, answer.text
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        return Page(answer)

    def _request(self, method: str, path: str, headers: Mapping[str, str], **content: Any) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        client = self._server.client
        answer = client.request(method, path, headers=named, **content)
        client.cookies.clear()  # other visitors use the same client
        for name, morsel in SimpleCookie(answer.headers.get("Set-Cookie", "")).items():
            self.cookies[name] = morsel.value
        return answer
