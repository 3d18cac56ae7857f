"""Pyroscope's API as its clients call it: requests made from the schema, and what they store."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from typing import Any

import httpx
from pgo_collector.routes.pyroscope.push_pb2 import PushRequest
from pprof_proto.profile_pb2 import Profile

from tests.collector.edits import edited
from tests.server import Server, bearer

PUSH = "/push.v1.PusherService/Push"
PROTOBUF = {"Content-Type": "application/proto"}
JSON = {"Content-Type": "application/json"}

# Labels, and profiles with them.
SeriesOf = tuple[Mapping[str, str], Iterable[bytes]]


def push_request(*series: SeriesOf) -> PushRequest:
    """Return the message with these series."""
    request = PushRequest()
    for labels, profiles in series:
        added = request.series.add()
        for name, value in labels.items():
            added.labels.add(name=name, value=value)
        for profile in profiles:
            added.samples.add(raw_profile=profile, ID="0f8a1c0e-7f0a-4c26-9a34-6a2b5f0a4d11")
    return request


def one(profile: bytes, service: str, name: str = "process_cpu", **labels: str) -> bytes:
    """Return the message of one profile."""
    return push_request(
        ({"__name__": name, "service_name": service, **labels}, [profile])
    ).SerializeToString()


def push(server: Server, body: bytes, **headers: str) -> httpx.Response:
    """Send a Push as protobuf, unless a header says otherwise. Header names may have underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    every = PROTOBUF | bearer(server.submit_key) | named
    return server.client.post(PUSH, content=body, headers=every)


def assert_pushed(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.content) == (200, b""), answer.text
    assert answer.headers["Content-Type"] == "application/proto"


def refused(answer: httpx.Response, status: int, code: str) -> str:
    """Check that an answer is an error of Connect, and return its message."""
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/json"), answer.text
    error = answer.json()
    assert error.keys() == {"code", "message"}
    assert error["code"] == code, error
    return str(error["message"])


def ingest(
    server: Server, body: bytes, path: str = "/ingest", content_type: str = "", **query: str
) -> httpx.Response:
    """Send a profile to `/ingest`."""
    headers = bearer(server.submit_key) | ({"Content-Type": content_type} if content_type else {})
    return server.client.post(path, content=body, params={"name": "app", **query}, headers=headers)


def form(**parts: bytes) -> tuple[bytes, str]:
    """Return a form with these parts, and its content type."""
    boundary = "xYz"
    pieces = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n".encode()
        + content
        + b"\r\n"
        for name, content in parts.items()
    ]
    return b"".join(pieces) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def without_start_lines(profile: bytes) -> bytes:
    """Return the gzip of a profile as it is without the start lines of its functions."""

    def edit(parsed: Profile) -> None:
        for function in parsed.function:
            function.start_line = 0

    return gzip.compress(edited(profile, edit), mtime=0)


def stored(server: Server, service: str) -> list[tuple[str, dict[str, str]]]:
    """Return the type and the labels of each stored profile of a service, sorted."""
    found = []
    for type_ in ("cpu", "process_cpu", "wall", "memory", "heap", "block", "block_delta", "mutex",
                  "mutex_delta", "goroutine", "other"):  # fmt: skip
        answer = server.ask("/v1/profiles", service=service, type_=type_)
        if answer.status_code == 200:
            found += [(type_, labels_of(entry)) for entry in answer.json()["profiles"]]
    return sorted(found, key=str)


def labels_of(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of a listed profile."""
    labels: dict[str, str] = entry["labels"]
    return labels


def basic(user: str, password: str) -> dict[str, str]:
    """Return the header that sends a user's name and a password."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def as_json(request: PushRequest) -> bytes:
    """Return the message as JSON, written without protobuf's library."""
    return json.dumps(
        {
            "series": [
                {
                    "labels": [{"name": label.name, "value": label.value} for label in series.labels],
                    "samples": [
                        {"rawProfile": base64.b64encode(sample.raw_profile).decode(), "ID": sample.ID}
                        for sample in series.samples
                    ],
                }
                for series in request.series
            ]
        }
    ).encode()
