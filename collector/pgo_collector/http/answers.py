"""Answers in JSON that are of this moment, with what had to be left out of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pydantic import BaseModel
from starlette.responses import Response

from pgo_collector.engine.collected import LeftOut
from pgo_collector.http.left_out import HEADER, left_out_header


async def json_answer(answer: BaseModel, left_out: Sequence[LeftOut] = ()) -> Response:
    """A model as JSON; it isn't to be stored, since the next moment there may be another."""
    headers = {"Cache-Control": "private, no-store"}
    if left_out:
        headers[HEADER] = left_out_header(left_out)
    body = await asyncio.to_thread(answer.model_dump_json)
    return Response(body, media_type="application/json", headers=headers)
