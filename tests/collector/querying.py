"""Grafana's calls as it makes them: messages of the querier, and their answers."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import httpx
from google.protobuf import json_format
from google.protobuf.message import Message
from pgo_collector.routes.pyroscope import querier_pb2 as messages

from tests.collector.pushing import JSON, PROTOBUF
from tests.server import Server, bearer

QUERIER = "/querier.v1.QuerierService/"
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
SAMPLES = "process_cpu:samples:count:cpu:nanoseconds"
Answer = TypeVar("Answer", bound=Message)


def post(
    server: Server, method: str, body: bytes, key: str = Server.merge_key, **headers: str
) -> httpx.Response:
    """Send a call as protobuf, unless a header says otherwise."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.client.post(QUERIER + method, content=body, headers=PROTOBUF | bearer(key) | named)


def call(
    server: Server, method: str, kind: type[Answer], key: str = Server.merge_key, **fields: Any
) -> Answer:
    """Return the answer to a call, which is the same in both forms and both spellings of JSON."""
    request = getattr(messages, f"{method}Request")(**fields)
    answered = post(server, method, request.SerializeToString(), key)
    assert (answered.status_code, answered.headers["Content-Type"]) == (200, "application/proto"), (
        answered.text
    )
    answer = kind.FromString(answered.content)
    for keeps_names in (False, True):
        body = json_format.MessageToJson(request, preserving_proto_field_name=keeps_names).encode()
        as_json = post(server, method, body, key, **JSON)
        assert (as_json.status_code, as_json.headers["Content-Type"]) == (200, "application/json")
        assert json_format.ParseDict(as_json.json(), kind()) == answer
    return answer


def ask_json(server: Server, method: str, key: str = Server.merge_key, **fields: Any) -> Any:
    """Return the JSON of the answer to a call in JSON."""
    answered = post(server, method, json.dumps(fields).encode(), key, **JSON)
    assert answered.status_code == 200, answered.text
    return answered.json()
