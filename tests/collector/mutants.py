"""Mutated requests of each sender and reader: requests that are valid, with bytes or fields changed.

`SENDERS` has a function for each protocol and form. It sends one mutated request, whose changes are drawn
from a random source, and says whether the answer is one that the clients of the protocol understand: the
request is stored or answered, or it is refused; the server is never at fault.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import grpc
import httpx
from backports import zstd
from google.protobuf import json_format
from google.protobuf.message import Message
from pgo_collector.routes.pyroscope import querier_pb2 as messages
from pprof_merge.binary import Binary, BinaryLimits

from tests.collector import calling, datadog, exporting, pushing, querying
from tests.collector.engine.test_binaries import cpu_profile
from tests.collector.engine.test_joining import BUILD
from tests.collector.engine.test_symbols import symbols
from tests.collector.exporting import Export, export
from tests.collector.pushing import form, ingest, push, push_request
from tests.collector.routes.test_autopgo import post as post_to_autopgo
from tests.collector.routes.test_otlp_grpc import METHOD as EXPORT
from tests.collector.routes.test_parca import WRITE_RAW, request_of, write
from tests.faults.stacks import EPOCH, SECOND, profile_of
from tests.merge.binary.program import FLAGS, SOURCE, sampled
from tests.oracle.mutation import PROFILE, Schema, mutate_bytes, mutate_fields
from tests.server import Server, bearer


class Reply(NamedTuple):
    """An answer: its status or gRPC's code, and what is wrong with it, which is empty if nothing is."""

    status: str
    wrong: str


Send = Callable[[Server, Random], Reply]
_SendByHttp = Callable[[Server, Random], httpx.Response]

_SERVICE = "mutants"
_BARE = [gzip.decompress(profile_of(name)) for name in "abc"]


def _by_http(send: _SendByHttp, is_understood: Callable[[httpx.Response], bool]) -> Send:
    """Return a sender of requests over HTTP, whose clients understand some answers."""

    def sent(server: Server, random: Random) -> Reply:
        answer = send(server, random)
        is_fine = answer.status_code < 500 and is_understood(answer)
        return Reply(str(answer.status_code), "" if is_fine else f"{answer.status_code} {answer.text[:500]}")

    return sent


def _by_grpc(method: str, make: Callable[[Random], bytes]) -> Send:
    """Return a sender of calls of gRPC."""

    def sent(server: Server, random: Random) -> Reply:
        message, compression = (
            make(random),
            random.choice((grpc.Compression.NoCompression, grpc.Compression.Gzip)),
        )
        if random.randrange(4) == 0:  # the server inflates what is gzip, whether it is said to be or not
            message, compression = _packed(random, message), grpc.Compression.NoCompression
        try:
            calling.call(server, message, method, compression=compression)
        except grpc.RpcError as error:
            refusal: Any = error
            code: grpc.StatusCode = refusal.code()
            is_fine = code == grpc.StatusCode.INVALID_ARGUMENT
            return Reply(code.name, "" if is_fine else f"{code.name} {refusal.details()}")
        return Reply("OK", "")

    return sent


def _has_keys(answer: httpx.Response, *keys: str) -> bool:
    """Return whether an answer is a JSON object with these keys alone."""
    try:
        found = answer.json()
    except ValueError:
        return False
    return isinstance(found, dict) and {*found} == {*keys}


def _is_connects(answer: httpx.Response) -> bool:
    return answer.status_code == 200 or _has_keys(answer, "code", "message")


def _is_queriers(answer: httpx.Response) -> bool:
    return answer.status_code in {200, 400} and _is_connects(answer)


def _is_otlps(answer: httpx.Response) -> bool:
    return answer.headers["Content-Type"] == answer.request.headers["Content-Type"]


def _is_datadogs(answer: httpx.Response) -> bool:
    return _has_keys(answer) if answer.status_code == 200 else _has_keys(answer, "errors")


def _is_autopgos(answer: httpx.Response) -> bool:
    return answer.status_code == 201 or _has_keys(answer, "message", "code")


def _is_ours(answer: httpx.Response) -> bool:
    return answer.is_success or answer.headers["Content-Type"] == "application/problem+json"


def _mutated(random: Random, message: bytes, schema: Schema) -> bytes:
    """Return a message with fields or bytes changed."""
    return mutate_fields(random, message, schema) if random.randrange(2) else mutate_bytes(random, message)


