"""Parameters of a query: what there are, and how those besides the selection are read."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from pprof_merge import FORMATS, GROUPINGS, WEIGHTS
from starlette.requests import Request

from pgo_collector.errors import ParameterInvalid, ParameterUnknown
from pgo_collector.http.selections import first
from pgo_collector.model.profile_types import CPU, TYPES

_TEXT = {"type": "string"}
# It may be there several times, and all of its values count.
_TEXTS = {"type": "array", "items": _TEXT}
_LONGEST_NAME = 10_000
_LONGEST_CURSOR = 400


def _choice(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": [*words], "default": words[0]}


def _number(default: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": most, "default": default}


# Of every parameter its schema, and what it means.
PARAMETERS: Mapping[str, tuple[dict[str, Any], str]] = MappingProxyType(
    {
        "service": (_TEXT, (
            "The service. Default: the key's, if the key is for just one, else `PGOF_DEFAULT_SERVICE`. Routes"
            " that answer questions about the fleet take `*` for all services."
        )),
        "type": (_choice(CPU, *(name for name in TYPES if name != CPU)), "The type of profile."),
        "labels": (_TEXTS, "`version=1.4,region!=eu|us`: labels to select; for a submit, the profile's own."),
        "from": (_TEXT, "Select profiles taken at this time or later: a date or an RFC 3339 time."),
        "to": (_TEXT, "Select profiles taken before this time: a date or an RFC 3339 time."),
        "last": (_TEXT, "Use in place of `from`: a length of time, such as `7d`, that ends at `to` or now."),
        "base_service": (_TEXT, "The base's service. Default: the same service."),
        "base_labels": (_TEXTS, "The base's labels; empty for any. Default: the same labels."),
        "base_from": (_TEXT, "The base's `from`. With none of the three, the base has the same time."),
        "base_to": (_TEXT, "The base's `to`."),
        "base_last": (_TEXT, "The base's `last`."),
        "by": (_choice(*GROUPINGS), "What each row stands for."),
        "sort": (_choice("flat", "cum"), "The value to sort by, largest first."),
        "n": (_number(10, 1000), "The number of rows."),
        "function": (_TEXT, "The full name of a function. Give this or `package`."),
        "package": (_TEXT, "The full name of a package. Give this or `function`."),
        "step": (_choice("hour", "day"), "The length of a step, in UTC."),
        "limit": (_number(100, 1000), "The number of entries on a page."),
        "cursor": (_TEXT, "The value of `next` on the previous page."),
        "format": (_choice(*FORMATS), "The format of the answer."),
        "weight": (_choice(*WEIGHTS), "What gives each profile its weight in the merge."),
        "half_life": (_TEXT, "`7d`: halve a profile's weight for each 7 days it is older than the newest."),
        "and_combine": (_TEXT, "`true`, only with POST: replace the stored profiles by their merge."),
    }
)  # fmt: skip


def whole_number(request: Request, parameter: str) -> int:
    """A number within its bounds. Raises ParameterInvalid."""
    schema, _ = PARAMETERS[parameter]
    text = first(request, parameter)
    if not text:
        return int(schema["default"])
    most = schema["maximum"]
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise ParameterInvalid(f"{parameter}={text[:50]}: a whole number from 1 to {most:,}")
    return int(text)


def one_of(request: Request, parameter: str) -> str:
    """One of the words that there are, the first if none is given. Raises ParameterInvalid."""
    schema, _ = PARAMETERS[parameter]
    text = first(request, parameter) or str(schema["default"])
    if text not in schema["enum"]:
        raise ParameterInvalid(
            f"{parameter}={text[:50]}: there is none; there are {', '.join(schema['enum'])}"
        )
    return text


def name_in(request: Request, choices: Iterable[str]) -> tuple[str, str]:
    """The one of these parameters that is there, and its value. Raises ParameterInvalid."""
    choices = list(choices)
    given = [(choice, text) for choice in choices if (text := first(request, choice))]
    if len(given) != 1:
        raise ParameterInvalid(f"give one of {', '.join(choices)}")
    if len(given[0][1]) > _LONGEST_NAME:
        raise ParameterInvalid(f"{given[0][0]}: the name is longer than {_LONGEST_NAME:,} letters")
    return given[0]


def cursor_of(*parts: int | str) -> str:
    """The text by which a client asks for the next page."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def parts_of_cursor(request: Request, *kinds: type) -> list[Any] | None:
    """The parts, of these kinds, of the cursor; None if there is none. Raises ParameterInvalid."""
    text = first(request, "cursor")
    if not text:
        return None
    try:
        parts = json.loads(base64.urlsafe_b64decode(text[:_LONGEST_CURSOR] + "=" * (-len(text) % 4)))
    except ValueError:
        parts = None
    if not isinstance(parts, list) or [type(part) for part in parts] != [*kinds] or not _fit(parts):
        raise ParameterInvalid("cursor: give the one that the page before came with, as it is")
    return parts


def _fit(parts: list[Any]) -> bool:
    """Whether the catalog's columns hold such numbers and texts."""
    return all(part.isascii() if isinstance(part, str) else -(1 << 63) <= part < 1 << 63 for part in parts)


_LONGEST_UNKNOWN = 50


async def check_parameters(request: Request) -> None:
    """A dependency. Raises ParameterUnknown, and ParameterInvalid where only the first value would count.

    What is ignored is often a selection that is misspelled, and without it everything is selected.
    """
    extra = request.scope["route"].openapi_extra
    schemas = {parameter["name"]: parameter["schema"] for parameter in extra.get("parameters", ())}
    for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in schemas:
            raise ParameterUnknown(_unknown(name[:_LONGEST_UNKNOWN], [*schemas]))
        if times > 1 and schemas[name]["type"] != "array":
            raise ParameterInvalid(f"{name}: give it once, and not {times:,} times")


def _unknown(name: str, declared: list[str]) -> str:
    near = get_close_matches(name.lower(), declared, n=1)
    if near:
        hint = f"maybe {near[0]} is meant"
    else:
        hint = f"there are {', '.join(declared)}" if declared else "there are none"
    return f"{name!r} is no parameter of this route; {hint}"
