"""Answers: JSON, downloads of open files, and the headers that merges carry."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import BinaryIO
from urllib.parse import quote

from aiofiles.threadpool import wrap
from pprof_merge import Budget
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pgo_collector.engine.outputs import refuse_too_large
from pgo_collector.http.context import context_of
from pgo_collector.merges.making import OpenMerge
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.selection import Coarse

_CHUNK_BYTES = 512 << 10


class Download(Response):
    """Sends `size` bytes of `file` and closes it; to HEAD only the headers."""

    def __init__(self, file: BinaryIO, size: int, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(None, headers={**headers, "Content-Length": str(size)}, media_type=media_type)
        self._file = file
        self._size = size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Streams the file as an ASGI response."""
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
    """A merge to be saved under that name; 304 to a GET or HEAD of a client that has it already."""
    context_of(request).profile = made.etag
    headers = {"ETag": quoted(made.etag), "Cache-Control": "private, no-cache"}
    headers |= coarse_headers(made.coarse)
    if made.left_out:
        headers[LEFT_OUT_HEADER] = left_out_header(made.left_out)
    if request.method != "POST" and matches(request.headers.get("If-None-Match", ""), made.etag):
        made.file.close()
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    headers["Content-Disposition"] = f'attachment; filename="{filename}"'
    return Download(made.file, made.size, media_type, headers)


_ADVICE = "ask for fewer rows with n"
# JSON spells these out in six letters.
_CONTROL = re.compile(r"[\x00-\x1f]")


async def json_answer(answer: BaseModel, left_out: Sequence[LeftOut] = ()) -> Response:
    """A model as JSON; it isn't to be stored, since the next moment there may be another.

    It has a bounded number of rows. Where names are in it, see `check_names`.
    """
    headers = {"Cache-Control": "private, no-store"}
    if left_out:
        headers[LEFT_OUT_HEADER] = left_out_header(left_out)
    body = await asyncio.to_thread(answer.model_dump_json)
    return Response(body, media_type="application/json", headers=headers)


def check_names(names: Iterable[str], budget: Budget) -> None:
    """Raises AnswerTooLarge where the names of an answer, as JSON has them, are more than the budget."""
    with refuse_too_large("the answer: "):
        budget.check(sum(len(name.encode()) + 5 * len(_CONTROL.findall(name)) for name in names), _ADVICE)


COARSE_HEADER = "PGO-Coarse"


def coarse_headers(coarse: Coarse) -> dict[str, str]:
    """The header; none where just that was found which was asked for."""
    if not coarse.blobs:
        return {}
    keys = ",".join(quote(key, safe="") for key in coarse.labels)
    labels = f';labels="{keys}"' if keys else ""
    return {COARSE_HEADER: f"{len(coarse.blobs)}{labels}"}


LEFT_OUT_HEADER = "PGO-Left-Out"
_MOST_ENTRIES = 10
_LONGEST_REASON = 120
# Names have labels in them, up to some KB; proxies and clients take headers of 8 KB in all.
_LONGEST = 6000


def left_out_header(left_out: Sequence[LeftOut]) -> str:
    """The header's value; empty if nothing was left out."""
    members: list[str] = []
    size = 0
    for left in left_out[:_MOST_ENTRIES]:
        member = f"{_string(left.blob)};reason={_string(left.reason[:_LONGEST_REASON])}"
        size += len(member) + 2
        if size > _LONGEST:
            break
        members.append(member)
    if len(left_out) > len(members):
        members.append(str(len(left_out) - len(members)))
    return ", ".join(members)


def _string(text: str) -> str:
    """A structured string: printable ASCII in quotes; what it can't hold becomes a question mark."""
    escaped = re.sub(r'(["\\])', r"\\\1", re.sub(r"[^\x20-\x7e]", "?", text))
    return f'"{escaped}"'


_TAG = re.compile(r'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"')


def quoted(etag: str) -> str:
    """The tag as the ETag header has it."""
    return f'"{etag}"'


def matches(if_none_match: str, etag: str) -> bool:
    """Whether If-None-Match covers the tag: `*`, or a list of tags, weak ones too (RFC 9110, 13.1.2)."""
    return if_none_match.strip() == "*" or etag in _TAG.findall(if_none_match)
