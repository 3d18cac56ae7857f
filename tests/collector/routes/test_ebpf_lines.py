"""Requests of OpenTelemetry's eBPF profiler of a Go program: callers get the lines of their addresses.

The profiler (its commit b442421a, at 97 Hz) looks up the line of the address to which a call returns, and
then takes one from the address. So the address is right, and the line is often that of the next call. The
program, built by Go 1.26, serves JSON over net/http. In the folder are

- `ebpf-go.pb.gz`, one real request of the profiler, with that process alone;
- `ebpf-go.own.pb.gz`, the profile that the program took of itself meanwhile;
- `ebpf-go.more.pb.gz`, what three more of its own, of other times, have of the addresses in the request;
- `ebpf-go.symbols.pb.gz`, the places of `pgo-agent symbols` that the request needs;
- `ebpf-go.addr2line.gz`, what `go tool addr2line` says of the addresses in the request.
"""

from __future__ import annotations

import gzip
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from pgo_collector.routes.otlp.export_pb2 import ExportRequest
from pprof_merge import decode
from pprof_merge.analysis.call_edges import call_edges
from pprof_proto.profile_pb2 import Profile

from tests.collector.engine.test_symbols import upload
from tests.collector.exporting import assert_exported, export
from tests.collector.pushing import stored
from tests.server import Server

FOLDER = Path(__file__).parents[2] / "testdata" / "otlp"
LATER = 86_400 * 10**9
SERVICE = "unknown_service-web"


def content(name: str) -> bytes:
    return gzip.decompress((FOLDER / f"ebpf-go.{name}.gz").read_bytes())


@cache
def right() -> dict[int, tuple[str, int]]:
    """Return the file and the line of each address, by `go tool addr2line`."""
    found = {}
    for row in content("addr2line").decode().splitlines():
        address, rest = row.split(" ", 1)
        file, line = rest.rsplit(" ", 1)[1].rsplit(":", 1)
        found[int(address, 16)] = file, int(line) if line.isdecimal() else 0
    return found


class Lines(NamedTuple):
    """The weights of callers with the right line, with a wrong one, and without one."""

    right: int
    wrong: int
    none: int

    @property
    def resolved(self) -> float:
        return self.right / sum(self)


def callers(content: bytes) -> Lines:
    """Return how the innermost lines of callers in a profile are, of addresses that are in the program."""
    profile = Profile.FromString(content)
    files = {each.id: profile.string_table[each.filename].decode() for each in profile.function}
    locations = {each.id: each for each in profile.location}
    weights = Counter[bool | None]()
    for sample in profile.sample:
        for id_ in sample.location_id[1:]:
            location = locations[id_]
            if location.address not in right():
                continue
            if not location.line or not location.line[0].line:
                weights[None] += sample.value[0]
            else:
                line = location.line[0]
                is_right = (files[line.function_id], line.line) == right()[location.address]
                weights[is_right] += sample.value[0]
    return Lines(weights[True], weights[False], weights[None])


def sent(later: int) -> bytes:
    """Return the request, as of a later time."""
    request = ExportRequest.FromString(content("pb"))
    for resource in request.resource_profiles:
        for scope in resource.scope_profiles:
            for profile in scope.profiles:
                profile.time_unix_nano = later
    return request.SerializeToString()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """Collectors that know the symbols of the program, one of its own profiles, and four of these."""
    folder = tmp_path_factory.mktemp("servers")
    with (
        Server(folder / "symbols") as by_symbols,
        Server(folder / "own", {"PGOF_JOIN_SECONDS": "0.2"}) as by_own,
        Server(folder / "four", {"PGOF_JOIN_SECONDS": "0.2"}) as by_four,
    ):
        assert upload(by_symbols, content("symbols.pb"), SERVICE)["status"] == 200
        for server, own in ((by_own, ["own"]), (by_four, ["own", "more"])):
            assert_exported(export(server, sent(time.time_ns() - LATER)))
            for number, name in enumerate(own, 1):
                assert server.submit(content(f"{name}.pb"), query={"service": SERVICE}).status_code == 204
                server.wait_for_log("start lines learned", number)
        for server in (by_symbols, by_own, by_four):
            assert_exported(export(server, sent(time.time_ns() + LATER)))
        yield {"symbols": by_symbols, "joined": by_own, "four": by_four}


def joined(server: Server, by: str) -> bytes:
    answer = server.merge(query={"service": SERVICE, "labels": f"start_lines={by}"})
    assert answer.status_code == 200, answer.text
    return gzip.decompress(answer.content)


def test_the_profiler_sends_wrong_lines_of_callers(servers: dict[str, Server]) -> None:
    """They stay as they were sent where no build takes them."""
    answer = servers["joined"].merge(query={"service": SERVICE, "type": "process_cpu"})
    assert callers(gzip.decompress(answer.content)).wrong > 0.3 * sum(
        callers(gzip.decompress(answer.content))
    )


@pytest.mark.parametrize(("by", "least"), [("symbols", 0.995), ("joined", 0.95)])
def test_a_build_gets_the_lines_of_the_addresses_or_none(
    servers: dict[str, Server], by: str, least: float
) -> None:
    found = callers(joined(servers[by], by))
    assert found.wrong == 0
    assert found.resolved >= least
    report = servers[by].ask("/v1/report", service=SERVICE, labels=f"start_lines={by}").json()
    assert report["joined"]["resolved"] == pytest.approx(found.resolved, abs=0.01)
    assert {type_ for type_, labels in stored(servers[by], SERVICE) if labels.get("start_lines")} == {"cpu"}


def shares(profile: bytes) -> dict[tuple[bytes, int, bytes], float]:
    """Return the share of each call (caller, offset, callee) that Go's compiler takes from a profile."""
    of = call_edges(decode(profile))
    names = of.names
    rows = zip(*(column.tolist() for column in (of.caller, of.offset, of.callee, of.weight)), strict=True)
    return {
        (names[caller], offset, names[callee]): weight / int(of.weight.sum())
        for caller, offset, callee, weight in rows
    }


@pytest.mark.parametrize("by", ["symbols", "joined"])
def test_calls_are_those_of_the_programs_own_profile(servers: dict[str, Server], by: str) -> None:
    """516 samples have 0.57 of their weight in common with it; with the lines that were sent, it was 0.28."""
    made = servers[by].merge(format_="go", query={"service": SERVICE, "labels": f"start_lines={by}"})
    found, own = shares(made.content), shares(content("own.pb"))
    assert sum(min(weight, found.get(edge, 0.0)) for edge, weight in own.items()) > 0.5


def inlined(profile: bytes) -> set[tuple[str, int, str]]:
    """Return the inlined calls that Go's compiler reads: those in the two innermost locations of stacks."""
    parsed = Profile.FromString(profile)
    names = {each.id: parsed.string_table[each.name].decode() for each in parsed.function}
    lines = {each.id: each.line for each in parsed.location}
    return {
        (names[outer.function_id], outer.line, names[inner.function_id])
        for sample in parsed.sample
        for id_ in sample.location_id[:2]
        for inner, outer in pairwise(lines[id_])
    }


def test_what_several_profiles_of_the_program_say_adds_up(servers: dict[str, Server]) -> None:
    """Three more bring half of the inlined calls that are lacking by one; none is wrong."""
    by_symbols = inlined(joined(servers["symbols"], "symbols"))
    by_one, by_four = (inlined(joined(servers[name], "joined")) for name in ("joined", "four"))
    assert by_one < by_four < by_symbols
    assert len(by_symbols - by_four) <= len(by_symbols - by_one) / 2
    assert callers(joined(servers["four"], "joined")).wrong == 0
