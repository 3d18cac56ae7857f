"""Mutated queries: each is answered or refused as Connect does, and never the server's fault."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from pgo_collector.routes.pyroscope import querier_pb2 as messages

from tests.collector.pushing import JSON
from tests.collector.querying import CPU, post
from tests.faults.stacks import EPOCH, SECOND, profile_of
from tests.oracle.mutation import Schema, mutate_bytes, mutate_fields
from tests.server import Server, bearer

_NOW_MS = EPOCH // 10**6
_SELECTOR = '{service_name="shop",region=~"e.|us",pod!~"x+",zone!=""}'
_TIMES = {"start": _NOW_MS - 1000, "end": _NOW_MS + 60_000}
_SELECTED: dict[str, Any] = {"profile_typeID": CPU, "label_selector": '{service_name=~"shop|x"}', **_TIMES}
_PGO = messages.StackTraceSelector(go_pgo=messages.GoPGO(keep_locations=5, aggregate_callees=True))
_REQUESTS: Mapping[str, list[Message]] = {
    "ProfileTypes": [messages.ProfileTypesRequest(**_TIMES)],
    "LabelNames": [messages.LabelNamesRequest(matchers=[_SELECTOR], **_TIMES)],
    "LabelValues": [messages.LabelValuesRequest(name="region", matchers=[_SELECTOR, "{}"], **_TIMES)],
    "Series": [messages.SeriesRequest(matchers=["{}"], label_names=["region", "__name__"], **_TIMES)],
    "SelectSeries": [messages.SelectSeriesRequest(group_by=["region"], step=15.0, limit=3, **_SELECTED)],
    "SelectMergeStacktraces": [
        messages.SelectMergeStacktracesRequest(max_nodes=100, **_SELECTED),
        messages.SelectMergeStacktracesRequest(format="PROFILE_FORMAT_PPROF", **_SELECTED),
        messages.SelectMergeStacktracesRequest(
            format="PROFILE_FORMAT_PPROF", stack_trace_selector=_PGO, **_SELECTED
        ),
    ],
    "SelectMergeProfile": [messages.SelectMergeProfileRequest(**_SELECTED)],
}
# The selector of stacks is a message in two of the calls, and text or a number in none.
_SCHEMA: Schema = {7: {2: {}}}
_STRANGE: list[Any] = [
    None,
    0,
    -1,
    1e300,
    "",
    "x",
    "\ud800",
    "{",
    "-9223372036854775808",
    [],
    [[]],
    {},
    True,
    1 << 70,
]


def _any(random: Random) -> tuple[str, Message]:
    method = random.choice([*_REQUESTS])
    return method, random.choice(_REQUESTS[method])


def _protobuf(server: Server, random: Random) -> httpx.Response:
    method, request = _any(random)
    message = request.SerializeToString()
    by_fields = random.randrange(2)
    mutant = mutate_fields(random, message, _SCHEMA) if by_fields else mutate_bytes(random, message)
    if random.randrange(4):
        return post(server, method, mutant)
    packed = mutate_bytes(random, gzip.compress(mutant)) if random.randrange(2) else gzip.compress(mutant)
    return post(server, method, packed, Content_Encoding="gzip")


def _json(server: Server, random: Random) -> httpx.Response:
    method, request = _any(random)
    text = json_format.MessageToJson(request, preserving_proto_field_name=bool(random.randrange(2)))
    if random.randrange(2):
        return post(server, method, mutate_bytes(random, text.encode()), **JSON)
    document = json.loads(text)
    document[random.choice([*document, "x"])] = random.choice(_STRANGE)
    return post(server, method, json.dumps(document).encode(), **JSON)


def _render(server: Server, random: Random) -> httpx.Response:
    query = {
        "query": f"{CPU}{_SELECTOR}", "from": "now-1h", "until": f"{_NOW_MS}", "max-nodes": "10"
    }  # fmt: skip
    path = "/pyroscope/render"
    if random.randrange(2):
        path += "-diff"
        query |= {"leftQuery": CPU, "rightQuery": CPU + _SELECTOR, "leftFrom": "1700000000"}
    name = random.choice([*query])
    query[name] = mutate_bytes(random, query[name].encode()).decode("latin-1")
    return server.client.get(path, params=query, headers=bearer(server.merge_key))


@pytest.mark.parametrize("send", [_protobuf, _json, _render])
@pytest.mark.parametrize("count", [150, pytest.param(2_500, marks=pytest.mark.exhaustive)])
def test_a_mutated_query_is_answered_or_refused(
    tmp_path: Path, send: Callable[[Server, Random], httpx.Response], count: int
) -> None:
    """Takes over 20 s with 2,500 requests."""
    with Server(tmp_path) as server:
        for number, region in enumerate(["eu", "us"]):
            profile = profile_of(f"f{number}", time_nanos=EPOCH + number * SECOND)
            query = {"service": "shop", "labels": f"region={region},zone=1"}
            assert server.submit(profile, query=query).status_code == 204
        seen: dict[int, int] = {}
        for seed in range(count):
            answer = send(server, Random(seed))  # noqa: S311 - nothing secret
            seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
            assert answer.status_code < 500, (seed, answer.text)
            if answer.status_code != 200:
                assert answer.json().keys() == {"code", "message"}, (seed, answer.text)
        assert {*seen} == {200, 400}
        assert not server.events("unexpected error")
        assert not [*(server.data / "incoming").iterdir()]
