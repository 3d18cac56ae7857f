"""The cost campaign reads ordinary requests as trees of counts, and finds the counts that cost much."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError
from pgo_collector.routes.otlp.export_pb2 import ExportRequest
from pprof_proto.profile_pb2 import Profile

from tests.campaign import cost, cost_parts
from tests.campaign.cost import Campaign, Family, Search
from tests.campaign.cost_parts import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GRPC,
    HEADERS,
    PREFACE,
    Part,
    Place,
    TooLarge,
    Writer,
    counts,
    of_json,
    of_message,
    request,
    sent,
    texts,
)
from tests.campaign.cost_seeds import Seed, seeds
from tests.campaign.cost_server import Costs, MeasuredServer
from tests.collector import exporting
from tests.collector.engine.test_joining import BUILD
from tests.collector.engine.test_symbols import symbols
from tests.collector.exporting import Export
from tests.merge.campaign import real_profiles
from tests.oracle.builder import seeded
from tests.server import Server

PLACE = Place("shop", "token")


def written(*parts: Part) -> bytes:
    return b"".join(Writer(PLACE).all_of(part) for part in parts)


def export() -> Export:
    made = Export()
    for service in ("a", "b"):
        made.resource({"service.name": service, "pid": 7, "is": True}, scope="x")
        made.profile(attributes={"k": "v"})
        made.sample([(f"f{row}", "/a.go", row) for row in range(5)], timestamps=3, values=[1, 2, 4])
    return made


def test_messages_are_written_as_they_were() -> None:
    request_ = export().request
    assert ExportRequest.FromString(written(*of_message(request_, {}))) == request_
    for content in (symbols(BUILD, f=10, g=20), *real_profiles()[:3]):
        profile = Profile.FromString(content)
        assert Profile.FromString(written(*of_message(profile, {}))) == profile


def test_json_is_written_as_it_was() -> None:
    document = json.loads(exporting.as_json(export().request)) | {"é\\": ['"', 1.5, None, -3, "a1", "a2"]}
    assert json.loads(written(of_json(document, {}))) == document


def test_running_numbers_become_one_count() -> None:
    made = Profile(string_table=[b"f1", b"f2", b"f3", b"g"])
    for number in range(1, 9):
        made.function.add(id=number, name=3 + number, start_line=10 * number)
    found = counts(Part("all", parts=of_message(made, {})))
    assert (found["function"], found["string_table"]) == (8, 4)
    (functions, *_) = (part for part in of_message(made, {}) if part.name == "function")
    assert functions.times == 8


def test_signs_are_counted() -> None:
    quoted = Part("header", "Cookie", texts('a="\\\\\\"'))
    assert counts(quoted)["\\"] == 3
    assert written(quoted) == b'Cookie: a="\\\\\\"\r\n'


def test_a_request_comes_in_chunks() -> None:
    body = Part("text", text=b"0123456789")
    whole = sent(request("POST", "/v1/submit", {"A": "b"}, {"service": "a b"}, body, chunks=4), PLACE)
    assert whole.content == (
        b"POST /v1/submit?service=a%20b HTTP/1.1\r\nHost: collector\r\nConnection: close\r\nA: b\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n3\r\n012\r\n3\r\n345\r\n3\r\n678\r\n1\r\n9\r\n0\r\n\r\n"
    )


def test_a_call_comes_in_frames() -> None:
    parts = request(GRPC, "/a/B", {"Key": "b"}, {}, Part("text", text=b"0123456789"), chunks=3).parts
    many = replace(parts[2], times=3000)  # more than one frame has
    call = sent(Part("request", GRPC, (*parts[:2], many, *parts[3:])), PLACE)
    assert call.content.startswith(PREFACE)
    kinds, payload, left = [], b"", call.content[len(PREFACE) :]
    while left:
        kinds.append((left[3], left[4]))
        end = 9 + int.from_bytes(left[:3])
        payload, left = payload + left[9:end], left[end:]
    heads = [(HEADERS, 0), (CONTINUATION, END_HEADERS)]
    assert kinds == [*heads, (DATA, 0), (DATA, 0), (DATA, END_STREAM)]
    assert payload.count(b"\0\x03key\x01b") == 3000


def test_what_would_be_too_large_is_not_written() -> None:
    with pytest.raises(TooLarge):
        written(Part("text", text=b"a", times=1 << 40))
    with pytest.raises(TooLarge):
        written(Part("digits", step=1, times=1 << 30))


class Planted(MeasuredServer):
    """A server that reads each attribute of a resource for each of its scopes, and cookies slowly.

    It refuses more than 1,000 scopes.
    """

    def next_place(self) -> None:
        self.place = PLACE

    def costs(self, requests: Sequence[bytes], most_seconds: float) -> Costs:  # noqa: ARG002
        head, _, body = b"".join(requests).partition(b"\r\n\r\n")
        cookies = b"".join(re.findall(rb"Cookie: .*", head))
        worker, status = 0.0, 200
        try:
            message = ExportRequest.FromString(gzip.decompress(body))
            for resource in message.resource_profiles[:1]:
                counts_ = len(resource.resource.attributes), len(resource.scope_profiles)
                status = 400 if counts_[1] > 1000 else 200
                worker += 1e-5 * min(counts_[0], 300) * counts_[1] if status == 200 else 0.0
        except (OSError, EOFError, DecodeError):
            pass  # it would be refused
        return Costs(worker, 0.0, 1e-4 * cookies.count(b"\\"), 0, status, has_ended=True)


def planted_seeds() -> list[Seed]:
    """Return an ordinary export and an ordinary request of a page."""
    made = Export()
    made.resource({"service.name": "a", "pid": 7}, scope="x")
    exported = request("POST", "/", {}, {}, Part("gzip", "body", of_message(made.request, {})))
    page = request("GET", "/ui/", {"Cookie": 'a="b\\073"; c=d', "Accept": "*/*"}, {})
    parts = {"export": exported, "page": page}
    return [Seed(name, Part("requests", parts=(part,)), 1, name) for name, part in parts.items()]


def test_what_is_planted_is_found_and_reduced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_parts, "MOST_MADE", 1 << 17)  # to compress megabytes takes most of the time
    server = Planted(tmp_path)
    campaign = Campaign(seeded(1), server, tmp_path, time.monotonic() + 60)
    searches = [Search(seed, Family(), seeded(1)) for seed in planted_seeds()]
    wanted = ("export: worker", "of GET/Cookie/\\")
    for search, fault in zip(searches, wanted, strict=True):
        while time.monotonic() < campaign.end and fault not in "".join(campaign.findings.faults):
            campaign.step(search, searches)
    faults = "\n".join(campaign.findings.faults)
    assert all(each in faults for each in wanted), faults
    for file in re.findall(r"nc HOST PORT < (\S+)", faults):
        again = server.costs([Path(file).read_bytes()], 1.0)
        assert again.worker > cost.SMALL_SECONDS or again.turn > cost.MOST_TURN
    campaign.report(searches)
    assert {"export", "page"} <= campaign.findings.figures.keys()


def test_a_server_is_measured_and_started_anew(tmp_path: Path) -> None:
    with MeasuredServer(tmp_path) as server:
        ordinary = {seed.name: seed for seed in seeds(server.description())}
        programs = ("/v1/binaries",) if "/v1/binaries" in ordinary else ()
        for name in ("OTLP, gRPC", *programs, "/v1/submit", "GET /ui/"):
            (part,) = ordinary[name].requests.parts
            server.next_place()
            costs = server.costs([sent(part, server.place).content], 10.0)
            assert costs.status in {200, 204}
            assert 0 < costs.turn < costs.server < 10
            assert costs.has_ended
        before = server.starts
        server.costs([sent(part, server.place).content], 0.0)  # anything takes longer than that
        server.next_place()
        assert server.starts == before + 1


def test_what_came_last_has_seeds() -> None:
    named = {seed.name for seed in seeds({"paths": {}})}
    assert named >= {"/ingest, speedscope, sampled", "/ingest, speedscope, evented", "Diff 1", "Diff 1, JSON"}


def test_a_seed_has_a_name_of_its_own() -> None:
    every = seeds({"paths": {}})
    assert len({seed.name for seed in every}) == len(every)
    assert {seed.family for seed in every if "OTLP of" in seed.name} == {"OTLP"}
    assert isinstance(every[0], Seed)
    assert Server.submit_key not in every[0].name
