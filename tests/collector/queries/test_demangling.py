"""Mangled names: every view shows and finds them demangled, and what compilers read has them as they came."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.collector.queries.test_dropped_frames import folded, tables
from tests.collector.queries.test_queries import asked, refused, store
from tests.collector.visitor import Visitor
from tests.merge.stacked import stacked
from tests.server import Server

pytestmark = pytest.mark.any_store

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


@pytest.mark.parametrize("part", ["9push_ba", "_ZNSt6vectorIiS", "VECTOR::push"])
def test_a_part_of_either_name_finds_a_function(fleet: Server, part: str) -> None:
    assert asked(fleet, "/v1/flame", service="shop", search=part)["found"]["value"] == 10**9
    beside = asked(fleet, "/v1/flame", service="shop", base_last="1d", search=part, by="line")
    assert (beside["found"]["value"], beside["found"]["names"]) == (10**9, 1)
    (row,) = asked(fleet, "/v1/fleet", search=part)["functions"]
    assert row["name"] == "std::vector::push_back"
    assert "'std::vector::push_back'" in refused(fleet, "/v1/function", 404, service="shop", function=part)
    assert asked(fleet, "/v1/fleet", search="9push_bad")["functions"] == []


@pytest.mark.parametrize("search", ["9push_ba", CPP, "vector::PUSH"])
def test_the_links_beside_a_search_lead_to_what_it_found(fleet: Server, search: str) -> None:
    page = Visitor(fleet).page("/ui/services/shop", search=search)
    link = next(link for link in page.links() if "focus=" in link and "push" in link.lower())
    (focus,) = parse_qs(urlsplit(link).query)["focus"]
    assert len(asked(fleet, "/v1/top", service="shop", focus=focus)["rows"]) == 3
    assert folded(fleet, "shop", ignore=focus) == ""


def test_compilers_read_what_linkers_know(fleet: Server) -> None:
    of = {"service": "shop"}
    for query in (of, of | {"focus": "^std::vector::push_back$"}, of | {"focus": CPP}):
        assert CPP.encode() in gzip.decompress(fleet.merge(query=query).content)
        assert f"{CPP}:" in fleet.merge(format_="llvm", query=query).text
