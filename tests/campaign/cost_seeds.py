"""Ordinary small requests of each protocol, route and page, from which the search for costly ones begins."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import json_format
from google.protobuf.message import Message
from pgo_collector.routes.otlp.export_pb2 import ExportRequest
from pgo_collector.routes.parca.parca_pb2 import WriteRawRequest
from pprof_proto.profile_pb2 import Profile

from tests.campaign.cost_parts import (
    BOUNDARY,
    GRPC,
    SERVICE,
    SESSION,
    Part,
    of_json,
    of_message,
    request,
    texts,
)
from tests.collector import datadog, exporting, pushing, querying
from tests.collector.engine.test_joining import BUILD, LATER
from tests.collector.engine.test_symbols import symbols
from tests.collector.exporting import Export
from tests.collector.mutants import QUERIES
from tests.collector.pushing import PUSH, push_request
from tests.collector.routes import test_speedscope as speedscope
from tests.collector.routes.test_autopgo import PROFILES
from tests.collector.routes.test_otlp_grpc import METHOD as OTLP_CALL
from tests.collector.routes.test_parca import WRITE_RAW, request_of
from tests.faults.stacks import EPOCH, profile_of
from tests.merge.binary.program import FLAGS, SOURCE
from tests.merge.campaign import real_profiles
from tests.server import Server, bearer

_SUBMIT, _MERGE = bearer(Server.submit_key), bearer(Server.merge_key)
_BOTH = {"Cookie": f'pgo_session={SESSION}; theme="dark\\073 blue"', **_MERGE}
# What browsers, proxies and agents say beside what they ask for.
_HEADERS = {
    "Cookie": f'pgo_session={SESSION}; theme="dark\\073 blue"; other=1',
    "Accept": "text/html, application/json;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip, deflate;q=0.5, *;q=0",
    "Accept-Language": "en, de;q=0.5",
    "If-None-Match": 'W/"abc", "def"',
    "If-Modified-Since": "Tue, 14 Nov 2023 22:13:20 GMT",
    "Range": "bytes=0-1, 3-4",
    "Forwarded": 'for="[::1]";proto=https, for=10.1.2.3',
    "X-Forwarded-For": "10.1.2.3, 10.1.2.4",
    "X-Forwarded-Proto": "https, http",
    "Origin": "http://collector",
    "Referer": "http://collector/ui/?a=b&c=d",
    "Sec-Fetch-Site": "same-origin",
    "User-Agent": "Mozilla/5.0 (X11; Linux)",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "tracestate": "a=1, b=2",
    "X-Scope-OrgID": "tenant-1",
    "X-Datadog-Additional-Tags": "host:a,default_env:b",
    "Content-Language": "en",
}  # fmt: skip
# What each parameter of a query may be.
_VALUES = {
    "service": "shop", "base_service": "shop", "type": "cpu", "labels": "region=eu,zone!=2|3",
    "base_labels": "region=us", "from": "2023-11-14T22:00:00Z", "to": "2023-11-15", "base_from": "2023-11-14",
    "base_to": "2023-11-15", "focus": r"f[0-9]+|main\.(run|a.*)",
    "ignore": "^gc$", "hide": "(a|b)*c", "trim_path": "/home/ci/build:/src",
    "format": "json", "weight": "instance", "half_life": "7d",
    "by": "function", "sort": "cum", "n": "10", "sample_type": "cpu", "function": "f1", "step": "day",
    "profile_id": "7c9e6679-7425-40de-944b-e07fc1f90ae7", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    "span_id": "00f067aa0ba902b7,53995c3f42cd8ad8",
    "recursion": "collapse", "group": "version", "table": "beside", "search": "f(1|2)", "limit": "10",
    "errors": "true", "order": "slowest",
    "query": querying.CPU + '{service_name="shop",region=~"e.|us",pod!~"x+",zone!=""}',
    "leftQuery": querying.CPU + '{service_name="shop"}', "rightQuery": querying.CPU + '{region=~"e.|us"}',
    "until": "now", "leftFrom": "1700000000", "rightFrom": "now-1h", "max-nodes": "100",
}  # fmt: skip
_PATHS = {
    "{build_id}": "abc",
    "{number}": "1",
    "{ids}": "abc",
    "{app}": "shop",
    "{trace}": "abc",
    "{service}": "shop",
}
_OF_PROFEFE = {
    "service": "shop", "type": "cpu", "from": "2023-11-14T00:00:00", "to": "2023-11-15T00:00:00",
    "labels": "region=eu",
}  # fmt: skip
_PAGES = (
    "",
    "/top",
    "/diff",
    "/series",
    "/build",
    "/choose",
    "/function",
    "/latency",
    "/merge",
    "/flame.svg",
)
_OF_PAGES = (
    "type",
    "labels",
    "profile_id",
    "trace_id",
    "span_id",
    "from",
    "to",
    "search",
    "focus",
    "ignore",
    "hide",
    "trim_path",
    "function",
)


def _pprof(content: bytes) -> Part:
    """Return a profile; one that is gzip stays so."""
    bare = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    fields = of_message(Profile.FromString(bare), {})
    return Part("all" if bare is content else "gzip", "profile", fields)


def _in_base64(content: bytes) -> Part:
    return Part("base64", "", (_pprof(base64.b64decode(content)),))


def _protobuf(message: Message) -> Part:
    return Part("gzip", "message", of_message(message, {"raw_profile": _pprof}))


def _json(content: bytes) -> Part:
    return Part("gzip", "json", (of_json(json.loads(content), {"rawProfile": _in_base64}),))


def _form(**parts: Part) -> tuple[Part, dict[str, str]]:
    """Return a form, and the header that says so. Names with a dot are written with `__`."""
    made = []
    for name, content in parts.items():
        plain = name.replace("__", ".")
        head = (
            *texts(f'Content-Disposition: form-data; name="{plain}"; filename="{plain}"\r\n'),
            *texts("Content-Type: application/octet-stream\r\n"),
            Part("text", "blank line", text=b"\r\n"),
        )
        made.append(Part("form part", plain, (Part("all", "head", head), content), is_repeated=True))
    end = Part("text", "end", text=b"--" + BOUNDARY + b"--\r\n")
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY.decode()}"}
    return Part("gzip", "form", (*made, end)), headers


def _export(*services: str, taken: int = EPOCH) -> ExportRequest:
    """Return an export of a few stacks in a program, of some services."""
    made = Export()
    for service in services:
        made.resource({"service.name": service, "service.version": "1", "process.pid": 7}, profiler="a")
        made.profile(attributes={"pprof.profile.comment": "c"}).time_unix_nano = taken
        binary = made.mapping("main", BUILD)
        for depth in (3, 5):
            frames = [("main.f1", "/src/main.go", 1010 + line) for line in range(depth)]
            made.sample(frames, timestamps=2, values=[3, 4], mapping=binary, attributes={"thread.name": "t"})
    return made.request


def _labels(**more: str) -> dict[str, str]:
    return {"service_name": SERVICE, "region": "eu", "pod": "a-1", **more}


def _pushes() -> dict[str, tuple[Part, ...]]:
    profile = profile_of("main.run")
    pushed = push_request(
        ({"__name__": "process_cpu", **_labels()}, [profile]),
        ({"__name__": "memory", **_labels(__delta__="false")}, [gzip.decompress(profile)]),
    )
    written = WriteRawRequest.FromString(
        request_of(({"__name__": "process_cpu", "job": SERVICE, **_labels()}, [profile]))
    )
    config = of_json({"cpu": {"units": "samples", "display-name": "cpu", "sampled": True}}, {})
    ingested, of_form = _form(profile=_pprof(profile), sample_type_config=config)
    tracer = datadog.tracer_profile([("work", {"cpu-time": 30, "wall-time": 40, "heap-space": 25}, 1)])
    event = of_json(json.loads(datadog.event(SERVICE, version="1.4", region="eu")), {})
    uploaded, of_upload = _form(event=event, profile__pprof=Part("zstd", "packed", (_pprof(tracer),)))
    exported = _export(SERVICE, "others")
    name = f"{SERVICE}{{region=eu,zone=1}}"
    of_speedscope = {"name": name, "format": "speedscope", "from": "1700000000"}
    largest = gzip.compress(max(real_profiles(), key=len))
    program = _export(SERVICE, taken=time.time_ns() // LATER * LATER + 2 * LATER)
    of_service = {"service": SERVICE}
    labelled = {**of_service, "type": "cpu", "labels": "region=eu,zone=1"}
    tracer_key = {"DD-API-KEY": Server.submit_key}
    return {
        "/v1/submit": (request("POST", "/v1/submit", _SUBMIT, labelled, _pprof(profile)),),
        "/v1/submit of a real profile, in chunks": (
            request(
                "POST", "/v1/submit", _SUBMIT, of_service, Part("text", "profile", text=largest), chunks=4
            ),
        ),
        "Push": (_post(PUSH, _protobuf(pushed), pushing.PROTOBUF),),
        "Push, JSON": (_post(PUSH, _json(pushing.as_json(pushed)), pushing.JSON),),
        "/ingest": (request("POST", "/ingest", _SUBMIT, {"name": name, "format": "pprof"}, _pprof(profile)),),
        **{
            f"/ingest, speedscope, {profile['type']}": (
                request("POST", "/ingest", _SUBMIT, of_speedscope, _json(speedscope.file(profile))),
            )
            for profile in (speedscope.SAMPLED, speedscope.EVENTED)
        },
        "/ingest, form": (request("POST", "/ingest", _SUBMIT | of_form, {"name": name}, ingested),),
        "OTLP": (_post(exporting.EXPORT, _protobuf(exported), exporting.PROTOBUF),),
        "OTLP, JSON": (_post(exporting.EXPORT, _json(exporting.as_json(exported)), exporting.JSON),),
        "Datadog": (request("POST", datadog.UPLOAD, tracer_key | of_upload, {}, uploaded),),
        "Parca": (_post(WRITE_RAW, _protobuf(written), pushing.PROTOBUF),),
        **_calls(exported, written),
        **_upload(),
        "autopgo": (request("POST", f"{PROFILES}/{SERVICE}", _SUBMIT, {}, _pprof(profile)),),
        "profefe": (request("POST", "/api/0/profiles", _SUBMIT, labelled, _pprof(profile)),),
        "/v1/symbols, and OTLP of the program": (
            request("POST", "/v1/symbols", _SUBMIT, of_service, _pprof(_program())),
            _post(exporting.EXPORT, _protobuf(program), exporting.PROTOBUF),
        ),
    }


def _calls(exported: Message, written: Message) -> dict[str, tuple[Part, ...]]:
    """Return calls of gRPC; chunks are frames of a message."""
    of_call = {"Authorization": _SUBMIT["Authorization"], "X-Scope-OrgID": "tenant-1", "User-Agent": "a/1"}

    def called(path: str, message: Message) -> Part:
        return request(GRPC, path, of_call, {}, _protobuf(message), chunks=2)

    return {"OTLP, gRPC": (called(OTLP_CALL, exported),), "Parca, gRPC": (called(WRITE_RAW, written),)}


def _upload() -> dict[str, tuple[Part, ...]]:
    """Return an upload of a program in ELF, in its parts; of none where they can't be used."""
    if shutil.which("clang") is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder) / "work.c", Path(folder) / "work"
        source.write_text(SOURCE)
        subprocess.run(["clang", *FLAGS, "-o", path, source], check=True)
        body = Part("all", "program", _elf(path.read_bytes()))
    return {"/v1/binaries": (request("POST", "/v1/binaries", _SUBMIT, {"service": SERVICE}, body),)}


