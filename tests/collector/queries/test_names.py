"""Names for addresses: a program that is uploaded names the functions of old profiles, in every view."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pprof_proto.profile_pb2 import Profile

from tests.collector.engine.test_binaries import refused
from tests.collector.queries.test_dropped_frames import tables
from tests.collector.queries.test_queries import asked, store
from tests.collector.small_program import WORK_AT, small_program
from tests.collector.visitor import Visitor
from tests.merge.stacked import stacked
from tests.server import Server, bearer

BUILD_ID = b"12345678"
PROGRAM = small_program(BUILD_ID)
BARE = "[service]"


def bare(build_id: bytes, seconds_ago: int = 60) -> bytes:
    """Return a profile of `main`, which has a name, calling an address in `work`, which has none."""
    profile = Profile.FromString(stacked({"main;work": 100}, time_nanos=time.time_ns() - seconds_ago * 10**9))
    profile.string_table.append(build_id.hex().encode())
    (mapping,) = profile.mapping
    mapping.build_id = len(profile.string_table) - 1
    work = profile.location[1]
    work.address = mapping.memory_start + WORK_AT
    del work.line[:]
    return profile.SerializeToString()


def upload(server: Server, service: str, program: bytes = PROGRAM) -> None:
    headers = bearer(server.submit_key)
    answer = server.client.post("/v1/binaries", params={"service": service}, content=program, headers=headers)
    assert answer.status_code == 200, answer.text


def merged(server: Server, **query: str) -> bytes:
    answer = server.merge(query=query)
    assert answer.status_code == 200, answer.text
    return gzip.decompress(answer.content)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as server:
        store(server, bare(BUILD_ID), service="shop")
        yield server


def test_every_view_has_the_names_as_soon_as_the_program_is_there_and_the_merge_stays(server: Server) -> None:
    before, raw = tables(server, "shop"), merged(server, service="shop")
    assert before == {view: {"main", BARE} for view in before} | {"callees": {BARE}}
    upload(server, "shop")
    named = tables(server, "shop")
    assert named == {view: {"main", "work"} for view in named} | {"callees": {"work"}}
    of = {"service": "shop", "function": "work"}
    assert asked(server, "/v1/function", **of)["cum"] == 10**9
    points = asked(server, "/v1/series", step="day", **of)["points"]
    assert [point["flat"] for point in points if point["total"]] == [10**9]
    (row,) = (row for row in asked(server, "/v1/fleet")["functions"] if row["flat"])
    assert row["name"] == "work"
    assert len(asked(server, "/v1/top", service="shop", focus="^work$")["rows"]) == 2
    assert merged(server, service="shop") == raw
    # Without the program, the addresses are back.
    path = f"/v1/binaries/{BUILD_ID.hex()}"
    assert server.ask(path, method="DELETE", service="shop").status_code == 204
    assert tables(server, "shop") == before


def test_it_is_told_which_programs_lack_names(server: Server) -> None:
    store(server, bare(b"a\"'; rm", 50), service="shop")
    found = asked(server, "/v1/unnamed", service="shop")
    assert (found["total"], found["unnamed"], found["unnamed_share"]) == (2 * 10**9, 2 * 10**9, 1.0)
    lacking = {
        each["build_id"]: (each["flat"], each["addresses"], each["stored"]) for each in found["programs"]
    }
    assert lacking == dict.fromkeys((BUILD_ID.hex(), b"a\"'; rm".hex()), (10**9, 1, False))
    visitor = Visitor(server)
    page = visitor.page("/ui/services/shop/unnamed")
    assert "pgo-agent binary /bin/service --url" in page.text
    assert BUILD_ID.hex() in page.text
    assert any("/shop/unnamed" in link for link in visitor.page("/ui/services/shop").links())
    upload(server, "shop")
    after = asked(server, "/v1/unnamed", service="shop")
    assert (after["unnamed_share"], [each["stored"] for each in after["programs"]]) == (0.5, [False])
    assert "sample type 'heap'" in refused(server.ask("/v1/unnamed", service="shop", sample_type="heap"), 422)


def test_the_page_says_that_programs_are_not_taken(tmp_path: Path) -> None:
    with Server(tmp_path, {"PGOF_BINARIES_KEPT": "0"}) as server:
        store(server, bare(BUILD_ID), service="shop")
        page = Visitor(server).page("/ui/services/shop/unnamed")
        assert "programs aren't taken here: PGOF_BINARIES_KEPT is 0" in page.text


def test_a_merge_is_symbolized_on_request(server: Server) -> None:
    asks = {"service": "shop", "symbolize": "true"}
    plain = merged(server, service="shop")
    assert merged(server, **asks) == plain
    upload(server, "shop")
    named = Profile.FromString(merged(server, **asks))
    lines = {
        named.string_table[named.function[line.function_id - 1].name]
        for location in named.location
        for line in location.line
    }
    assert lines == {b"main", b"work"}
    assert merged(server, service="shop", symbolize="false") == plain
    first = server.merge(query=asks)
    assert server.merge(query=asks, if_none_match=first.headers["ETag"]).status_code == 304
    assert b"work" in merged(server, format="go", **asks)
    assert "symbolize=yes" in refused(server.merge(query=asks | {"symbolize": "yes"}), 400)
    assert "format=llvm takes a program" in refused(server.merge(format_="llvm", query=asks), 400)
    assert "symbolize: a combine" in refused(server.combine(query=asks), 400)


def test_a_service_has_the_names_of_its_own_programs(server: Server) -> None:
    store(server, bare(BUILD_ID), service="cart")
    store(server, bare(b"87654321"), service="shop")
    upload(server, "cart")
    assert {row["name"] for row in asked(server, "/v1/top", service="cart")["rows"]} == {"main", "work"}
    for services in (["shop"], ["shop", "cart"]):
        asks = {"format": "folded", "service": services}
        views = server.client.get("/v1/merge", params=asks, headers=bearer(server.merge_key)).text
        assert BARE in views, services
        assert ("work" in views) == ("cart" in services)
    both = asked(server, "/v1/top", service="*")["rows"]
    assert {row["name"] for row in both} == {"main", "work", BARE}
    upload(server, "shop")
    assert {row["name"] for row in asked(server, "/v1/top", service="shop")["rows"]} == {"main", "work", BARE}


def test_a_table_that_is_gone_is_made_again(server: Server) -> None:
    upload(server, "shop")
    server.kill()
    (table,) = server.data.glob("copies/*.symbols")
    for spoil in (table.unlink, lambda: table.write_bytes(b"x" * 100), lambda: table.write_bytes(b"")):
        spoil()
        server.start()
        assert "work" in server.merge(format_="folded", query={"service": "shop"}).text
        server.kill()
    server.start()
