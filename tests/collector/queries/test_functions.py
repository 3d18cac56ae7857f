"""/v1/function: the callers, callees and lines of one function, and links to its source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pgo_collector.model.source_links import SourceLinks
from pprof_merge import decode, encode, merge
from pprof_merge.analysis import Place

from tests.collector.conftest import PROFILES
from tests.collector.queries.test_queries import asked, refused, store
from tests.collector.visitor import Visitor
from tests.merge.analysis.test_function_use import located
from tests.merge.go_use import go_peek
from tests.merge.stacked import stacked
from tests.server import Server

pytestmark = pytest.mark.any_store

if TYPE_CHECKING:
    from collections.abc import Iterator

MS = 10**6
PATH = "/v1/function"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Store real profiles of two programs, each as a service."""
    with Server(tmp_path_factory.mktemp("functions")) as server:
        for file in (*PROFILES.glob("apisvc-*"), *PROFILES.glob("etl-*")):
            service, version, *_ = file.name.split("-")
            store(server, file.read_bytes(), service=service, labels=f"version={version}")
        yield server


@pytest.mark.parametrize("service", ["*", "apisvc"])
def test_the_calls_are_those_of_go(fleet: Server, service: str, tmp_path: Path) -> None:
    services = ("apisvc", "etl") if service == "*" else (service,)
    files = [file for each in services for file in PROFILES.glob(f"{each}-*")]
    merged = encode(merge(decode(file.read_bytes()) for file in files))
    for name in ("runtime.mallocgc", "runtime.systemstack"):
        answer = asked(fleet, PATH, service=service, function=name, n="1000")
        theirs = go_peek(merged, tmp_path, name)
        for calls, expected in ((answer["callers"], theirs.callers), (answer["callees"], theirs.callees)):
            assert {call["name"]: (call["value"], call["inlined"]) for call in calls} == expected
            values = [call["value"] for call in calls]
            assert values == sorted(values, reverse=True)
        assert (answer["flat"], answer["cum"]) == (theirs.flat, theirs.cum)
        assert answer["cum_share"] == pytest.approx(answer["cum"] / answer["total"])
        assert answer["profiles"] == len(files)
        assert sum(line["flat"] for line in answer["lines"]) == answer["flat"]


def test_it_takes_a_selection_and_so_many_rows(fleet: Server) -> None:
    answer = asked(fleet, PATH, service="apisvc", function="runtime.mallocgc", labels="version=v1", n="2")
    assert [len(answer[rows]) for rows in ("callers", "callees", "lines")] == [2, 2, 2]
    assert min(answer["n_callers"], answer["n_callees"], answer["n_lines"]) > 2
    whole = asked(fleet, PATH, service="apisvc", function="runtime.mallocgc")
    assert answer["total"] < whole["total"]
    assert answer["profiles"] < whole["profiles"]


def test_recursion_counts_once_and_services_are_added(server: Server) -> None:
    store(server, stacked({"main.f;main.g;main.f;main.g": 3, "main.f;main.f": 1}), service="one")
    store(server, stacked({"lib.h;main.f": 1}), service="two")
    answer = asked(server, PATH, service="*", function="main.f")
    assert (answer["flat"], answer["cum"]) == (20 * MS, 50 * MS)
    assert {call["name"]: call["value"] for call in answer["callers"]} == {
        "main.g": 30 * MS,
        "lib.h": 10 * MS,
    }
    assert {call["name"]: call["value"] for call in answer["callees"]} == {"main.g": 30 * MS}
    (line,) = answer["lines"]
    assert (line["file"], line["line"], line["flat"], line["cum"]) == ("", 2, 20 * MS, 50 * MS)
    alone = asked(server, PATH, service="one", function="main.g")
    assert (alone["flat"], alone["cum"]) == (30 * MS, 30 * MS)


@pytest.mark.parametrize(
    ("status", "query", "words"),
    [
        (400, {}, "exactly one of function"),
        (400, {"function": "f", "n": "1001"}, "from 1 to 1,000"),
        (400, {"function": "x" * 10_001}, "longer than 10,000"),
        (400, {"function": "f", "by": "file"}, "unknown parameter"),
        (404, {"function": "f", "labels": "version=none"}, "no stored profile"),
        (404, {"function": "mallocgc"}, "did you mean one of 'runtime.mallocgc'"),
        (404, {"function": "<script>"}, "no name contains it"),
    ],
)
def test_what_is_wrong_is_said(fleet: Server, status: int, query: dict[str, str], words: str) -> None:
    assert words in refused(fleet, PATH, status, service="apisvc", **query)


