"""Answers: JSON, downloads of open files, and the headers that describe a merge."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote

from aiofiles.threadpool import wrap
from pprof_merge import Budget
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pgo_collector.engine.outputs import refuse_too_large
from pgo_collector.http.auth import context_of
from pgo_collector.merges.making import OpenMerge
from pgo_collector.model.facts import NAMED_LEFT_OUT, LeftOut
from pgo_collector.model.selection import Coarse

if TYPE_CHECKING:
    from pydantic import BaseModel

COARSE_HEADER = "PGO-Coarse"
LEFT_OUT_HEADER = "PGO-Left-Out"
_CLOCK_HEADER = "PGO-Clock"
_BINARY_HEADER = "PGO-Binary"
_CHUNK_BYTES = 512 << 10
_ADVICE = "ask for fewer rows with n"
# JSON escapes each of these in six bytes.
_CONTROL = re.compile(r"[\x00-\x1f]")
# Bounds on PGO-Left-Out. Blob names have labels in them and can take some KB; proxies and clients allow 8 KB
# for all headers.
_LONGEST_REASON = 120
_LONGEST_HEADER = 6000
_TAG = re.compile(r'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"')


class Download(Response):
    """A response that sends `size` bytes of an open file and closes it; for HEAD it sends only headers."""

    def __init__(self, file: BinaryIO, size: int, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(None, headers={**headers, "Content-Length": str(size)}, media_type=media_type)
        self._file = file
        self._size = size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the response."""
        with self._file:
            file = wrap(self._file)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            left = 0 if scope["method"] == "HEAD" else self._size
            while left and (chunk := await file.read(min(left, _CHUNK_BYTES))):
                left -= len(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def merge_download(
    request: Request, made: OpenMerge, filename: str, media_type: str = "application/octet-stream"
) -> Response:
    """Return a merge as a download with this filename, or 304 to a GET or HEAD if the client has it."""
    context_of(request).profile = made.etag
    headers = {"ETag": f'"{made.etag}"', "Cache-Control": "private, no-cache"}
    if made.coarse.blobs:
        headers |= coarse_headers(made.coarse)
    if made.left_out:
        headers[LEFT_OUT_HEADER] = left_out_header(made.left_out, made.n_left_out)
    if made.build_id is not None:
        headers[_BINARY_HEADER] = made.build_id
    known = request.headers.get("If-None-Match")
    if known is not None and request.method != "POST" and etag_matches(known, made.etag):
        made.file.close()
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    headers["Content-Disposition"] = f'attachment; filename="{filename}"'
    return Download(made.file, made.size, media_type, headers)


async def json_answer(answer: BaseModel, left_out: Sequence[LeftOut] = ()) -> Response:
    """Return a model as JSON that caches must not store, since the next answer may differ.

    The model must have a bounded number of rows. If it has names in it, call `check_names` first.
    """
    headers = {"Cache-Control": "private, no-store"}
    if left_out:
        headers[LEFT_OUT_HEADER] = left_out_header(left_out)
    body = await asyncio.to_thread(answer.model_dump_json)
    return Response(body, media_type="application/json", headers=headers)


def check_names(names: Iterable[str], budget: Budget) -> None:
    """Raise AnswerTooLarge if the names in an answer, as JSON, take more bytes than the budget."""
    with refuse_too_large("the answer: "):
        budget.check(sum(len(name.encode()) + 5 * len(_CONTROL.findall(name)) for name in names), _ADVICE)


def coarse_headers(coarse: Coarse) -> dict[str, str]:
    """Return PGO-Coarse: the number of coarse blobs, and the labels that roll-ups dropped.

    Returns no header if the merge is of exactly the selection.
    """
    if not coarse.blobs:
        return {}
    keys = ",".join(quote(key, safe="") for key in coarse.labels)
    labels = f';labels="{keys}"' if keys else ""
    return {COARSE_HEADER: f"{len(coarse.blobs)}{labels}"}


def clock_headers(seconds_off: float) -> dict[str, str]:
    """Return PGO-Clock: by how many seconds a sender's clock is ahead, and what became of its profile.

    It is negative for a profile that is older than retention keeps.
    """
    became = "stored-at-arrival" if seconds_off > 0 else "older-than-kept"
    return {_CLOCK_HEADER: f"{seconds_off:.0f};{became}"}


def left_out_header(left_out: Sequence[LeftOut], count: int | None = None) -> str:
    """Return the value of PGO-Left-Out, empty if nothing was left out; `count` is given if there are more.

    It is a structured field (RFC 9651): a list of blob names with reasons, then how many more there are.
    """
    members: list[str] = []
    size = 0
    for left in left_out[:NAMED_LEFT_OUT]:
        member = f"{_string(left.blob)};reason={_string(left.reason[:_LONGEST_REASON])}"
        size += len(member) + 2
        if size > _LONGEST_HEADER:
            break
        members.append(member)
    count = len(left_out) if count is None else count
    if count > len(members):
        members.append(str(count - len(members)))
    return ", ".join(members)


def _string(text: str) -> str:
    """Return a structured field's string: printable ASCII in quotes, with "?" for any other character."""
    escaped = re.sub(r'(["\\])', r"\\\1", re.sub(r"[^\x20-\x7e]", "?", text))
    return f'"{escaped}"'


def etag_matches(if_none_match: str, etag: str) -> bool:
    """Return whether If-None-Match, `*` or a list of strong or weak tags, has this tag (RFC 9110, 13.1.2)."""
    return if_none_match.strip() == "*" or etag in _TAG.findall(if_none_match)
