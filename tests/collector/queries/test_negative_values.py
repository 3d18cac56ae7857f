"""Profiles with values below zero, as the difference of two has them: shares are of sizes, in all views."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.collector.queries.test_queries import asked, store
from tests.collector.querying import CPU
from tests.collector.routes.test_querier_reads import drawn, points
from tests.collector.visitor import Visitor
from tests.merge.stacked import stacked
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

UNIT = 10_000_000
SERVICE = {"service": "shop"}
SHARES = {"a": 0.625, "b": 0.375, "main": 0.25}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Store the differences of two profiles each, of two services."""
    with Server(tmp_path_factory.mktemp("signed")) as server:
        moment = time.time_ns() - 60 * 10**9
        store(server, stacked({"main;a": -5, "main;b": 3}, time_nanos=moment), **SERVICE)
        store(server, stacked({"main;a": -7, "main;z": -9}, time_nanos=moment), service="down")
        yield server


def shares(rows: list[dict[str, Any]], share: str) -> list[tuple[str, float]]:
    return [(row["name"], row[share]) for row in rows]


def test_the_table_is_by_size(fleet: Server) -> None:
    found = asked(fleet, "/v1/top", **SERVICE)
    assert (found["total"], found["whole"]) == (8 * UNIT, 8 * UNIT)
    assert shares(found["rows"], "cum_share") == [*SHARES.items()]
    assert [row["flat"] // UNIT for row in found["rows"]] == [-5, 3, 0]
    (service,) = found["services"]
    assert (service["total"], service["share"]) == (8 * UNIT, 1.0)
    by_cum = asked(fleet, "/v1/top", sort="cum", **SERVICE)
    assert shares(by_cum["rows"], "cum_share") == [*SHARES.items()]


def test_so_is_that_of_all_services(fleet: Server) -> None:
    rows = asked(fleet, "/v1/top", service="*", type="cpu")["rows"]
    services = {row["name"]: [each["service"] for each in row["services"]] for row in rows}
    assert services["a"] == ["down", "shop"]


def test_so_are_the_calls_of_a_function(fleet: Server) -> None:
    found = asked(fleet, "/v1/function", function="main", **SERVICE)
    assert (found["total"], found["cum"], found["cum_share"]) == (8 * UNIT, -2 * UNIT, 0.25)
    assert shares(found["callees"], "share") == [("a", 0.625), ("b", 0.375)]
    assert asked(fleet, "/v1/function", function="a", **SERVICE)["lines"][0]["cum_share"] == 0.625


def test_a_flame_graph_has_them_as_wide_as_they_are_large(fleet: Server) -> None:
    found = asked(fleet, "/v1/flame", search="a", **SERVICE)
    assert (found["total"], found["whole"]) == (8 * UNIT, 8 * UNIT)
    calls = {call["name"]: call["cum"] // UNIT for call in found["calls"]}
    assert {name: calls[name] for name in SHARES} == {"a": -5, "b": 3, "main": -2}
    # "main" has an a, too.
    assert (found["found"]["value"], found["found"]["share"]) == (-2 * UNIT, 0.25)


def test_the_steps_of_time_have_the_total_of_the_table(fleet: Server) -> None:
    found = asked(fleet, "/v1/series", function="a", step="day", **SERVICE)
    (point,) = [point for point in found["points"] if point["total"]]
    assert (point["total"], point["flat"], point["flat_share"]) == (8 * UNIT, -5 * UNIT, 0.625)


def test_a_diff_compares_the_shares(fleet: Server) -> None:
    store(fleet, stacked({"main;a": 1, "main;c": 1}, time_nanos=time.time_ns()), service="base")
    found = asked(fleet, "/v1/diff", base_service="base", **SERVICE)
    assert (found["now"]["total"], found["now"]["samples"]) == (8 * UNIT, 8)
    rows = {row["name"]: row for row in found["rows"]}
    assert (rows["a"]["now"]["flat_share"], rows["a"]["flat_difference"]) == (0.625, 0.125)


def test_the_fleet_has_the_largest_by_size(fleet: Server) -> None:
    found = asked(fleet, "/v1/fleet", search="")
    assert next(each["total"] for each in found["services"] if each["service"] == "shop") == 8 * UNIT
    assert [row["name"] for row in found["functions"] if row["name"] != "c"] == ["a", "z", "b"]
    (row,) = (row for row in found["functions"] if row["name"] == "a")
    assert [each["service"] for each in row["services"]][:2] == ["down", "shop"]


def test_grafana_draws_the_sizes(fleet: Server) -> None:
    graph = drawn(fleet, '{service_name="shop"}', CPU)
    assert graph.total == 8 * UNIT
    assert min(value for level in graph.levels for value in level.values) >= 0
    rendered = fleet.client.get(
        "/pyroscope/render",
        params={"query": CPU + '{service_name="shop"}', "from": "now-1h"},
        headers=bearer(fleet.merge_key),
    )
    flamebearer = rendered.json()["flamebearer"]
    assert (flamebearer["numTicks"], flamebearer["maxSelf"]) == (8 * UNIT, 5 * UNIT)


def test_a_series_for_grafana_has_the_totals_of_the_graph(fleet: Server) -> None:
    now = time.time_ns() // 10**6
    times = {"start": now - 3_600_000, "end": now + 60_000, "step": 7200.0}
    assert [*points(fleet, **times)[()].values()] == [8 * UNIT]


@pytest.mark.parametrize("page", ["", "/top", "/function?function=main", "/diff?base_service=base"])
def test_pages_show_the_shares(fleet: Server, page: str) -> None:
    path, _, query = page.partition("?")
    parameters = dict([query.split("=")]) if query else {}
    shown = Visitor(fleet).page(f"/ui/services/shop{path}", 200, **parameters).answer.text
    assert "62.5 %" in shown
    assert "250.0 %" not in shown  # as of -2
