"""Mangled names: every view shows and finds them demangled, and what compilers read has them as they came."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator

import pytest

from tests.collector.queries.test_dropped_frames import folded, tables
from tests.collector.queries.test_queries import asked, store
from tests.merge.stacked import stacked
from tests.server import Server

RUST = "_ZN4core3fmt5write17h0123456789abcdefE"
CPP = "_ZNSt6vectorIiSaIiEE9push_backEOi"
SHOWN = {"main", "core::fmt::write", "std::vector::push_back"}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("mangled")) as server:
        profile = stacked({f"main;{RUST};{CPP}": 100}, time_nanos=time.time_ns() - 60 * 10**9)
        store(server, profile, service="shop")
        yield server


def test_every_view_shows_them_demangled(fleet: Server) -> None:
    assert tables(fleet, "shop") == dict.fromkeys(tables(fleet, "shop"), SHOWN) | {
        "callees": {"core::fmt::write"}
    }
    packages = asked(fleet, "/v1/top", service="shop", by="package")["rows"]
    assert {row["name"] for row in packages} == {"<unknown>", "core", "std"}


@pytest.mark.parametrize("name", [CPP, "std::vector::push_back"])
def test_either_name_finds_a_function(fleet: Server, name: str) -> None:
    assert asked(fleet, "/v1/function", service="shop", function=name)["cum"] == 10**9
    points = asked(fleet, "/v1/series", service="shop", function=name, step="day")["points"]
    assert [point["flat"] for point in points if point["total"]] == [10**9]
    assert asked(fleet, "/v1/flame", service="shop", search=name)["found"]["value"] == 10**9
    assert len(asked(fleet, "/v1/top", service="shop", focus=name)["rows"]) == 3
    assert folded(fleet, "shop", ignore=name) == ""
    rows = asked(fleet, "/v1/fleet", search=name)["functions"]
    assert [row["name"] for row in rows] == ["std::vector::push_back"]


def test_compilers_read_what_linkers_know(fleet: Server) -> None:
    of = {"service": "shop"}
    for query in (of, of | {"focus": "^std::vector::push_back$"}, of | {"focus": CPP}):
        assert CPP.encode() in gzip.decompress(fleet.merge(query=query).content)
        assert f"{CPP}:" in fleet.merge(format_="llvm", query=query).text