def _packed(random: Random, message: bytes) -> bytes:
    """Return the gzip of a message, every other one with bytes changed."""
    packed = gzip.compress(message)
    return mutate_bytes(random, packed) if random.randrange(2) else packed


def _change_json(random: Random, node: object) -> None:
    """Replace a value somewhere in a JSON document."""
    while isinstance(node, dict | list) and node:
        keys = [*node] if isinstance(node, dict) else [*range(len(node))]
        key = random.choice(keys)
        if random.randrange(4) and isinstance(node[key], dict | list):
            node = node[key]
            continue
        node[key] = random.choice([None, 0, -1, 1e300, "", "x", "\ud800", [], [[]], {}, {"a": 1}, True])
        return


def _mutated_json(random: Random, document: bytes) -> bytes:
    """Return a JSON document with a value or bytes changed."""
    if random.randrange(2):
        return mutate_bytes(random, document)
    changed = json.loads(document)
    _change_json(random, changed)
    return json.dumps(changed).encode()


def _mutated_type(random: Random, content_type: str) -> str:
    """Return a content type with characters changed, which HTTP can carry."""
    mutant = mutate_bytes(random, content_type.encode())
    return "".join(chr(byte) for byte in mutant if 0x20 <= byte < 0x7F).strip()


# Our own routes.


def _submit(server: Server, random: Random) -> httpx.Response:
    body = _mutated(random, _BARE[0], PROFILE)
    if random.randrange(3):
        body = _packed(random, body)
    query = {"service": _SERVICE, "type": "cpu", "labels": "region=eu,zone=1"}
    if random.randrange(4) == 0:
        name = random.choice([*query])
        query[name] = mutate_bytes(random, query[name].encode()).decode("latin-1")
    return server.submit(body, query=query)


_SYMBOLS = symbols(BUILD, "go", f=10, g=20, h=30)


def _upload_symbols(server: Server, random: Random) -> httpx.Response:
    mutated = _mutated(random, _SYMBOLS, PROFILE)
    body = _packed(random, mutated) if random.randrange(2) else mutated
    return server.client.post(
        "/v1/symbols", params={"service": _SERVICE}, content=body, headers=bearer(server.submit_key)
    )


# What builds a program and reads it.
_HAS_TOOLS = all(shutil.which(tool) for tool in ("clang", "llvm-symbolizer"))
_PROGRAMS = {"service": "programs"}
# The header of an ELF file and those of its segments, and the headers of its sections, which come last.
_HEADERS, _SECTIONS = 1000, 2400


@cache
def _program() -> tuple[bytes, bytes]:
    """Return a program, and a profile with samples in it."""
    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder) / "work.c", Path(folder) / "work"
        source.write_text(SOURCE)
        subprocess.run(["clang", *FLAGS, "-o", path, source], check=True)
        content = path.read_bytes()
    binary = Binary(content, BinaryLimits())
    every = (at for _, first, size in binary.segments for at in range(first, first + size, 4))
    named = {at: binary.function(at) for at in every}
    work = {at: 9 for at, found in named.items() if found and found.name == b"work"}
    return content, cpu_profile(sampled(binary, work))


def _upload_program(server: Server, random: Random) -> httpx.Response:
    """Upload a program, ask for a merge that is made with it, and delete it."""
    content, profile = _program()
    start, end = random.choice(((0, _HEADERS), (len(content) - _SECTIONS, len(content)), (0, len(content))))
    body = content[:start] + mutate_bytes(random, content[start:end]) + content[end:]
    key = bearer(server.submit_key)
    answer = server.client.post("/v1/binaries", params=_PROGRAMS, content=body, headers=key)
    if answer.status_code != 200:
        return answer
    server.submit(profile, query=_PROGRAMS).raise_for_status()
    merged = server.merge(format_="llvm", query=_PROGRAMS)
    server.ask(f"/v1/binaries/{answer.json()['build_id']}", "DELETE", **_PROGRAMS).raise_for_status()
    return merged


# Pyroscope's.