def _elf(content: bytes) -> tuple[Part, ...]:
    """Return the header of a program, its segments' and its sections' headers, and what is between them."""
    header = _little("header", content[16:64], _OF_HEADER)
    segments_at, sections_at, segments, sections = (header.parts[index].number for index in _PLACES_IN_HEADER)
    tables = []
    for name, at, count, widths in (
        ("segment", segments_at, segments, _OF_SEGMENT),
        ("section", sections_at, sections, _OF_SECTION),
    ):
        size = sum(widths)
        tables.append([_little(name, content[at + size * each :][:size], widths) for each in range(count)])
    end_of_segments = segments_at + sum(_OF_SEGMENT) * segments
    between = content[end_of_segments:sections_at]
    parts = (Part("text", "bytes", text=between[at : at + _SLICE]) for at in range(0, len(between), _SLICE))
    return (Part("text", "magic", text=content[:16]), header, *tables[0], *parts, *tables[1])


def _little(name: str, content: bytes, widths: Sequence[int]) -> Part:
    """Return a structure of numbers, the least byte of each first."""
    numbers, at = [], 0
    for index, width in enumerate(widths):
        number = int.from_bytes(content[at : at + width], "little")
        numbers.append(Part("little", str(index), number=number, field=width))
        at += width
    return Part("all", name, tuple(numbers), is_repeated=True)


