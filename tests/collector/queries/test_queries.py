"""Queries on the fleet: tops, time series and diffs, of one service or of all."""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pgo_collector.catalog.catalog import Catalog
from pgo_collector.model.facts import Facts
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.series import BlobName, Identity, Series
from pgo_collector.settings import Settings
from pgo_collector.store.store import database_of
from pprof_merge import decode, encode, merge

from tests.collector.conftest import PROFILES
from tests.collector.own_service import OwnService
from tests.collector.visitor import Visitor
from tests.faults.stacks import DAY, EPOCH, SECOND, profile_of
from tests.merge.go_top import go_top
from tests.merge.stacked import stacked
from tests.merge.tracked import Events, tracked
from tests.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR = DAY // 24
MIDNIGHT = EPOCH - EPOCH % DAY
SERVICES = ("apisvc", "big", "compile", "etl", "lintd")


def store(server: Server, profile: bytes, **query: str) -> None:
    assert server.submit(profile, query=query).status_code == 204


def asked(server: Server, path: str, **query: str) -> dict[str, Any]:
    answer = server.ask(path, **query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Cache-Control"] == "private, no-store"
    found: dict[str, Any] = answer.json()
    return found


def refused(server: Server, path: str, status: int, **query: str) -> str:
    answer = server.ask(path, **query)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    detail: str = answer.json()["detail"]
    return detail


def written(time_nanos: int) -> str:
    return datetime.fromtimestamp(time_nanos // SECOND, UTC).isoformat()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Store real profiles of five programs, each as a service."""
    with Server(tmp_path_factory.mktemp("fleet")) as server:
        for service in SERVICES:
            for file in sorted(PROFILES.glob(f"{service}-*")):
                store(server, file.read_bytes(), service=service, labels=f"version={file.name.split('-')[1]}")
        yield server


def of_files(*patterns: str) -> bytes:
    """Return the merge of real profiles, as bare protobuf."""
    return encode(merge(decode(file.read_bytes()) for each in patterns for file in PROFILES.glob(each)))


@pytest.mark.parametrize(
    ("service", "sort"),
    [
        ("*", "cum"),
        ("apisvc", "flat"),
        *(
            pytest.param(service, sort, marks=pytest.mark.exhaustive)
            for service, sort in (("*", "flat"), ("apisvc", "cum"), ("compile", "flat"), ("compile", "cum"))
        ),
    ],
)
def test_the_top_is_that_of_go(fleet: Server, service: str, sort: str, tmp_path: Path) -> None:
    pattern = "*.pb.gz" if service == "*" else f"{service}-*"
    theirs = go_top(of_files(pattern), tmp_path, "cpu", "nanoseconds")
    answer = asked(fleet, "/v1/top", service=service, n="1000", sort=sort)
    ours = {row["name"]: (row["flat"], row["cum"]) for row in answer["rows"]}
    assert len(ours) == min(1000, answer["names"])
    assert ours.items() <= theirs.items()
    column = ("flat", "cum").index(sort)
    order = [values[column] for values in ours.values()]
    assert order == sorted((values[column] for values in theirs.values()), reverse=True)[: len(order)]
    assert answer["sample_type"] == {"type": "cpu", "unit": "nanoseconds"}
    assert answer["profiles"] == len([*PROFILES.glob(pattern)])
    for row in answer["rows"][:50]:
        assert row[f"{sort}_share"] == pytest.approx(row[sort] / answer["total"])


def test_the_top_ten_of_all_systems_adds_up_by_service(fleet: Server) -> None:
    answer = asked(fleet, "/v1/top", service="*")
    assert len(answer["rows"]) == 10
    assert {part["service"] for part in answer["services"]} == {*SERVICES}
    assert sum(part["total"] for part in answer["services"]) == answer["total"]
    assert sum(part["share"] for part in answer["services"]) == pytest.approx(1)
    of_one = {
        part["service"]: {
            row["name"]: row for row in asked(fleet, "/v1/top", service=part["service"], n="1000")["rows"]
        }
        for part in answer["services"]
    }
    for row in answer["rows"]:
        for value in ("flat", "cum"):
            assert sum(part[value] for part in row["services"]) == row[value]
        for part in row["services"]:
            own = of_one[part["service"]][row["name"]]
            shown = {name: own[name] for name in ("flat", "cum", "flat_share", "cum_share")}
            assert part == {"service": part["service"], **shown}


@pytest.mark.parametrize(
    ("by", "name"), [("package", "net/http"), ("file", "/usr/local/go/src/net/http/server.go")]
)
def test_packages_and_files(fleet: Server, by: str, name: str) -> None:
    answer = asked(fleet, "/v1/top", service="*", by=by, n="1000")
    assert answer["names"] == len(answer["rows"]) < 1000
    without_stack = answer["total"] - sum(row["flat"] for row in answer["rows"])
    assert without_stack == 8_000_000
    (row,) = [row for row in answer["rows"] if row["name"] == name]
    assert row["flat"] < row["cum"] < answer["total"]


def test_recursion_counts_once_and_services_are_added(server: Server) -> None:
    store(server, stacked({"main.f;main.g;main.f": 3, "lib.h": 1}), service="one")
    store(server, stacked({"main.f": 1}), service="two")
    store(server, stacked({"main.f": 1}, time_nanos=5), service="two", labels="region=eu")
    rows = asked(server, "/v1/top", service="*")["rows"]
    ms = 10_000_000
    assert [(row["name"], row["flat"], row["cum"]) for row in rows] == [
        ("main.f", 5 * ms, 5 * ms),
        ("lib.h", ms, ms),
        ("main.g", 0, 3 * ms),
    ]
    rows = asked(server, "/v1/top", service="*", labels="region=eu", by="package")["rows"]
    assert [(row["name"], row["flat"]) for row in rows] == [("main", ms)]


@pytest.mark.parametrize("time_nanos", [(1 << 63) - 1, -(1 << 63)])
def test_no_time_of_a_profile_keeps_the_others_from_being_asked_about(
    server: Server, time_nanos: int
) -> None:
    store(server, stacked({"main.f": 1}, time_nanos=5), service="one")
    store(server, stacked({"main.f": 2}, time_nanos=time_nanos), service="two")
    (row,) = asked(server, "/v1/top", service="*")["rows"]
    assert [part["service"] for part in row["services"]] == ["two", "one"]
    (point,) = asked(server, "/v1/series", service="two", package="main")["points"]
    assert point["flat_share"] == 1
    assert asked(server, "/v1/diff", service="two", base_service="one")["now"]["profiles"] == 1


def test_services_that_measure_something_else_are_named(server: Server) -> None:
    for service in ("one", "two"):
        store(server, profile_of("f", type_="wall"), service=service, type="other")
    store(server, profile_of("f", type_="waiting"), service="three", type="other")
    answer = asked(server, "/v1/top", service="*", type="other")
    assert answer["sample_type"] == {"type": "wall", "unit": "nanoseconds"}
    assert answer["others"] == {"three": "waiting/nanoseconds"}
    assert answer["total"] == 20_000_000
    series = asked(server, "/v1/series", service="*", type="other", function="f")
    assert (series["others"], series["profiles"]) == (answer["others"], 2)
    detail = refused(server, "/v1/diff", 422, service="one", type="other", base_service="three")
    assert detail == "the selection measures wall/nanoseconds, the base waiting/nanoseconds"


def test_what_can_be_read_again_is_in_the_next_answer(server: Server) -> None:
    now = time.time_ns()
    for name, time_nanos in {"main.f": now - 2 * SECOND, "main.g": now}.items():
        store(server, stacked({name: 10}, time_nanos=time_nanos), service="shop")
    first = min(server.blobs())
    content = first.read_bytes()
    first.write_bytes(b"")
    server.kill()
    shutil.rmtree(server.data / "rows", ignore_errors=True)
    server.start()
    visitor = Visitor(server)
    pages = ("", "/top", "/diff?base_from=2000-01-01")
    questions = {"/v1/top": "shop", "/v1/flame": "shop", "/v1/fleet": "*"}

    def left_out() -> list[int]:
        return [asked(server, path, service=service)["left_out"] for path, service in questions.items()]

    assert left_out() == [1, 1, 1]
    without = [visitor.page(f"/ui/services/shop{page}").text for page in pages]
    first.write_bytes(content)
    assert left_out() == [0, 0, 0]
    again = [visitor.page(f"/ui/services/shop{page}").text for page in pages]
    assert all("main.f" in text for text in again)
    assert all("main.f" not in text for text in without)


def test_what_cannot_be_read_is_left_out_and_named(server: Server) -> None:
    for name in ("f", "g"):
        store(server, profile_of(name), service="shop")
    damaged = server.blobs()[0]
    damaged.write_bytes(b"")
    server.forget_decoded()
    answer = server.ask("/v1/top", service="*")
    assert (answer.json()["profiles"], answer.json()["left_out"]) == (1, 1)
    assert damaged.name in answer.headers["PGO-Left-Out"]
    for blob in server.blobs():
        blob.write_bytes(b"")
    server.restart()
    for path, query in {"top": {}, "series": {"function": "f"}, "diff": {"base_labels": "a="}}.items():
        detail = refused(server, f"/v1/{path}", 404, service="shop", **query)
        assert detail.startswith("none of the 2 stored profiles can be taken: ")
    assert refused(server, "/v1/top", 404, service="cart") == "no stored profile matches the selection"


@pytest.mark.parametrize(("step", "width"), [("hour", HOUR), ("day", DAY)])
def test_a_series_is_the_top_of_every_step(server: Server, step: str, width: int) -> None:
    profiles = {
        MIDNIGHT + 23 * HOUR: {"main.f;lib.g": 3, "main.f": 1},
        MIDNIGHT + 23 * HOUR + 59 * 60 * SECOND: {"lib.g": 2},
        MIDNIGHT + 24 * HOUR: {"main.f;lib.g": 5},
        MIDNIGHT + 27 * HOUR: {"main.h": 1},
    }
    for number, (time_nanos, stacks) in enumerate(profiles.items()):
        store(server, stacked(stacks, time_nanos=time_nanos), service=f"s{number % 2}")
    answer = asked(server, "/v1/series", service="*", function="lib.g", step=step)
    begins = [
        MIDNIGHT + 23 * HOUR - (23 * HOUR) % width + number * width for number in range(len(answer["points"]))
    ]
    assert begins[-1] <= MIDNIGHT + 27 * HOUR < begins[-1] + width
    for begin, point in zip(begins, answer["points"], strict=True):
        assert point["time"] == written(begin).replace("+00:00", "Z")
        top = server.ask("/v1/top", service="*", n="100", from_=written(begin), to=written(begin + width))
        rows = {row["name"]: row for row in top.json().get("rows", [])}
        expected = rows.get("lib.g", dict.fromkeys(("flat", "cum", "flat_share", "cum_share"), 0))
        assert point["total"] == top.json().get("total", 0)
        assert {name: point[name] for name in ("flat", "cum")} == {n: expected[n] for n in ("flat", "cum")}
        assert point["cum_share"] == pytest.approx(expected["cum_share"])
    package = asked(server, "/v1/series", service="*", package="lib", step=step)
    assert package["points"] == answer["points"]


def test_a_series_has_a_bounded_number_of_steps(own: OwnService) -> None:
    for day in (0, 999):
        store(own, profile_of("f", time_nanos=MIDNIGHT + day * DAY))
    assert len(asked(own, "/v1/series", function="f", step="day")["points"]) == 1000
    assert "23,977 hours" in refused(own, "/v1/series", 400, function="f")
    store(own, profile_of("f", time_nanos=MIDNIGHT + 1000 * DAY))
    assert "1,001 days, and at most 1,000" in refused(own, "/v1/series", 400, function="f", step="day")
    assert len(asked(own, "/v1/series", function="f", to=written(MIDNIGHT + DAY))["points"]) == 1


def test_a_query_has_a_bounded_number_of_services(server: Server) -> None:
    """The services are only in the catalog, since a thousand submits would take long."""
    names = [BlobName(Series(f"s{number}", CPU), Identity(number, "ab" * 32)) for number in range(1001)]
    server.stop()
    url = server.variables.get("PGOF_CATALOG", "")
    database = database_of(Settings(directory=server.data, catalog=url))
    Catalog(database).add(*((name, Facts(name.identity.time_nanos, 1, "ab" * 32, 1, 1)) for name in names))
    database.close()
    server.start()
    for path, query in (
        ("/v1/top", {}),
        ("/v1/series", {"function": "f"}),
        ("/v1/diff", {"base_last": "1d"}),
    ):
        detail = refused(server, path, 400, service="*", **query)
        assert "1,001 services, and at most 1,000 are allowed" in detail
    one = {"service": "*", "from_": "1970-01-01T00:00:00.000001Z"}
    assert "none of the 1 stored" in refused(server, "/v1/top", 404, **one)


def test_combined_profiles_that_reach_over_are_counted(own: OwnService) -> None:
    for hour in range(3):
        store(own, profile_of(f"{hour}", time_nanos=MIDNIGHT + hour * HOUR))
    middle = {"from_": written(MIDNIGHT + HOUR), "to": written(MIDNIGHT + 2 * HOUR)}
    assert asked(own, "/v1/top", **middle)["coarse"] == 0
    assert asked(own, "/v1/series", function="f")["coarse"] == 0
    own.combine()
    top = asked(own, "/v1/top", **middle)
    assert (top["coarse"], len(top["rows"])) == (1, 3)
    for bound in middle:
        assert asked(own, "/v1/top", **{bound: middle[bound]})["coarse"] == 1
    assert asked(own, "/v1/top")["coarse"] == 0
    series = asked(own, "/v1/series", function="1")
    assert (series["coarse"], [point["flat"] for point in series["points"]]) == (1, [10_000_000])
    assert asked(own, "/v1/series", function="1", step="day")["coarse"] == 0
    part = asked(own, "/v1/series", function="1", step="day", **middle)
    assert (part["coarse"], part["points"][0]["time"]) == (1, written(MIDNIGHT).replace("+00:00", "Z"))
    assert asked(own, "/v1/diff", base_from=middle["from_"])["base"]["coarse"] == 1


def test_a_diff_is_of_shares(own: OwnService) -> None:
    store(own, stacked({"main.f": 3, "main.g": 1}), labels="version=1")
    store(own, stacked({"main.f": 30, "main.h": 30}), labels="version=2")
    answer = asked(own, "/v1/diff", labels="version=2", base_labels="version=1")
    assert (answer["now"]["total"], answer["base"]["total"]) == (600_000_000, 40_000_000)
    assert [(row["name"], row["flat_difference"]) for row in answer["rows"]] == [
        ("main.h", 0.5),
        ("main.f", -0.25),
        ("main.g", -0.25),
    ]
    row = answer["rows"][1]
    assert (row["now"]["flat"], row["base"]["flat"]) == (300_000_000, 30_000_000)
    assert (row["now"]["flat_share"], row["base"]["flat_share"]) == (0.5, 0.75)
    assert len(asked(own, "/v1/diff", labels="version=2", base_labels="version=1", n="2")["rows"]) == 2
    whole = asked(own, "/v1/diff", labels="version=2", base_labels="")
    assert whole["base"]["profiles"] == 2


def test_a_diff_says_what_is_noise(server: Server) -> None:
    for version, work in (("1", 50), ("2", 55), ("3", 300)):
        profile = stacked({"a;work": work, "a;rest": 1000 - work})
        store(server, profile, service="default", labels=f"version={version}")
    little = asked(server, "/v1/diff", labels="version=2", base_labels="version=1", sort="flat")
    assert little["confidence"] == 0.99
    assert little["now"]["samples"] == little["base"]["samples"] == 1000
    assert all(row["flat_interval"]["noise"] and row["cum_interval"]["noise"] for row in little["rows"])
    much = asked(server, "/v1/diff", labels="version=3", base_labels="version=1")
    found = {row["name"]: row for row in much["rows"]}
    interval = found["work"]["flat_interval"]
    assert 0 < interval["low"] < found["work"]["flat_difference"] == 0.25 < interval["high"]
    assert not interval["noise"]
    assert found["a"]["cum_interval"]["noise"]


def test_what_is_not_sampled_has_no_interval(server: Server) -> None:
    for version in ("1", "2"):
        waits = tracked([Events("main;wait", 1024, 3, 4000)])
        store(server, waits, service="default", type="offcpu", labels=f"version={version}")
    answer = asked(server, "/v1/diff", type="offcpu", labels="version=2", base_labels="version=1")
    assert answer["now"]["samples"] is None
    assert all(row["flat_interval"] is row["cum_interval"] is None for row in answer["rows"])


def test_the_base_of_a_diff_has_a_time_and_a_service_of_its_own(server: Server) -> None:
    for service in ("one", "two"):
        for day in range(4):
            name = f"{service}.{day}"
            store(server, profile_of(name, time_nanos=MIDNIGHT + day * DAY), service=service)
    query = {"service": "one", "from_": written(MIDNIGHT + 2 * DAY)}
    by_time = asked(server, "/v1/diff", **query, base_to=written(MIDNIGHT + DAY))
    assert {row["name"] for row in by_time["rows"] if row["base"]["flat"]} == {"one.0"}
    by_service = asked(server, "/v1/diff", **query, base_service="two")
    assert {row["name"] for row in by_service["rows"] if row["base"]["flat"]} == {"two.2", "two.3"}
    last = asked(server, "/v1/diff", **query, base_to=written(MIDNIGHT + DAY + SECOND), base_last="1d")
    assert {row["name"] for row in last["rows"] if row["base"]["flat"]} == {"one.1"}


@pytest.mark.parametrize(
    ("path", "query", "word"),
    [
        ("/v1/top", {"n": "0"}, "n=0"),
        ("/v1/top", {"n": "1001"}, "1,000"),
        ("/v1/top", {"by": "address"}, "function, package, file, line"),
        ("/v1/top", {"sort": "name"}, "flat, cum"),
        ("/v1/top", {"service": "a*"}, "service"),
        ("/v1/top", {"type": "*"}, "type"),
        ("/v1/merge", {"service": "*"}, "service"),
        ("/v1/series", {}, "function, package"),
        ("/v1/series", {"function": "f", "package": "p"}, "one of"),
        ("/v1/series", {"function": "f", "step": "week"}, "hour, day"),
        ("/v1/series", {"function": "f" * 10_001}, "longer"),
        ("/v1/diff", {}, "base_labels"),
        ("/v1/diff", {"base_last": "x"}, "base_last"),
        ("/v1/diff", {"base_last": "1d", "base_from": "2026-01-01"}, "base_from"),
        ("/v1/diff", {"base_service": "*"}, "service"),
        ("/v1/diff", {"base_labels": "x"}, "labels"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused(
    shared: Server, path: str, query: dict[str, str], word: str
) -> None:
    assert word in refused(shared, path, 400, **query)


@pytest.mark.parametrize("path", ["/v1/services", "/v1/profiles", "/v1/top", "/v1/series", "/v1/diff"])
def test_they_take_a_merge_key_and_get_or_head(fleet: Server, path: str) -> None:
    query = {"/v1/series": {"function": "main.main"}, "/v1/diff": {"base_labels": "version=v1"}}.get(path, {})
    of_service = {} if path == "/v1/services" else {"service": "apisvc"}
    assert fleet.ask(path, key=fleet.submit_key, **query).status_code == 403
    answer = fleet.ask(path, "HEAD", **query, **of_service)
    assert (answer.status_code, answer.content) == (200, b"")
    posted = fleet.ask(path, "POST", **query)
    assert (posted.status_code, {*posted.headers["Allow"].split(", ")}) == (405, {"GET", "HEAD"})


def test_openapi_describes_what_is_answered(fleet: Server) -> None:
    answer = fleet.client.get("/v1/openapi.json")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    schema = answer.json()
    operations = {
        (path, method): entry
        for path, methods in schema["paths"].items()
        for method, entry in methods.items()
    }
    assert len({entry["operationId"] for entry in operations.values()}) == len(operations) > 15
    for entry in operations.values():
        assert entry["summary"]
        assert {status for status in entry["responses"] if status.startswith("2")}
    assert "$ref" in json.dumps(operations["/v1/top", "get"]["responses"]["200"])
    for reference in {*json.dumps(schema).split('"#/components/schemas/')[1:]}:
        assert reference.split('"')[0] in schema["components"]["schemas"]
    assert operations["/v1/openapi.json", "get"]["security"] == []
    described = {parameter["name"] for parameter in operations["/v1/diff", "get"]["parameters"]}
    assert {"service", "labels", "last", "base_service", "base_last", "by", "n"} <= described
    for status in ("400", "403", "404"):
        assert [*operations["/v1/top", "get"]["responses"][status]["content"]] == ["application/problem+json"]
