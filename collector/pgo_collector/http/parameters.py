"""Query parameters: the table of all of them, and how to read those outside the selection."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, cast

from pprof_merge import FORMATS
from pprof_merge.analysis import GROUPINGS, Grouping
from pprof_merge.merging import WEIGHTS
from starlette.requests import Request

from pgo_collector.engine.views import StackReading
from pgo_collector.errors import ParameterInvalid
from pgo_collector.http.routing import first_values
from pgo_collector.http.selections import focus_of
from pgo_collector.model.profile_types import CPU, TYPES
from pgo_collector.traces.forms import FORMS as FORMS_OF_TRACES

_TEXT = {"type": "string"}
# A parameter that may be given several times; all values count.
TEXTS = {"type": "array", "items": _TEXT}
_LONGEST_NAME = 10_000
_LONGEST_SEARCH = 200
# The labels of a series are in that of a list of profiles.
_LONGEST_CURSOR = 4000
_KEY_OF_CALL = re.compile(r"0|[0-9a-f]{16}")


def _choice(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": [*words], "default": words[0]}


def _number(default: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": most, "default": default}


# Each parameter's JSON schema, and its description.
PARAMETERS: Mapping[str, tuple[dict[str, Any], str]] = MappingProxyType(
    {
        "service": (_TEXT, (
            "The service. Default: the key's, if the key is for just one, else `PGOF_DEFAULT_SERVICE`; for"
            " traces, all services that the key is for. Routes that answer questions about the fleet take `*`"
            " for all services. Merges, reports and releases take several: `service=a&service=b`."
        )),
        "type": (_choice(CPU, *(name for name in TYPES if name != CPU)), "The type of profile."),
        "labels": (TEXTS, "`version=1.4,region!=eu|us`: labels to select; for a submit, the profile's own."),
        "from": (_TEXT, "Select profiles taken at this time or later: a date or an RFC 3339 time."),
        "to": (_TEXT, "Select profiles taken before this time: a date or an RFC 3339 time."),
        "last": (_TEXT, "Use in place of `from`: a length of time, such as `7d`, that ends at `to` or now."),
        "profile_id": (TEXTS, (
            "Select stored profiles by their ids, which are UUIDs: the first 32 hex digits of the SHA-256 of"
            " their bare protobuf. Several may have commas between them."
        )),
        "trace_id": (TEXTS, (
            "Take only samples of these traces, by their ids of 32 hex digits in labels such as `trace_id`."
        )),
        "span_id": (TEXTS, (
            "Take only samples of these spans, by their ids of 16 hex digits in labels such as `span_id` and"
            " `profile_id`."
        )),
        "base_service": (_TEXT, "The base's service. Default: the same service."),
        "base_labels": (TEXTS, "The base's labels; empty for any. Default: the same labels."),
        "base_from": (_TEXT, "The base's `from`. With none of the three, the base has the same time."),
        "base_to": (_TEXT, "The base's `to`."),
        "base_last": (_TEXT, "The base's `last`."),
        "latency_from": (_TEXT, (
            "Take only samples with this latency or a longer one: a whole number and `ns`, `us`, `ms` or `s`,"
            " as in `5ms`."
        )),
        "latency_to": (_TEXT, "Take only samples with a shorter latency than this."),
        "focus": (_TEXT, (
            "A regular expression: take only samples with a function, file or binary whose name matches, as"
            " `go tool pprof -focus` does."
        )),
        "ignore": (_TEXT, "Leave out samples with such a name, as `-ignore` does."),
        "hide": (_TEXT, "Leave out frames with such a name, as `-hide` does; their values stay."),
        "trim_path": (_TEXT, (
            "`/home/ci/build:/src`: show paths of files without the first of these folders that they are in,"
            " as `go tool pprof -trim_path` does."
        )),
        "recursion": (_choice("keep", "collapse"), "`collapse`: of a name that calls itself, take one call."),
        "group": (_TEXT, (
            "The key of a label, of the profiles or of their samples: the first calls are its values, as with"
            " `go tool pprof -tagroot`. The twenty largest have calls of their own."
        )),
        "root": (_TEXT, "The `key` of a call: return what is below it, and its callers. Default: the whole."),
        "sample_type": (_TEXT, (
            "The type of the values, such as `alloc_space`. Default: the profile's own, or its last one, as"
            " in `go tool pprof`."
        )),
        "by": (_choice(*GROUPINGS), "What each row stands for."),
        "sort": (_choice("flat", "cum"), "The value to sort by, largest first."),
        "n": (_number(10, 1000), "The number of rows."),
        "function": (_TEXT, "The full name of a function; `/v1/series` takes this or `package`."),
        "package": (_TEXT, "The full name of a package. Give this or `function`."),
        "step": (_choice("hour", "day", "minute"), "The length of a step, in UTC."),
        "search": (_TEXT, (
            "List only names that contain this text, in any case, as they are shown or mangled; up to 200"
            " characters. A flame graph lists all names, and says what is in stacks with such a name."
        )),
        "limit": (_number(100, 1000), "The number of entries on a page, or of calls in a flame graph."),
        "cursor": (_TEXT, "The value of `next` on the previous page."),
        "format": (_choice(*FORMATS), "The format of the answer."),
        "binary": (_TEXT, (
            "For `format=llvm`: the build id of the uploaded program that helps, or `none`. Default: the"
            " uploaded one with most samples of the merge, if there is one."
        )),
        "form": (_choice(*FORMS_OF_TRACES), "The form of the answer, as in `pgo-collector trace show`."),
        "order": (_choice("newest", "slowest"), "Which requests come first."),
        "errors": (_choice("false", "true"), "`true`: only requests that ended with an error."),
        "weight": (_choice(*WEIGHTS), "What gives each profile its weight in the merge."),
        "half_life": (_TEXT, "`7d`: halve a profile's weight for each 7 days it is older than the newest."),
        "weights": (_TEXT, "`a:2,b:1`: how much each of several services counts, however much each sent."),
        "sample_labels": (
            _choice("stable", "all"),
            "The labels that samples keep: `stable` leaves out what differs for each request, as `span id`.",
        ),
        "symbolize": (
            _TEXT,
            "`true`: give addresses without functions those of uploaded programs, as views always have them.",
        ),
        "and_combine": (_TEXT, "`true`, only with POST: replace the stored profiles by their merge."),
    }
)  # fmt: skip


def whole_number(request: Request, parameter: str) -> int:
    """Return the value of a parameter that is a number, or its default. Raises ParameterInvalid."""
    schema, _ = PARAMETERS[parameter]
    text = first_values(request).get(parameter)
    if not text:
        return int(schema["default"])
    most = schema["maximum"]
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise ParameterInvalid(f"{parameter}={text[:50]}: give a whole number from 1 to {most:,}")
    return int(text)


def one_of(request: Request, parameter: str) -> str:
    """Return the value of a parameter that is one word of several, or its default.

    Raises ParameterInvalid.
    """
    schema, _ = PARAMETERS[parameter]
    text = first_values(request).get(parameter) or str(schema["default"])
    if text not in schema["enum"]:
        raise ParameterInvalid(f"unknown {parameter} {text[:50]!r}; give one of {', '.join(schema['enum'])}")
    return text


def single_parameter(request: Request, choices: Iterable[str]) -> tuple[str, str]:
    """Return the one of these parameters that is given, and its value.

    Raises ParameterInvalid if none or several are given, or if the value is too long.
    """
    choices, values = list(choices), first_values(request)
    given = [(choice, text) for choice in choices if (text := values.get(choice))]
    if len(given) != 1:
        raise ParameterInvalid(f"give exactly one of {', '.join(choices)}")
    if len(given[0][1]) > _LONGEST_NAME:
        raise ParameterInvalid(f"{given[0][0]}: the name is longer than {_LONGEST_NAME:,} characters")
    return given[0]


def reading_of(request: Request) -> StackReading:
    """Return which stacks a flame graph has, and how it reads them. Raises ParameterInvalid."""
    return StackReading(
        focus_of(request),
        cast("Grouping", one_of(request, "by")),
        one_of(request, "recursion") == "collapse",
        _short_text(request, "group"),
    )


def root_of(request: Request) -> int:
    """Return the key of the call that a flame graph begins with, 0 for the whole. Raises ParameterInvalid."""
    key = first_values(request).get("root") or "0"
    if not _KEY_OF_CALL.fullmatch(key):
        raise ParameterInvalid(f"root={key[:50]}: not the key of a call, which is 0 or 16 hex digits")
    return int(key, 16)


def search_of(request: Request) -> str:
    """Return the text that names are to contain; empty for any. Raises ParameterInvalid."""
    return _short_text(request, "search")


def _short_text(request: Request, name: str) -> str:
    text = first_values(request).get(name) or ""
    if len(text) > _LONGEST_SEARCH:
        raise ParameterInvalid(f"{name}: the text is longer than {_LONGEST_SEARCH} characters")
    return text


def encode_cursor(*position: int | str) -> str:
    """Return the cursor of the page after this position, as text for clients."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def decode_cursor(request: Request, *types: type) -> list[Any] | None:
    """Return the position in the request's cursor, as values of these types, or None if there is no cursor.

    Raises ParameterInvalid.
    """
    text = first_values(request).get("cursor")
    if not text:
        return None
    try:
        position = json.loads(base64.urlsafe_b64decode(text[:_LONGEST_CURSOR] + "=" * (-len(text) % 4)))
    except ValueError:
        position = None
    if not isinstance(position, list) or [*map(type, position)] != [*types] or not all(map(_fits, position)):
        raise ParameterInvalid("cursor: give the value of `next` on the previous page, unchanged")
    return position


def _fits(value: int | str) -> bool:
    """Return whether a column of the catalog can hold this value."""
    return value.isascii() if isinstance(value, str) else -(1 << 63) <= value < 1 << 63
