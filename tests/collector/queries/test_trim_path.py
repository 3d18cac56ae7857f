"""Paths of files without where they were built: in views, on pages and in merges, where it is asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from pprof_merge import inflate
from pprof_proto.profile_pb2 import Profile

from tests.collector.queries.test_queries import asked, refused, store
from tests.collector.visitor import Visitor
from tests.merge.analysis.test_function_use import located
from tests.server import Server

pytestmark = pytest.mark.any_store

SHOP = {"service": "shop"}
TRIMMED = SHOP | {"trim_path": "/home/ci/build-1:/home/ci/build-2"}
LLVM = b"shop.run:2:0\n 6: %d\n"
LINES = [[("main", "/opt/main.go", 1)]]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("paths")) as server:
        now = time.time_ns() - 60 * 10**9
        for number in (1, 2):
            stack = [*LINES, [("shop.run", f"/home/ci/build-{number}/run.go", 7)]]
            store(server, located([(stack, 10**9)], time_nanos=now + number), **SHOP)
        yield server


def test_every_view_shows_them_without(fleet: Server) -> None:
    files = {row["name"]: row["flat"] for row in asked(fleet, "/v1/top", by="file", **TRIMMED)["rows"]}
    assert files == {"run.go": 2 * 10**9, "/opt/main.go": 0}
    lines = asked(fleet, "/v1/flame", by="line", **TRIMMED)["calls"]
    assert {call["name"] for call in lines} == {"", "main /opt/main.go:1", "shop.run run.go:7"}
    (line,) = asked(fleet, "/v1/function", function="shop.run", **TRIMMED)["lines"]
    assert (line["file"], line["flat"]) == ("run.go", 2 * 10**9)
    rows = asked(fleet, "/v1/diff", by="file", base_last="1d", **TRIMMED)["rows"]
    assert {row["name"] for row in rows} == {"run.go", "/opt/main.go"}
    assert b"/home/ci" not in fleet.merge(format_="speedscope", query=TRIMMED).content
    assert len(asked(fleet, "/v1/top", by="file", **SHOP)["rows"]) == 3


def test_patterns_see_whole_paths_as_those_of_go_do(fleet: Server) -> None:
    rows = asked(fleet, "/v1/top", by="file", focus="build-2", **TRIMMED)["rows"]
    assert {row["name"]: row["cum"] for row in rows} == {"run.go": 10**9, "/opt/main.go": 10**9}


def test_a_merge_is_without_them_where_it_is_asked(fleet: Server) -> None:
    plain, trimmed = fleet.merge(query=SHOP), fleet.merge(query=TRIMMED)
    assert plain.headers["ETag"] != trimmed.headers["ETag"]
    assert len(Profile.FromString(inflate(plain.content)).function) == 3
    profile = Profile.FromString(inflate(trimmed.content))
    assert {profile.string_table[each.filename] for each in profile.function} == {b"run.go", b"/opt/main.go"}
    counts = []
    for query in (SHOP, TRIMMED):
        read = {name: fleet.merge(format_=name, query=query).content for name in ("go", "llvm")}
        counts.append((read["go"], read["llvm"]))
    assert counts[0][0] == counts[1][0]
    # An instruction of both builds is one only where its function is.
    assert [llvm for _, llvm in counts] == [LLVM % 1, LLVM % 2]
    answer = fleet.merge("POST", query=TRIMMED | {"and_combine": "true"})
    assert (answer.status_code, "trim_path" in answer.json()["detail"]) == (400, True)


def test_a_page_keeps_it_in_its_links(fleet: Server) -> None:
    page = Visitor(fleet).get("/ui/services/shop/top?by=file&trim_path=/home/ci/build-1:/home/ci/build-2")
    assert "run.go" in page.text
    assert "/home/ci/build-1/run.go" not in page.text
    assert "trim_path=%2Fhome%2Fci%2Fbuild-1%3A" in page.text


@pytest.mark.parametrize("page", ["", "/top", "/live", "/diff", "/function"])
def test_each_page_of_stacks_has_a_field_for_it(fleet: Server, page: str) -> None:
    more: dict[str, Any] = (
        {"base_last": "1d"} if page == "/diff" else {"function": "shop.run"} if page == "/function" else {}
    )
    shown = Visitor(fleet).page(
        f"/ui/services/shop{page}", trim_path="/home/ci/build-1:/srv", focus="run", **more
    )
    fields = {each.attributes.get("name"): each.attributes for each in shown.all("input", spellcheck="false")}
    assert fields["trim_path"]["value"] == "/home/ci/build-1:/srv"
    assert fields["focus"]["value"] == "run"


@pytest.mark.parametrize("text", [":".join(["/a"] * 33), "/" + "a" * 1000])
def test_too_much_is_refused(fleet: Server, text: str) -> None:
    assert "trim_path: give up to 32 folders" in refused(
        fleet, "/v1/top", 400, service="shop", trim_path=text
    )
