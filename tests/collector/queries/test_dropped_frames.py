"""Frames that profiles want left out: no view has them, and merges do."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pprof_proto.profile_pb2 import Profile

from tests.collector.queries.test_queries import asked, refused, store
from tests.collector.querying import CPU
from tests.collector.routes.test_querier_reads import drawn
from tests.merge.analysis.test_dropped_frames import dropping
from tests.merge.stacked import stacked
from tests.server import Server

pytestmark = pytest.mark.any_store

STACKS = {"main;Cache::Fill;operator new;malloc": 100, "main;parse;malloc": 50}
NAMES = {"main", "Cache::Fill", "parse"}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Store a profile that drops frames, as one service, and one whose expression can't be used."""
    with Server(tmp_path_factory.mktemp("dropping")) as server:
        profile = stacked(STACKS, time_nanos=time.time_ns() - 60 * 10**9)
        store(server, dropping(profile, "malloc|operator new"), service="shop")
        store(server, dropping(profile, "("), service="odd")
        yield server


def tables(server: Server, service: str) -> dict[str, set[str]]:
    """Return the names that each view has."""

    def names(rows: list[dict[str, Any]]) -> set[str]:
        return {row["name"] for row in rows} - {""}

    of = {"service": service}
    graph = drawn(server, f'{{service_name="{service}"}}', CPU)
    return {
        "top": names(asked(server, "/v1/top", **of)["rows"]),
        "flame": names(asked(server, "/v1/flame", **of)["calls"]),
        "diff": names(asked(server, "/v1/diff", base_last="1d", **of)["rows"]),
        "callees": names(asked(server, "/v1/function", function="main", **of)["callees"]),
        "folded": {
            name
            for line in folded(server, service).splitlines()
            for name in line.rpartition(" ")[0].split(";")
        },
        "speedscope": names(server.merge(format_="speedscope", query=of).json()["shared"]["frames"]),
        "json": names(server.merge(format_="json", query=of).json()["functions"]),
        "grafana": {*graph.names} - {"total", "other"},
    }


def test_no_view_has_them(fleet: Server) -> None:
    assert tables(fleet, "shop") == dict.fromkeys(tables(fleet, "shop"), NAMES) | {
        "callees": NAMES - {"main"}
    }
    refused(fleet, "/v1/function", 404, service="shop", function="malloc")
    points = asked(fleet, "/v1/series", service="shop", function="parse", step="day")["points"]
    assert [point["flat"] for point in points if point["total"]] == [50 * 10**7]
    rows = asked(fleet, "/v1/fleet")["functions"]
    assert {row["name"] for row in rows if {of["service"] for of in row["services"]} == {"shop"}} == {
        "Cache::Fill",
        "parse",
    }


def folded(server: Server, service: str, **query: str) -> str:
    return server.merge(format_="folded", query={"service": service, **query}).text


def test_patterns_see_what_views_show(fleet: Server) -> None:
    assert asked(fleet, "/v1/top", service="shop", focus="malloc")["rows"] == []
    assert folded(fleet, "shop", focus="malloc") == ""
    assert folded(fleet, "odd", focus="malloc") != ""


def test_an_expression_that_cannot_be_used_drops_nothing(fleet: Server) -> None:
    every = NAMES | {"malloc", "operator new"}
    assert tables(fleet, "odd") == dict.fromkeys(tables(fleet, "odd"), every) | {
        "callees": {"Cache::Fill", "parse"}
    }


def test_merges_carry_them(fleet: Server) -> None:
    stored = fleet.merge(query={"service": "shop"}).content
    merged = Profile.FromString(gzip.decompress(stored))
    assert b"malloc|operator new" in merged.string_table
    assert b"malloc" in merged.string_table
