"""Answers in JSON that are of this moment, with what had to be left out of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence

from pprof_merge import Budget
from pydantic import BaseModel
from starlette.responses import Response

from pgo_collector.engine.collected import LeftOut
from pgo_collector.engine.outputs import refusing_large
from pgo_collector.http.left_out import HEADER, left_out_header

_ADVICE = "ask for fewer rows with n"
# JSON spells these out in six letters.
_CONTROL = re.compile(r"[\x00-\x1f]")


async def json_answer(answer: BaseModel, left_out: Sequence[LeftOut] = ()) -> Response:
    """A model as JSON; it isn't to be stored, since the next moment there may be another.

    It has a bounded number of rows. Where names are in it, see `check_names`.
    """
    headers = {"Cache-Control": "private, no-store"}
    if left_out:
        headers[HEADER] = left_out_header(left_out)
    body = await asyncio.to_thread(answer.model_dump_json)
    return Response(body, media_type="application/json", headers=headers)


def check_names(names: Iterable[str], budget: Budget) -> None:
    """Raises AnswerTooLarge where the names of an answer, as JSON has them, are more than the budget."""
    with refusing_large("the answer: "):
        budget.check(sum(len(name.encode()) + 5 * len(_CONTROL.findall(name)) for name in names), _ADVICE)