# The widths of the fields of ELF's headers, and which tell where the others are and how many there are.
_OF_HEADER = (2, 2, 4, 8, 8, 8, 4, 2, 2, 2, 2, 2, 2)
_OF_SEGMENT = (4, 4, 8, 8, 8, 8, 8, 8)
_OF_SECTION = (4, 4, 8, 8, 8, 8, 4, 4, 8, 8)
_PLACES_IN_HEADER = (4, 5, 9, 11)
_SLICE = 512


def _program() -> bytes:
    """Return the symbols of a small program, with closures."""
    functions = {f"f{number}": 1000 * number for number in range(1, 4)}
    closures = {f"f1.func{number}": 1000 + number for number in range(1, 7)}
    return symbols(BUILD, **functions, **closures)


def _post(path: str, body: Part, headers: dict[str, str]) -> Part:
    return request("POST", path, _SUBMIT | headers, {}, body)


def _heads() -> dict[str, tuple[Part, ...]]:
    """Return requests with many headers."""
    form, of_form = _form(profile=_pprof(profile_of("main.run")))
    typed = {"Content-Type": f'{of_form["Content-Type"]}; charset="utf-8"'}
    signed_in = {"Content-Type": "application/x-www-form-urlencoded", **_HEADERS}
    agents = {"DD-API-KEY": Server.submit_key, **typed, **_HEADERS}
    fields = Part("all", "form", texts("key=abc&to=/ui/&a=b"))
    return {
        "headers of a page": (request("GET", "/ui/", _HEADERS, {}),),
        "headers of a merge": (request("GET", "/v1/merge", {**_MERGE, **_HEADERS}, {"service": "shop"}),),
        "headers without a key": (
            request("GET", "/healthz", {"Authorization": "Basic YTpi", **_HEADERS}, {}),
        ),
        "headers of a form": (
            request("POST", "/ingest", {**_SUBMIT, **typed, **_HEADERS}, {"name": SERVICE}, form),
        ),
        "headers of an upload": (request("POST", datadog.UPLOAD, agents, {}, form),),
        "headers of a sign-in": (request("POST", "/ui/sign-in", signed_in, {}, fields),),
    }


