"""The parameters that a request may have: those that its route declares for OpenAPI, and how often."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches

from starlette.requests import Request

from pgo_collector.errors import ParameterInvalid, ParameterUnknown

_LONGEST_NAME = 50


async def check_parameters(request: Request) -> None:
    """A dependency. Raises ParameterUnknown, and ParameterInvalid where only the first value would count.

    What is ignored is often a selection that is misspelled, and without it everything is selected.
    """
    extra = request.scope["route"].openapi_extra
    schemas = {parameter["name"]: parameter["schema"] for parameter in extra.get("parameters", ())}
    for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in schemas:
            raise ParameterUnknown(_unknown(name[:_LONGEST_NAME], [*schemas]))
        if times > 1 and schemas[name]["type"] != "array":
            raise ParameterInvalid(f"{name}: give it once, and not {times:,} times")


def _unknown(name: str, declared: list[str]) -> str:
    near = get_close_matches(name.lower(), declared, n=1)
    if near:
        hint = f"maybe {near[0]} is meant"
    else:
        hint = f"there are {', '.join(declared)}" if declared else "there are none"
    return f"{name!r} is no parameter of this route; {hint}"
