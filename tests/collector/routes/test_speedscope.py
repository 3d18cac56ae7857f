"""`/ingest` with `format=speedscope`: what its profiles become, and what is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Any

import pytest
from pgo_collector.errors import NotPprof, PushInvalid
from pgo_collector.readers.speedscope import read_speedscope
from pprof_merge import LimitExceeded, Limits

from tests.collector.pushing import ingest, stored
from tests.collector.routes.test_ingest import assert_ingested, refused
from tests.server import Server

pytestmark = pytest.mark.any_store

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
FRAMES = [{"name": name, "file": f"/{name}.py", "line": 3} for name in "abcd"]
SAMPLED = {
    "type": "sampled", "name": "one", "unit": "seconds", "startValue": 0, "endValue": 14,
    "samples": [[0, 1, 2], [0, 1, 2], [0, 1, 3], [0, 1, 2], [0, 1]], "weights": [1, 1, 4, 3, 5],
}  # fmt: skip
OPENED = [("O", 0, 0), ("O", 1, 0), ("O", 2, 0), ("C", 2, 2), ("O", 3, 2), ("C", 3, 6), ("O", 2, 6),
          ("C", 2, 9), ("C", 1, 14), ("C", 0, 14)]  # fmt: skip
EVENTED = {
    "type": "evented", "name": "one", "unit": "seconds", "startValue": 0, "endValue": 14,
    "events": [{"type": type_, "frame": frame, "at": at} for type_, frame, at in OPENED],
}  # fmt: skip


def file(*profiles: Mapping[str, Any], **changed: Any) -> bytes:
    document = {"$schema": SCHEMA, "shared": {"frames": FRAMES}, "profiles": profiles, **changed}
    return json.dumps(document).encode()


def send(server: Server, body: bytes, name: str) -> Any:
    return ingest(server, body, name=name, format="speedscope", **{"from": "1700000000"})


@pytest.mark.parametrize("profile", [SAMPLED, EVENTED], ids=["sampled", "evented"])
@pytest.mark.parametrize("packed", [False, True])
def test_each_stack_has_its_weights(shared: Server, profile: Mapping[str, Any], packed: bool) -> None:
    service = f"told-{profile['type']}-{packed}"
    body = gzip.compress(file(profile)) if packed else file(profile)
    assert_ingested(send(shared, body, f"{service}{{zone=1}}"))
    labels = {"zone": "1", "speedscope_name": "one", "pyroscope_spy": "unknown"}
    assert stored(shared, service) == [("process_cpu", labels)]
    merged = shared.ask("/v1/merge", service=service, type_="process_cpu", format="folded")
    folded = dict(line.rsplit(" ", 1) for line in merged.text.splitlines())
    assert {stack: int(value) for stack, value in folded.items()} == {
        "a;b": 5 * 10**9, "a;b;c": 5 * 10**9, "a;b;d": 4 * 10**9
    }  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "name", "series", "value"),
    [
        ("nanoseconds", "u1", "u1 process_cpu", 7),
        ("microseconds", "u2.cpu", "u2 process_cpu", 7_000),
        ("milliseconds", "u3.wall", "u3 wall", 7_000_000),
        ("milliseconds", "u4.alloc_space", "u4.alloc_space process_cpu", 7_000_000),
        ("bytes", "u5", "u5 memory", 7),
        ("bytes", "u6.inuse_space", "u6 heap", 7),
        ("none", "u7", "u7 process_cpu", 7),
        ("none", "u8.alloc_objects", "u8 memory", 7),
    ],
)
def test_the_unit_and_the_end_of_the_name_tell_what_is_measured(
    shared: Server, unit: str, name: str, series: str, value: int
) -> None:
    service, type_ = series.split()
    profile = {**SAMPLED, "unit": unit, "samples": [[0]], "weights": [7]}
    assert_ingested(send(shared, file(profile), name))
    assert [each for each, _ in stored(shared, service)] == [type_]
    merged = shared.ask("/v1/merge", service=service, type_=type_, format="folded").text
    assert merged == f"a {value}\n"


def test_profiles_of_a_file_are_told_apart_by_their_names(shared: Server) -> None:
    profiles = [SAMPLED, {**EVENTED, "name": "two"}, EVENTED]
    assert_ingested(send(shared, file(*profiles), "several"))
    names = [labels["speedscope_name"] for _, labels in stored(shared, "several")]
    assert names == ["one", "two"]
    merged = shared.ask("/v1/merge", service="several", type_="process_cpu", format="folded",
                        labels="speedscope_name=one")  # fmt: skip
    assert "a;b;d 8000000000\n" in merged.text


def test_weights_may_be_fractions_and_stacks_empty(shared: Server) -> None:
    profile = {**SAMPLED, "samples": [[0], [0], []], "weights": [0.25, 0.5, 1]}
    assert_ingested(send(shared, file(profile), "fractions"))
    assert shared.ask("/v1/merge", service="fractions", type_="process_cpu", format="folded").text == (
        "<unknown> 1000000000\na 750000000\n"
    )


EVENT = {"type": "O", "frame": 0, "at": 1}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"x", "isn't a file of speedscope"),
        (b"[]", "isn't a file of speedscope"),
        (file(SAMPLED, **{"$schema": "x"}), "$schema isn't"),
        (file(SAMPLED, shared={}), "there is no 'frames'"),
        (file(SAMPLED, shared={"frames": [{}] * 4}), "there is no 'name'"),
        (file({**SAMPLED, "unit": "fortnights"}), "there is no 'fortnights'"),
        (file({**SAMPLED, "type": "x"}), "the type x"),
        (file({**SAMPLED, "weights": [1]}), "isn't a file of speedscope"),
        (file({**SAMPLED, "samples": [[4]], "weights": [1]}), "no frame's"),
        (file({**SAMPLED, "samples": [[-1]], "weights": [1]}), "no frame's"),
        (file({**SAMPLED, "samples": [["0"]], "weights": [1]}), "no frame's"),
        (file({**SAMPLED, "samples": [[0]], "weights": [-1]}), "negative"),
        (file({**SAMPLED, "samples": [[0]], "weights": [float("nan")]}), "no number"),
        (file({**SAMPLED, "samples": [[0]], "weights": [1e20]}), "64 bits"),
        (file({**SAMPLED, "samples": [[0]], "weights": [1e308]}), "isn't a file of speedscope"),
        (file({**SAMPLED, "samples": [[0]], "weights": ["1"]}), "isn't a file of speedscope"),
        (file({**EVENTED, "events": [EVENT, {**EVENT, "at": 0}]}), "order of time"),
        (file({**EVENTED, "events": [{**EVENT, "type": "C"}]}), "neither opens"),
        (file({**EVENTED, "events": [EVENT, {**EVENT, "type": "C", "frame": 1}]}), "neither opens"),
        (file({**EVENTED, "events": [{**EVENT, "type": "x"}]}), "neither opens"),
    ],
)
def test_what_is_no_file_is_unprocessable(shared: Server, body: bytes, why: str) -> None:
    assert why in refused(send(shared, body, "none"), 422)
    assert stored(shared, "none") == []


def test_a_file_is_bounded() -> None:
    deep = [{"type": "O", "frame": 0, "at": at} for at in range(3000)]
    shallow = {**SAMPLED, "samples": [[]] * 300_000, "weights": [0] * 300_000}
    for body, limit in (
        (file(*[{**SAMPLED, "name": f"{number}"} for number in range(101)]), "the limit is 100"),
        (file({**EVENTED, "events": deep}), "frames"),
        (file(*[{**EVENTED, "name": f"{number}", "events": deep[:1500]} for number in range(3)]), "frames"),
        (file(shallow), "300,000 values"),
        (gzip.compress(file(shallow)), "values"),
    ):
        with pytest.raises((LimitExceeded, NotPprof, PushInvalid), match=limit):
            read_speedscope(body, "app", Limits())


def test_time_outside_of_all_frames_is_no_samples(shared: Server) -> None:
    at = [("O", 5), ("C", 7), ("O", 20), ("C", 21)]
    events = [{"type": type_, "frame": 0, "at": seconds} for type_, seconds in at]
    assert_ingested(send(shared, file({**EVENTED, "startValue": 1, "events": events}), "outside"))
    merged = shared.ask("/v1/merge", service="outside", type_="process_cpu", format="folded")
    assert merged.text == "a 3000000000\n"


def test_what_a_merge_gives_comes_back(shared: Server, go_profiles: list[bytes]) -> None:
    for profile in go_profiles[:2]:
        assert shared.submit(profile, query={"service": "there"}).status_code == 204
    given = shared.ask("/v1/merge", service="there", format="speedscope").content
    assert_ingested(send(shared, given, "back.cpu"))
    asked = {"service": "back", "type_": "process_cpu", "labels": "speedscope_name=cpu", "format": "folded"}
    back = shared.ask("/v1/merge", **asked).text
    assert back == shared.ask("/v1/merge", service="there", format="folded").text