def _questions(description: Mapping[str, Any]) -> dict[str, tuple[Part, ...]]:
    """Return requests of all routes that read, from the OpenAPI description, of the pages, and of Grafana."""
    found: dict[str, tuple[Part, ...]] = {}
    for template, methods in description["paths"].items():
        operation, path = methods.get("get"), template
        if operation is None:
            continue
        every = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
        asked = {name: _VALUES[name] for name in every if name in _VALUES}
        if path.startswith("/api/0/"):
            asked = _OF_PROFEFE
        for variable, value in _PATHS.items():
            path = path.replace(variable, value)
        found[f"GET {path}"] = (request("GET", path, _MERGE, asked),)
    pages = {f"/ui/services/shop{page}": _OF_PAGES for page in _PAGES}
    others = {"/ui/": ("search", "labels", "type"), "/ui/traces": ("service", "order", "from", "to")}
    for path, names in {**pages, **others}.items():
        found[f"GET {path}"] = (request("GET", path, _BOTH, {name: _VALUES[name] for name in names}),)
    for method, messages in QUERIES.items():
        for number, message in enumerate(messages, 1):
            name, path = f"{method} {number}", querying.QUERIER + method
            body = Part("all", "message", of_message(message, {}))
            found[name] = (request("POST", path, _MERGE | pushing.PROTOBUF, {}, body),)
            text = of_json(json.loads(json_format.MessageToJson(message)), {})
            body = Part("gzip", "json", (text,))
            found[f"{name}, JSON"] = (request("POST", path, _MERGE | pushing.JSON, {}, body),)
    return found


class Seed(NamedTuple):
    """Ordinary requests, which are sent one after another, and how long they are tried beside others.

    The time grows with the number of their parts, too.
    Faults that are known of a family are known of all its seeds.
    """

    name: str
    requests: Part
    weight: float
    family: str


def seeds(description: Mapping[str, Any]) -> list[Seed]:
    """Return the seeds of all protocols, routes and pages."""
    every = ((1.0, _pushes()), (0.3, _heads()), (0.12, _questions(description)))
    return [
        Seed(
            name,
            Part("requests", "", requests),
            weight,
            name.rpartition(", and ")[2].removesuffix(" of the program").removesuffix(", gRPC"),
        )
        for weight, named in every
        for name, requests in named.items()
    ]