_PUSH_SCHEMA: Schema = {1: {1: {}, 2: {1: PROFILE}}}
_PUSH = push_request(
    ({"__name__": "process_cpu", "service_name": _SERVICE, "region": "eu"}, _BARE[:2]),
    ({"__name__": "memory", "service_name": _SERVICE, "__delta__": "false"}, _BARE[2:]),
)
PUSH_MESSAGE = _PUSH.SerializeToString()
_FORM, _FORM_TYPE = form(profile=_BARE[0], sample_type_config=b'{"cpu": {"units": "x"}}')
_SPEEDSCOPE = json.dumps({
    "$schema": "https://www.speedscope.app/file-format-schema.json",
    "shared": {"frames": [{"name": "a", "file": "a.py", "line": 1}, {"name": "b"}]},
    "profiles": [
        {"type": "sampled", "name": "x", "unit": "bytes", "samples": [[0], [0, 1]], "weights": [1, 2.5]},
        {"type": "evented", "name": "y", "unit": "seconds", "startValue": 0,
         "events": [{"type": "O", "frame": 1, "at": 0.5}, {"type": "C", "frame": 1, "at": 2}]},
    ],
}).encode()  # fmt: skip
_QUERY = f"name={_SERVICE}{{region=eu,zone=1}}&from=1700000000&format=pprof&spyName=gospy"


def _push(server: Server, random: Random) -> httpx.Response:
    mutant = _mutated(random, PUSH_MESSAGE, _PUSH_SCHEMA)
    if random.randrange(4):
        return push(server, mutant)
    return push(server, _packed(random, mutant), Content_Encoding="gzip")


def _push_json(server: Server, random: Random) -> httpx.Response:
    return push(server, _mutated_json(random, pushing.as_json(_PUSH)), **pushing.JSON)


def _ingest(server: Server, random: Random) -> httpx.Response:
    if random.randrange(2):
        spy = random.choice(["", "dotnetspy"])  # profiles of .NET are repaired
        body = mutate_bytes(random, _FORM)
        return ingest(server, body, content_type=_FORM_TYPE, name=_SERVICE, spyName=spy)
    if random.randrange(2):
        return ingest(server, mutate_bytes(random, _SPEEDSCOPE), name=_SERVICE, format="speedscope")
    query = mutate_bytes(random, _QUERY.encode()).decode("latin-1")
    headers = bearer(server.submit_key) | {"Content-Type": _mutated_type(random, _FORM_TYPE)}
    return server.client.post("/ingest", params=query, content=_FORM, headers=headers)


# OpenTelemetry's.

_PAIR: Schema = {2: {5: {1: {}}}}
_OTLP_SCHEMA: Schema = {
    1: {1: {1: _PAIR}, 2: {1: {3: _PAIR}, 2: {1: {}, 2: {}, 5: {}}}},
    2: {1: {}, 2: {3: {}}, 3: {}, 6: {2: {}}, 7: {}},
}


def _export_request(*, before: bool) -> Export:
    request = Export(before=before)
    for service in (_SERVICE, "others"):
        request.resource({"service.name": service, "service.version": "1", "process.pid": 7})
        request.profile(attributes={"pprof.profile.comment": "c"})
        binary = request.mapping("main", "abc")
        for stack in (["a", "b"], ["a", "c"]):
            frames = [(name, f"/{name}.go", 7) for name in stack]
            request.sample(
                frames, timestamps=2, values=[3, 4], mapping=binary, attributes={"thread.name": "t"}
            )
    original = request.profile()
    original.original_payload_format, original.original_payload = "pprof", profile_of("z")
    return request


_CURRENT, _BEFORE = _export_request(before=False), _export_request(before=True)


def _mutated_export(random: Random) -> bytes:
    return _mutated(random, random.choice((_CURRENT, _BEFORE)).body, _OTLP_SCHEMA)


def _export(server: Server, random: Random) -> httpx.Response:
    mutant = _mutated_export(random)
    if random.randrange(4):
        return export(server, mutant)
    return export(server, _packed(random, mutant), Content_Encoding="gzip")


def _export_json(server: Server, random: Random) -> httpx.Response:
    return export(server, _mutated_json(random, exporting.as_json(_CURRENT.request)), **exporting.JSON)


# Datadog's.

