"""Exports that are written in any way that protobuf allows are the same profiles, in both wires."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_collector.engine.pushes import PushedProfile
from pgo_collector.routes.otlp.export_pb2 import ExportRequest
from pgo_collector.routes.otlp.unpack import unpack_export
from pprof_merge import Limits, decode
from pprof_proto.profile_pb2 import Profile

from tests.collector.exporting import Export
from tests.collector.routes.hostile_bodies import export_options
from tests.oracle.respelling import respelled

pytestmark = pytest.mark.any_store
_OF_JAVA = Path(__file__).parents[2] / "testdata" / "otlp"


def _profiles(body: bytes) -> list[tuple[str, bytes]]:
    """Return the series and the content of each profile."""
    found = []
    for profile in unpack_export(export_options(is_json=False), body, Limits()):
        assert isinstance(profile, PushedProfile), profile
        header = decode(profile.content).header
        found.append((str(profile.place(header, False)), profile.content))
    return found


def _request(*, before: bool) -> ExportRequest:
    request = Export(before=before)
    request.resource({"service.name": "shop", "host.name": "a"}, version="7")
    binary = request.mapping("main", "abc")
    for measured in (("samples", "count"), ("off_cpu", "nanoseconds")):
        request.profile(measured, attributes={"pprof.profile.comment": "said"})
        for line in range(4):
            request.sample(
                [("leaf", "/a.c", line), ("root", "/b.c", 2)],
                timestamps=line,
                values=[10**6 + each for each in range(line or 1)],
                mapping=binary,
                attributes={"thread.name": f"worker {line}", "thread.id": 9},
            )
    return request.request


@pytest.mark.parametrize("before", [False, True], ids=["1.10", "1.9"])
@given(random=st.randoms(use_true_random=True))
def test_an_export_is_the_same_however_it_is_spelled(*, before: bool, random: Random) -> None:
    request = _request(before=before)
    expected = _profiles(request.SerializeToString())
    assert len(expected) == 2
    assert _profiles(respelled(request, random)) == expected


@pytest.mark.parametrize(
    ("name", "series", "root", "total"),
    [
        ("java-agent", "process_cpu", b"Burn.main", 1_150_000_000),
        ("async-profiler", "process_cpu", b"Burn.main", 188),
    ],
)
def test_numbers_that_are_not_packed_are_read(name: str, series: str, root: bytes, total: int) -> None:
    """Java's agents write protobuf by hand: Pyroscope's, and async-profiler's converter."""
    ((of, content),) = _profiles((_OF_JAVA / f"{name}.pb").read_bytes())
    profile = Profile.FromString(content)
    assert f"type='{series}'" in of
    assert root in profile.string_table
    assert sum(sample.value[0] for sample in profile.sample) == total
