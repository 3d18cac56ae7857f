"""Saved traces: a file of OTLP/JSON, as `trace show --json` and OpenTelemetry's tools write it, read back.

The file is anyone's: what isn't OTLP is refused, and names are shown as those of the trace store are. Its
format: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding, and one document a line in that of
the OpenTelemetry collector's file exporter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pgo_collector.errors import TracesUnreadable
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.spans import Span, Value

# The largest file that is read: about 200,000 spans.
_MOST_BYTES = 64 << 20
_TRACE = re.compile(r"[0-9a-f]{32}")
_SPAN = re.compile(r"[0-9a-f]{16}")
_MOST_NANOS = (1 << 63) - 1
_ERRORS = frozenset((2, "STATUS_CODE_ERROR"))


def read_saved(path: Path) -> dict[str, RequestTrace]:
    """Return the traces of a file, by id, each with the spans of all programs. Raises TracesUnreadable."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise TracesUnreadable(f"{path}: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise TracesUnreadable(f"{path}: it is larger than {_MOST_BYTES >> 20} MiB")
    found: dict[str, list[Span]] = {}
    try:
        for document in _documents(content.decode()):
            for trace, span in _spans(document):
                found.setdefault(trace, []).append(span)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TracesUnreadable(
            f"{path}: this isn't OTLP/JSON, as `pgo-collector trace show --json` writes it: {error!r:.200}"
        ) from error
    if not found:
        raise TracesUnreadable(f"{path}: it has no spans")
    return {trace: RequestTrace(trace, "", 0, spans) for trace, spans in found.items()}


def _documents(text: str) -> Iterator[Any]:
    """Yield the document of a text, or those of its lines."""
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        for line in text.splitlines():
            if line.strip():
                yield json.loads(line)
    else:
        yield whole


def _spans(document: Mapping[str, Any]) -> Iterator[tuple[str, Span]]:
    """Yield each span of a document, with its trace."""
    for resource in document["resourceSpans"]:
        program = str(_attributes(resource.get("resource", {})).get("service.name", "other"))
        for scope in resource.get("scopeSpans", ()):
            for written in scope.get("spans", ()):
                yield _id(_TRACE, written["traceId"]), _span(written, program)


def _span(written: Mapping[str, Any], program: str) -> Span:
    """Return a span; its part is ours if it has one, and else the program that it is of."""
    attributes = _attributes(written)
    start, end = (_nanos(written[name]) for name in ("startTimeUnixNano", "endTimeUnixNano"))
    status = written.get("status", {})
    return Span(
        _id(_SPAN, written["spanId"]),
        _id(_SPAN, parent) if (parent := written.get("parentSpanId")) else "",
        str(attributes.pop("pgo.part", program)),
        str(written.get("name", "")),
        start,
        max(start, end),
        attributes,
        str(status.get("message") or "error") if status.get("code") in _ERRORS else "",
    )


def _attributes(holder: Mapping[str, Any]) -> dict[str, Value]:
    return {str(each["key"]): _value(each["value"]) for each in holder.get("attributes", ())}


def _value(typed: Mapping[str, Any]) -> Value:
    """Return a value; a list, a map or bytes as a text."""
    ((kind, value),) = typed.items() or (("", ""),)
    if kind == "intValue":
        return int(value)
    return value if isinstance(value, str | int | float) else json.dumps(value)


def _nanos(written: object) -> int:
    if not 0 <= (nanos := int(str(written))) <= _MOST_NANOS:
        raise ValueError(f"{nanos} isn't a time in ns")
    return nanos


def _id(form: re.Pattern[str], written: object) -> str:
    if not form.fullmatch(id_ := str(written).lower()):
        raise ValueError(f"{id_:.40} isn't an id in hex")
    return id_
