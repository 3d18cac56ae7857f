"""Labels that number requests, as the spans of Datadog's tracer for Go, don't keep merges from adding up."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from pprof_merge import decode, encode, merge
from pprof_proto.profile_pb2 import Profile

from tests.faults.stacks import EPOCH
from tests.server import Server

MINUTE = 60 * 10**9


def traced(number: int) -> bytes:
    """Return a minute's CPU profile of a Go program that serves 300 requests, each on the same ten stacks."""
    profile = Profile(time_nanos=EPOCH + number * MINUTE, duration_nanos=MINUTE, period=10_000_000)
    strings: dict[str, int] = {"": 0}

    def string(text: str) -> int:
        return strings.setdefault(text, len(strings))

    for name, unit in ("samples", "count"), ("cpu", "nanoseconds"):
        profile.sample_type.add(type=string(name), unit=string(unit))
    profile.period_type.type, profile.period_type.unit = string("cpu"), string("nanoseconds")
    for id_ in range(1, 12):
        profile.function.add(id=id_, name=string(f"main.f{id_}"), filename=string("main.go"), start_line=id_)
        profile.location.add(id=id_).line.add(function_id=id_, line=2 * id_)
    for request in range(300):
        sample = profile.sample.add(location_id=[1 + request % 10, 11], value=[1, 10_000_000])
        sample.label.add(key=string("trace endpoint"), str=string("GET /cart"))
        for key in "span id", "local root span id":
            sample.label.add(key=string(key), str=string(f"{number * 1_000_003 + request:019d}"))
    profile.string_table.extend(text.encode() for text in strings)
    return profile.SerializeToString()


def parsed(answer: bytes) -> Profile:
    return Profile.FromString(gzip.decompress(answer))


@pytest.fixture(scope="module")
def profiles() -> list[bytes]:
    return [*map(traced, range(12))]


def test_a_merge_has_none_unless_it_is_asked_for(tmp_path: Path, profiles: list[bytes]) -> None:
    with Server(tmp_path) as server:
        for profile in profiles:
            assert server.submit(profile).status_code == 204
        usual = server.merge()
        made = parsed(usual.content)
        assert len(made.sample) == 10
        assert sum(sample.value[0] for sample in made.sample) == 12 * 300
        assert {made.string_table[label.key] for sample in made.sample for label in sample.label} == {
            b"trace endpoint"
        }
        every = server.merge(query={"sample_labels": "all"})
        assert gzip.decompress(every.content) == encode(merge(map(decode, profiles)))
        assert every.headers["etag"] != usual.headers["etag"]
        assert len(every.content) > 20 * len(usual.content)
        # Both are kept, each under its own name.
        assert server.merge(query={"sample_labels": "all"}).content == every.content
        assert server.merge(query={"sample_labels": "stable"}).content == usual.content
        assert server.merge(query={"sample_labels": "few"}).status_code == 400
        # What is stored is what was sent.
        assert sorted(gzip.decompress(blob.read_bytes()) for blob in server.blobs()) == sorted(profiles)


def test_a_combine_stores_the_usual_merge(tmp_path: Path, profiles: list[bytes]) -> None:
    with Server(tmp_path) as server:
        for profile in profiles:
            assert server.submit(profile).status_code == 204
        usual = server.merge()
        refused = server.combine(query={"sample_labels": "all"})
        assert refused.status_code == 400
        assert "sample_labels" in refused.text
        assert len(server.blobs()) == len(profiles)
        assert server.combine().content == usual.content
        assert server.merge(query={"sample_labels": "all"}).content == usual.content
        server.restart()
        assert server.merge().content == usual.content


def test_the_rows_of_a_worker_do_not_grow_with_requests(tmp_path: Path, profiles: list[bytes]) -> None:
    with Server(tmp_path) as server:
        for profile in profiles:
            assert server.submit(profile).status_code == 204
        server.merge()
        server.stop()
        rows = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.suffix in {".rows", ".tail"})
        assert 0 < rows < sum(map(len, profiles)) / 20