_TRACER_PROFILE = datadog.tracer_profile(
    [
        ("work", {"cpu-time": 30, "cpu-samples": 3, "wall-time": 40, "wall-samples": 4}, 1),
        ("keep", {"alloc-samples": 2, "alloc-space": 512, "heap-space": 256}, 2),
    ]
)
_EVENT = datadog.event(_SERVICE, version="1.4", region="eu")
_PACKINGS = (bytes, gzip.compress, zstd.compress, datadog.lz4_of)


def _upload(server: Server, random: Random) -> httpx.Response:
    what = random.choice(("profile", "packed profile", "event", "form", "content type"))
    part, event = _TRACER_PROFILE, _EVENT
    if what == "profile":
        part = _mutated(random, part, PROFILE)
    part = random.choice(_PACKINGS)(part)
    if what == "packed profile":
        part = mutate_bytes(random, part)
    elif what == "event":
        event = _mutated_json(random, event)
    name = random.choice(["profile.pprof", "cpu.pprof", "delta-heap.pprof", "wall.pprof"])
    body, content_type = form(**{"event": event, name: part})
    if what == "form":
        body = mutate_bytes(random, body)
    elif what == "content type":
        content_type = _mutated_type(random, content_type)
    headers = {"X_Datadog_Additional_Tags": "host:a,default_env:b"} if random.randrange(2) else {}
    return datadog.send(server, body, content_type, **headers)


# Parca's, and autopgo's.

_PARCA_SCHEMA: Schema = {2: {1: {1: {}}, 2: {1: PROFILE}}}
_WRITE_RAW = request_of(
    ({"__name__": "process_cpu", "job": _SERVICE, "region": "eu"}, _BARE[:2]),
    ({"__name__": "memory", "container": _SERVICE}, _BARE[2:]),
)


def _mutated_write(random: Random) -> bytes:
    return _mutated(random, _WRITE_RAW, _PARCA_SCHEMA)


def _write(server: Server, random: Random) -> httpx.Response:
    mutant = _mutated_write(random)
    return write(server, mutant if random.randrange(4) else _packed(random, mutant))


def _post(server: Server, random: Random) -> httpx.Response:
    mutant = _mutated(random, _BARE[0], PROFILE)
    app = _SERVICE if random.randrange(4) else mutate_bytes(random, _SERVICE.encode()).hex("%")
    return post_to_autopgo(server, app, _packed(random, mutant) if random.randrange(3) else mutant)


# Grafana's queries. What they ask for is stored by `fill`.

_NOW_MS = EPOCH // 10**6
_SELECTOR = '{service_name="shop",region=~"e.|us",pod!~"x+",zone!=""}'
_TIMES = {"start": _NOW_MS - 1000, "end": _NOW_MS + 60_000}
_SELECTED: dict[str, Any] = {
    "profile_typeID": querying.CPU, "label_selector": '{service_name=~"shop|x"}', **_TIMES
}  # fmt: skip
_PGO = messages.StackTraceSelector(go_pgo=messages.GoPGO(keep_locations=5, aggregate_callees=True))
QUERIES: Mapping[str, list[Message]] = {
    "ProfileTypes": [messages.ProfileTypesRequest(**_TIMES)],
    "LabelNames": [messages.LabelNamesRequest(matchers=[_SELECTOR], **_TIMES)],
    "LabelValues": [messages.LabelValuesRequest(name="region", matchers=[_SELECTOR, "{}"], **_TIMES)],
    "Series": [messages.SeriesRequest(matchers=["{}"], label_names=["region", "__name__"], **_TIMES)],
    "SelectSeries": [
        messages.SelectSeriesRequest(
            group_by=["region"], step=15.0, limit=3, exemplar_type=f"EXEMPLAR_TYPE_{each}", **_SELECTED
        )
        for each in ("NONE", "INDIVIDUAL", "SPAN")
    ],
    "SelectMergeStacktraces": [
        messages.SelectMergeStacktracesRequest(max_nodes=100, **_SELECTED),
        *(
            messages.SelectMergeStacktracesRequest(format=f"PROFILE_FORMAT_{each}", **_SELECTED)
            for each in ("PPROF", "TREE", "DOT")
        ),
        messages.SelectMergeStacktracesRequest(
            format="PROFILE_FORMAT_PPROF", stack_trace_selector=_PGO, **_SELECTED
        ),
        messages.SelectMergeStacktracesRequest(
            profile_id_selector=["7c9e6679-7425-40de-944b-e07fc1f90ae7"],
            trace_id_selector=["7c9e66797425440de944be07fc1f90ae"],
            span_selector=["9a517183f26a089d", "5a4fe264a9c987fe"],
            **_SELECTED,
        ),
    ],
    "SelectMergeSpanProfile": [
        messages.SelectMergeSpanProfileRequest(span_selector=["9a517183f26a089d"], **_SELECTED)
    ],
    "Diff": [
        messages.DiffRequest(
            **dict.fromkeys(("left", "right"), messages.SelectMergeStacktracesRequest(**_SELECTED))
        )
    ],
    "SelectMergeProfile": [messages.SelectMergeProfileRequest(**_SELECTED)],
}
# The selector of stacks is a message in two of the calls, and text or a number in none.
_QUERY_SCHEMA: Schema = {7: {2: {}}}
_STRANGE: list[Any] = [
    None, 0, -1, 1e300, "", "x", "\ud800", "{", "-9223372036854775808", [], [[]], {}, True, 1 << 70
]  # fmt: skip


