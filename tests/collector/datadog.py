"""Uploads as Datadog's tracers make them: a form with an event and profiles."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import lz4.frame  # type: ignore[import-untyped]  # it has no stubs
from pprof_proto.profile_pb2 import Profile

from tests.collector.pushing import form
from tests.faults.stacks import EPOCH, SECOND
from tests.server import Server

UPLOAD = "/profiling/v1/input"

# The sample types of ddtrace 4.16, and the unit of each.
PYTHON_TYPES = {
    "cpu-time": "nanoseconds",
    "cpu-samples": "count",
    "wall-time": "nanoseconds",
    "wall-samples": "count",
    "exception-samples": "count",
    "lock-acquire": "count",
    "lock-acquire-wait": "nanoseconds",
    "alloc-samples": "count",
    "alloc-space": "bytes",
    "heap-space": "bytes",
}


def event(service: str, *, start: str = "2023-11-14T22:13:20Z", **tags: str) -> bytes:
    """Return the event of an upload. Names of tags may have underscores."""
    every = {"service": service, "env": "test", "runtime-id": "6f", "language": "python", **tags}
    return json.dumps(
        {
            "version": "4",
            "family": "python",
            "start": start,
            "end": "2023-11-14T22:14:20Z",
            "attachments": ["profile.pprof"],
            "tags_profiler": ",".join(f"{key}:{value}" for key, value in every.items()),
        }
    ).encode()


def upload(
    server: Server, parts: Mapping[str, bytes], key: str = Server.submit_key, **headers: str
) -> httpx.Response:
    """Send a form with these parts, and the key as Datadog's agent sends it, unless it is empty."""
    body, content_type = form(**parts)
    return send(server, body, content_type, key, **headers)


def send(
    server: Server, body: bytes, content_type: str, key: str = Server.submit_key, **headers: str
) -> httpx.Response:
    """Send a body as an upload. Header names may have underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    every = {"Content-Type": content_type, **({"DD-API-KEY": key} if key else {}), **named}
    return server.client.post(UPLOAD, content=body, headers=every)


def assert_uploaded(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()) == (200, {}), answer.text


def refused(answer: httpx.Response, status: int) -> str:
    """Check that an answer is an error of Datadog's intake, and return its message."""
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    error: dict[str, Any] = answer.json()
    assert error.keys() == {"errors"}
    (message,) = error["errors"]
    return str(message)


def lz4_of(content: bytes) -> bytes:
    """Return the LZ4 frame of a content, as older tracers write it."""
    return bytes(lz4.frame.compress(content))


def tracer_profile(
    samples: Sequence[tuple[str, Mapping[str, int], int]], types: Mapping[str, str] = PYTHON_TYPES
) -> bytes:
    """Return a bare profile with many sample types, as tracers of Python, Ruby and Node write it.

    Each sample is of a function, has values by sample type, and the id of its span.
    """
    profile = Profile(time_nanos=EPOCH, duration_nanos=60 * SECOND)
    strings: dict[str, int] = {}

    def string(text: str) -> int:
        return strings.setdefault(text, len(strings))

    string("")
    for name, unit in types.items():
        profile.sample_type.add(type=string(name), unit=string(unit))
    for number, (function, values, span) in enumerate(samples, start=1):
        profile.function.add(id=number, name=string(function), filename=string("shop.py"))
        profile.location.add(id=number).line.add(function_id=number, line=7)
        sample = profile.sample.add(location_id=[number], value=[values.get(name, 0) for name in types])
        sample.label.add(key=string("span id"), num=span)
        sample.label.add(key=string("thread name"), str=string("MainThread"))
    profile.string_table.extend(text.encode() for text in strings)
    return profile.SerializeToString()


def values_of(merged: bytes) -> dict[str, dict[str, int]]:
    """Return the values of each function's samples in a profile, by sample type."""
    profile = Profile.FromString(gzip.decompress(merged))
    strings = profile.string_table
    names = {function.id: strings[function.name].decode() for function in profile.function}
    functions = {location.id: names[location.line[0].function_id] for location in profile.location}
    types = [strings[each.type].decode() for each in profile.sample_type]
    found: dict[str, dict[str, int]] = {}
    for sample in profile.sample:
        sums = found.setdefault(functions[sample.location_id[0]], dict.fromkeys(types, 0))
        for type_, value in zip(types, sample.value, strict=True):
            sums[type_] += value
    return found