RULES = (
    "example.com/shop=https://git.example/shop/blob/{version}/{path}#L{line} "
    "example.com/*/tools=https://git.example/{module}@{version}/{path}?line={line} "
    "/usr/local/go/src=http://git.example:8080/go/src/{path}#L{line}"
)


@pytest.mark.parametrize(
    ("file", "version", "expected"),
    [
        ("/go/pkg/mod/example.com/shop@v1.2.0/cart/cart.go", "7", "shop/blob/v1.2.0/cart/cart.go#L9"),
        ("example.com/shop/cart.go", "7", "shop/blob/7/cart.go#L9"),
        ("example.com/shop/cart.go", "", None),
        ("example.com/shop@v2.0.0+incompatible/a.go", "", "shop/blob/v2.0.0/a.go#L9"),
        ("example.com/shop@v0.0.0-20260102030405-0123456789ab/a.go", "", "shop/blob/0123456789ab/a.go#L9"),
        ("/m/example.com/!joe/tools@v1/a b.go", "", "example.com/Joe/tools@v1/a%20b.go?line=9"),
        ("example.com/shop/\"><script>'.go", "1&2#3", "shop/blob/1%262%233/%22%3E%3Cscript%3E%27.go#L9"),
        ("example.com/shop/../../secret.go", "7", None),
        ("example.com/shop@v1/../../x", "7", None),
        ("example.com/shop/cart.go", "../../other", None),
        ("example.com/shopping/cart.go", "7", None),
        ("other.example/a.go", "7", None),
        ("", "7", None),
        ("example.com/shop/" + "x" * 1000, "7", None),
    ],
)
def test_a_line_has_the_url_of_its_module_and_version(file: str, version: str, expected: str | None) -> None:
    url = SourceLinks(RULES).url(Place(file, 9), version)
    assert url == (expected and f"https://git.example/{expected}")


def test_a_folder_is_a_module_too() -> None:
    url = SourceLinks(RULES).url(Place("/usr/local/go/src/runtime/proc.go", 0), "7")
    assert url == "http://git.example:8080/go/src/runtime/proc.go#L1"
    assert SourceLinks("").url(Place("example.com/shop/a.go", 1), "7") is None


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("example.com/shop", "write MODULE=URL"),
        ("=https://git.example/{path}", "write MODULE=URL"),
        ("m=javascript:alert({path})", "must begin with https://"),
        ("m=https:///{path}", "must begin with https://"),
        ("m=//git.example/{path}", "must begin with https://"),
        ("m=https://{module}/{path}", "must begin with https://"),
        ("m=https://joe:secret@git.example/{path}", "must begin with https://"),
        ("m=https://[git/{path}", "must begin with https://"),
        ('m=https://git.example/{path}"', "percent-encode"),
        ("m=https://git.example/{path}{commit}", "the fields of a URL"),
        ("m=https://git.example/{path}{", "the fields of a URL"),
        ("m=https://git.example/", "needs {path}"),
        ("m*=https://git.example/{path}", "a whole element"),
        (" ".join(f"m{n}=https://git.example/{{path}}" for n in range(1001)), "at most 1,000"),
    ],
)
def test_a_rule_that_makes_no_url_is_refused(rules: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("{", r"\{").replace("*", r"\*")):
        SourceLinks(rules)


def test_lines_link_to_their_source(tmp_path: Path) -> None:
    f = ("main.f", "example.com/shop/cart/<b>.go", 12)
    h = ("lib.h", "/go/pkg/mod/example.com/shop@v1.2.0/h.go", 3)
    with Server(tmp_path, {"PGOF_SOURCE_LINKS": RULES}) as server:
        for version in ("1", "2/<>"):
            time_nanos = int(version[0])
            content = located([([[f, h]], 5)], time_nanos)
            store(server, content, service="shop", labels=f"version={version.replace('/', '%2F')}")
        visitor = Visitor(server)
        expected = "https://git.example/shop/blob/2/%3C%3E/cart/%3Cb%3E.go#L12"
        (line,) = asked(server, PATH, service="shop", function="main.f")["lines"]
        assert line["source"] == expected
        assert [inlined["name"] for inlined in line["inlined"]] == ["lib.h"]
        page = visitor.page("/ui/services/shop/function", function="main.f")
        assert [link for link in page.links() if link.startswith("http")] == [expected]
        of_dependency = visitor.page("/ui/services/shop/function", function="lib.h")
        assert "https://git.example/shop/blob/v1.2.0/h.go#L3" in of_dependency.links()
        of_all = asked(server, PATH, service="*", function="main.f")
        assert of_all["lines"][0]["source"] is None