def fill(server: Server) -> None:
    """Store what the queries ask for."""
    for number, region in enumerate(["eu", "us"]):
        profile = profile_of(f"f{number}", time_nanos=EPOCH + number * SECOND)
        answer = server.submit(profile, query={"service": "shop", "labels": f"region={region},zone=1"})
        assert answer.status_code == 204, answer.text


def _any_query(random: Random) -> tuple[str, Message]:
    method = random.choice([*QUERIES])
    return method, random.choice(QUERIES[method])


def _query(server: Server, random: Random) -> httpx.Response:
    method, request = _any_query(random)
    mutant = _mutated(random, request.SerializeToString(), _QUERY_SCHEMA)
    if random.randrange(4):
        return querying.post(server, method, mutant)
    return querying.post(server, method, _packed(random, mutant), Content_Encoding="gzip")


def _query_json(server: Server, random: Random) -> httpx.Response:
    method, request = _any_query(random)
    text = json_format.MessageToJson(request, preserving_proto_field_name=bool(random.randrange(2)))
    if random.randrange(2):
        return querying.post(server, method, mutate_bytes(random, text.encode()), **pushing.JSON)
    document = json.loads(text)
    document[random.choice([*document, "x"])] = random.choice(_STRANGE)
    return querying.post(server, method, json.dumps(document).encode(), **pushing.JSON)


def _render(server: Server, random: Random) -> httpx.Response:
    query = {
        "query": f"{querying.CPU}{_SELECTOR}", "from": "now-1h", "until": f"{_NOW_MS}", "max-nodes": "10"
    }  # fmt: skip
    path = "/pyroscope/render"
    if random.randrange(2):
        path += "-diff"
        query |= {
            "leftQuery": querying.CPU, "rightQuery": querying.CPU + _SELECTOR, "leftFrom": "1700000000"
        }  # fmt: skip
    name = random.choice([*query])
    query[name] = mutate_bytes(random, query[name].encode()).decode("latin-1")
    return server.client.get(path, params=query, headers=bearer(server.merge_key))


# The senders that only read, and for which `fill` stores something.
READERS = frozenset({"querier", "querier-json", "render"})
SENDERS: Mapping[str, Send] = MappingProxyType(
    {
        "submit": _by_http(_submit, _is_ours),
        "symbols": _by_http(_upload_symbols, _is_ours),
        **({"binaries": _by_http(_upload_program, _is_ours)} if _HAS_TOOLS else {}),
        "push": _by_http(_push, _is_connects),
        "push-json": _by_http(_push_json, _is_connects),
        "ingest": _by_http(_ingest, _is_connects),
        "otlp": _by_http(_export, _is_otlps),
        "otlp-json": _by_http(_export_json, _is_otlps),
        "otlp-grpc": _by_grpc(EXPORT, _mutated_export),
        "datadog": _by_http(_upload, _is_datadogs),
        "parca": _by_http(_write, _is_connects),
        "parca-grpc": _by_grpc(WRITE_RAW, _mutated_write),
        "autopgo": _by_http(_post, _is_autopgos),
        "querier": _by_http(_query, _is_queriers),
        "querier-json": _by_http(_query_json, _is_queriers),
        "render": _by_http(_render, _is_queriers),
    }
)
