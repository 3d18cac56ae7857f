"""Focus, ignore and hide, lines and flame graphs: in /v1 and on the pages, from the same functions."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree as ET

import pytest
from pgo_collector.errors import ParameterInvalid
from pgo_collector.model.name_patterns import PATTERN_TIME, NamePatterns
from pgo_collector.ui.svg_file import OKLCH, RGB, hex_of
from pprof_merge import decode

from tests.collector.hostile_names import HOSTILE, submit_hostile
from tests.collector.ui.test_pages import assert_ours, calls, rows, titles
from tests.collector.visitor import Visitor
from tests.faults.stacks import tally
from tests.merge.stacked import stacked
from tests.server import Server

pytestmark = pytest.mark.any_store

STACKS = {
    "main.main;shop.serve;shop.serve;json.Marshal": 30,
    "main.main;shop.serve;runtime.mallocgc": 20,
    "main.main;runtime.gc": 50,
}
PAGES = ("", "/top", "/diff?base_labels=version%3D1", "/function?function=shop.serve")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def site(shared: Server) -> Visitor:
    """Store two versions of a service: the second spends twice as much in Marshal."""
    for version, stacks in (("1", STACKS), ("2", {**STACKS, "main.main;shop.serve;json.Marshal": 30})):
        profile = stacked(stacks, time_nanos=10**9 * int(version))
        query = {"service": "named", "labels": f"version={version}"}
        assert shared.submit(profile, query=query).status_code == 204
    return Visitor(shared)


def asked(server: Server, path: str, **query: str) -> Any:
    answer = server.ask(path, service="named", labels="version=1", **query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def cumulative(server: Server, **query: str) -> dict[str, int]:
    return {row["name"]: row["cum"] // 10**7 for row in asked(server, "/v1/top", sort="cum", **query)["rows"]}


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"focus": "json"}, {"main.main": 30, "shop.serve": 30, "json.Marshal": 30}),
        ({"ignore": "^runtime"}, {"main.main": 30, "shop.serve": 30, "json.Marshal": 30}),
        ({"hide": "^(main|runtime)"}, {"shop.serve": 50, "json.Marshal": 30}),
        ({"focus": "serve", "ignore": "json", "hide": "mallocgc$"}, {"main.main": 20, "shop.serve": 20}),
        ({"focus": "nothing"}, {}),
    ],
)
def test_a_table_has_what_the_patterns_keep(
    shared: Server, query: dict[str, str], expected: dict[str, int]
) -> None:
    assert cumulative(shared, **query) == expected
    answer = asked(shared, "/v1/top", **query)
    assert answer["whole"] == 100 * 10**7
    assert answer["total"] == max(expected.values(), default=0) * 10**7


@pytest.mark.usefixtures("site")
def test_lines_are_a_grouping(shared: Server) -> None:
    assert cumulative(shared, by="line")["shop.serve :2"] == 50
    found = shared.ask(
        "/v1/diff", service="named", labels="version=2", base_labels="version=1", by="line"
    ).json()
    assert {row["name"] for row in found["rows"]} == {
        *("main.main :2", "shop.serve :2", "json.Marshal :2", "runtime.mallocgc :2", "runtime.gc :2")
    }


@pytest.mark.usefixtures("site")
def test_a_function_a_difference_and_a_merge_take_patterns(shared: Server) -> None:
    serve = asked(shared, "/v1/function", function="shop.serve", ignore="json")
    assert [call["name"] for call in serve["callees"]] == ["runtime.mallocgc"]
    assert (serve["total"], serve["whole"]) == (70 * 10**7, 100 * 10**7)
    diff = shared.ask(
        "/v1/diff", service="named", labels="version=2", base_labels="version=1", focus="json"
    ).json()
    assert (diff["now"]["total"], diff["now"]["whole"]) == (60 * 10**7, 130 * 10**7)
    assert (diff["base"]["total"], diff["base"]["whole"]) == (30 * 10**7, 100 * 10**7)
    query = {"service": "named", "labels": "version=1", "focus": "json", "hide": "main"}
    folded = shared.merge(format_="folded", query=query)
    assert folded.text == "shop.serve;shop.serve;json.Marshal 300000000\n"
    merged = shared.merge(query=query)
    assert len(decode(merged.content).samples) == 1
    assert merged.headers["ETag"] != shared.merge(query={"service": "named"}).headers["ETag"]
    assert tally(shared.merge(query={**query, "hide": ""}).content)
    refused = shared.client.post(
        "/v1/merge?and_combine=true&focus=x", headers={"Authorization": f"Bearer {shared.merge_key}"}
    )
    assert refused.status_code == 400
    assert "focus" in refused.json()["detail"]


@pytest.mark.usefixtures("site")
def test_a_flame_graph_is_a_list_of_calls(shared: Server) -> None:
    found = asked(shared, "/v1/flame")
    paths: list[str] = []
    for call in found["calls"]:
        above = paths[call["parent"]] if call["parent"] >= 0 else ""
        paths.append(f"{above};{call['name']}".strip(";"))
    values = {path: call["cum"] // 10**7 for path, call in zip(paths, found["calls"], strict=True)}
    assert values == {
        "": 100,
        "main.main": 100,
        "main.main;shop.serve": 50,
        "main.main;runtime.gc": 50,
        "main.main;shop.serve;shop.serve": 30,
        "main.main;shop.serve;runtime.mallocgc": 20,
        "main.main;shop.serve;shop.serve;json.Marshal": 30,
    }
    keys = {path: call["key"] for path, call in zip(paths, found["calls"], strict=True)}
    below = asked(shared, "/v1/flame", root=keys["main.main;shop.serve"])
    assert below["calls"][below["root"]]["name"] == "shop.serve"
    assert "runtime.gc" not in {call["name"] for call in below["calls"]}
    collapsed = asked(shared, "/v1/flame", recursion="collapse", hide="main")
    assert [call["name"] for call in collapsed["calls"]].count("shop.serve") == 1
    assert [call["name"] for call in asked(shared, "/v1/flame", by="package")["calls"]].count("shop") == 1
    assert len(asked(shared, "/v1/flame", limit="2")["calls"]) == 3
    compared = asked(shared, "/v1/flame", base_labels="version=2", focus="json")
    assert (compared["total"], compared["base_total"]) == (30 * 10**7, 60 * 10**7)
    assert all(call["base_cum"] is not None for call in compared["calls"])


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("path", ["/v1/top", "/v1/flame", "/v1/function?function=main.main", "/v1/merge"])
@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(a{100}){100}", "a" * 1001, "a**", "(?=x)"])
def test_a_pattern_that_cannot_be_used_is_refused_by_name(shared: Server, path: str, pattern: str) -> None:
    base, _, rest = path.partition("?")
    query = dict(pair.split("=") for pair in rest.split("&") if pair)
    answer = shared.ask(base, service="named", hide=pattern, **query)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("hide: ")


def test_a_pattern_takes_time_that_is_linear_in_the_names() -> None:
    """Python's own expressions would take longer than the universe is old."""
    profile = decode(stacked({"a" * 30_000 + "!": 1}))
    patterns = NamePatterns(hide="(a+)+$", ignore="(a|aa)+$", focus="(a*)*!")
    patterns.check()
    assert len(patterns.apply(profile).samples) == 1
    with pytest.raises(ParameterInvalid, match="ignore: "):
        NamePatterns(ignore="[").check()


def test_patterns_that_take_too_long_are_refused(shared: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = decode(stacked({f"main.main;{number}": 1 for number in range(10)}))
    monkeypatch.setattr(PATTERN_TIME, "seconds", 0)
    with pytest.raises(ParameterInvalid, match="simpler expressions"):
        NamePatterns(hide="main").apply(profile)
    monkeypatch.undo()
    assert shared.ask("/v1/top", service="named", hide="main").status_code == 200


@pytest.mark.parametrize("path", PAGES)
def test_every_page_of_stacks_filters_and_says_what_is_left(site: Visitor, path: str) -> None:
    page, _, rest = path.partition("?")
    query = {name: value for name, (value,) in parse_qs(rest).items()}
    url = f"/ui/services/named{page}"
    plain = site.page(url, 200, labels="version=2", **query)
    assert plain.all("form", aria_label="Filter by name")
    assert "of this part" not in plain.text
    found = site.page(url, 200, labels="version=2", focus="json", **query)
    assert "This is 46.2 % of all" in found.text
    assert "runtime.gc" not in found.text
    (everything,) = (tag.attributes["href"] for tag in found.all("a") if tag.text == "Show all")
    assert "focus" not in everything
    assert "labels=version%3D2" in everything
    tabs = [link for link in found.links() if urlsplit(link).path.endswith(("/named", "/top", "/function"))]
    assert tabs
    wrong = site.page(url, 400, labels="version=2", focus="(", **query)
    assert "focus: " in wrong.text


def test_a_filter_goes_along_from_page_to_page(site: Visitor) -> None:
    page = site.page("/ui/services/named", hide="^main", ignore="gc$")
    for tab in ("/top", "/diff"):
        links = {link for link in page.links() if urlsplit(link).path == f"/ui/services/named{tab}"}
        (link,) = (link for link in links if "base_" not in link and "sort=" not in link)
        assert parse_qs(urlsplit(link).query) == {"hide": ["^main"], "ignore": ["gc$"]}
    (series,) = (link for link in page.links() if urlsplit(link).path.endswith("/series"))
    assert not urlsplit(series).query


def test_a_search_counts_and_offers_to_hide(site: Visitor) -> None:
    page = site.page("/ui/services/named", labels="version=1", search="RUNTIME.")
    assert re.search(r"70.0 % is in stacks that contain RUNTIME\., in 2 names:", page.text)
    links = {tag.text: tag.attributes["href"] for tag in page.all("a")}
    assert {*titles(site.page(links["focus"]))} == {
        *("all", "main.main", "shop.serve", "runtime.mallocgc", "runtime.gc")
    }
    assert {*titles(site.page(links["hide"]))} == {"all", "main.main", "shop.serve", "json.Marshal"}
    ignored = site.page(links["ignore"])
    assert {*titles(ignored)} == {"all", "main.main", "shop.serve", "json.Marshal"}
    assert titles(ignored)["all"].startswith("100.0 %: 300 ms")


def test_the_call_of_a_zoom_can_be_hidden(site: Visitor) -> None:
    page = site.page("/ui/services/named", labels="version=1", hide="json")
    zoomed = site.page(f"/ui/services/named{calls(page)['shop.serve']}")
    links = {tag.text: tag.attributes["href"] for tag in zoomed.all("a")}
    assert parse_qs(urlsplit(links["hide"]).query)["hide"] == [r"json|^shop\.serve$"]
    assert {*titles(site.page(links["hide"]))} == {"all", "main.main", "runtime.mallocgc", "runtime.gc"}


def test_a_zoom_within_a_search_zooms(site: Visitor) -> None:
    page = site.page("/ui/services/named", labels="version=1", search="malloc")
    zoomed = site.page(f"/ui/services/named{calls(page)['main.main']}")
    links = [tag.attributes["href"] for tag in zoomed.all("a") if tag.attributes["href"].startswith("?")]
    assert all(re.fullmatch(r"0|[0-9a-f]{16}", parse_qs(link[1:])["root"][0]) for link in links)
    assert all(parse_qs(link[1:])["search"] == ["malloc"] for link in links)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("function", {"main.main", "shop.serve", "json.Marshal", "runtime.mallocgc", "runtime.gc"}),
        ("package", {"main", "shop", "json", "runtime"}),
        ("file", {"<unknown>"}),
        (
            "line",
            {"main.main :2", "shop.serve :2", "json.Marshal :2", "runtime.mallocgc :2", "runtime.gc :2"},
        ),
    ],
)
def test_a_graph_by_anything_is_drawn_both_ways(site: Visitor, by: str, names: set[str]) -> None:
    page = site.page("/ui/services/named", labels="version=1", by=by)
    assert {*titles(page)} == {"all", *names}
    upright = site.page("/ui/services/named", labels="version=1", by=by, layout="flame")
    heights = {
        kind: {tag.text.split("\n")[0]: int(tag.attributes["y"]) for tag in of.all("svg", height="21")}
        for kind, of in (("icicle", page), ("flame", upright))
    }
    assert heights["icicle"]["all"] == 0
    assert heights["flame"]["all"] == max(heights["flame"].values())
    drawn = page.all("svg", height="21")
    collapsed = site.page("/ui/services/named", labels="version=1", by=by, recursion="collapse")
    removed = 1 if by in {"function", "line"} else 0
    assert len(collapsed.all("svg", height="21")) == len(drawn) - removed
    for name in ("by", "layout", "recursion"):
        site.page("/ui/services/named", 400, **{name: "nothing"})


def test_a_difference_has_the_colours_of_packages_on_demand(site: Visitor) -> None:
    query = {"labels": "version=2", "base_labels": "version=1"}
    shades = {
        tag.attributes["class"]
        for tag in site.page("/ui/services/named/diff", 200, **query).all("svg", height="21")
    }
    packages = {
        tag.attributes["class"]
        for tag in site.page("/ui/services/named/diff", 200, colours="package", **query).all(
            "svg", height="21"
        )
    }
    assert shades & {"more4", "less4"}
    assert all(re.fullmatch(r"c\d+|all", colour) for colour in packages)


@pytest.mark.parametrize("query", [{}, {"base_labels": "version=1", "search": "json"}, {"layout": "flame"}])
def test_the_file_of_a_graph_is_svg_with_the_same_boxes(site: Visitor, query: dict[str, str]) -> None:
    answer = site.get("/ui/services/named/flame.svg", None, labels="version=2", **query)
    assert answer.headers["Content-Type"] == "image/svg+xml"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="named.svg"'
    boxes = ET.fromstring(answer.text).findall(f".//{SVG}svg[{SVG}title]")  # noqa: S314 - our own answer
    page = site.page(
        f"/ui/services/named{'/diff' if 'base_labels' in query else ''}", 200, labels="version=2", **query
    )
    (link,) = (link for link in page.links() if "/flame.svg" in link)
    assert site.get(link).text == answer.text
    drawn = {tag.text.split("\n")[0] for tag in page.all("svg", height="21")}
    assert {box.findtext(f"{SVG}title", "").split("\n")[0] for box in boxes} == drawn
    assert site.get("/ui/services/named/flame.svg", None, labels="version=9").status_code == 404


def test_a_file_has_the_colours_of_the_style_sheet(site: Visitor) -> None:
    light = site.get("/ui/static/pages.css").text.partition("@media")[0]
    found = dict(re.findall(r"--(\w+): oklch\(([^)]*)\)", light))
    assert {name: tuple(map(float, found[name].split())) for name in OKLCH} == OKLCH
    assert f"--all: {RGB['all']}" in light
    assert f"--hit: {RGB['hit']}" in light
    assert all(re.fullmatch("#[0-9a-f]{6}", hex_of(name)) for name in (*OKLCH, *RGB))


@pytest.mark.parametrize(
    "is_all", [False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["one", "all"]
)
def test_no_name_does_harm_to_a_filter_or_a_file(shared: Server, *, is_all: bool) -> None:
    """Each name in one of the filters, or in all of them."""
    submit_hostile(shared)
    visitor = Visitor(shared)
    for by in ("function", "package", "file", "line"):
        answer = visitor.get("/ui/services/hostile/flame.svg", None, by=by)
        root = ET.fromstring(answer.text)  # noqa: S314 - our own answer
        assert {element.tag for element in root.iter()} == {
            f"{SVG}{name}" for name in ("svg", "rect", "title", "text")
        }
        assert not [
            name
            for element in root.iter()
            for name in element.attrib
            if name.startswith("on") or "href" in name
        ]
    keys = ("focus", "ignore", "hide", "search")
    for number, name in enumerate(HOSTILE):
        for key in keys if is_all else [keys[number % len(keys)]]:
            page = visitor.page("/ui/services/hostile", 200, **{key: re.escape(name[:150])})
            assert len(page.answer.content) < 300_000
            assert_ours(page)
    assert not shared.events("unexpected error")


def test_long_parameters_make_fewer_calls_and_no_larger_page(server: Server) -> None:
    wide = {f"main.main;{number:04}{'f' * 60}": 10 for number in range(1200)}
    assert server.submit(stacked(wide), query={"service": "wide"}).status_code == 204
    visitor = Visitor(server)
    plain = visitor.page("/ui/services/wide")
    long = visitor.page("/ui/services/wide", focus="x?" * 200)
    assert len(plain.all("svg", height="21")) > len(long.all("svg", height="21")) > 100
    for page in (plain, long, visitor.page("/ui/services/wide", search="\N{SNOWMAN}" * 200)):
        assert len(page.answer.content) < 400_000
    for path in ("", "/top", "/diff", "/function"):
        visitor.page(f"/ui/services/wide{path}", 400, focus="x?" * 600)


@pytest.mark.parametrize(
    ("path", "others"),
    [
        ("", [{"recursion": "collapse"}, {"by": "package"}]),
        ("/live", [{"recursion": "collapse"}, {"by": "package"}]),
        ("/top", [{"by": "package"}]),
        ("/diff?base_labels=version%3D1", [{"recursion": "collapse"}, {"by": "package"}]),
        ("/function?function=shop.serve", []),
    ],
)
def test_questions_that_differ_in_names_alone_have_each_its_answer(
    site: Visitor, path: str, others: list[dict[str, str]]
) -> None:
    page, _, query = path.partition("?")
    own = {name: values[0] for name, values in parse_qs(query).items()}
    questions = [{}, *({name: "json"} for name in ("focus", "ignore", "hide")), *others]

    def answers() -> list[tuple[dict[str, str], list[list[str]]]]:
        pages = [site.page(f"/ui/services/named{page}", 200, **own, **each) for each in questions]
        return [(titles(shown), rows(shown)) for shown in pages]

    made, kept = answers(), answers()
    assert made == kept
    assert all(made.count(each) == 1 for each in made)


@pytest.mark.usefixtures("site")
def test_flame_graphs_on_v1_that_differ_in_how_stacks_are_read_have_each_its_answer(shared: Server) -> None:
    questions: list[dict[str, str]] = [
        {}, {"recursion": "collapse"}, {"by": "package"}, {"focus": "json"}, {"ignore": "json"},
        {"hide": "json"}, {"sample_type": "samples"}, {"limit": "3"},
    ]  # fmt: skip
    made, kept = ([asked(shared, "/v1/flame", **query) for query in questions] for _ in range(2))
    assert made == kept
    assert all(made.count(each) == 1 for each in made)
    assert all(len(each["sample_types"]) == 2 for each in made)


@pytest.mark.usefixtures("site")
def test_patterns_and_sample_types_go_together(shared: Server) -> None:
    for path in ("/v1/top", "/v1/flame", "/v1/function"):
        query = {"function": "json.Marshal"} if path == "/v1/function" else {}
        found = asked(shared, path, focus="json", sample_type="samples", **query)
        assert (found["sample_type"], found["total"], found["whole"]) == (
            {"type": "samples", "unit": "count"}, 30, 100,
        )  # fmt: skip


def test_the_saved_merge_has_what_the_patterns_keep(site: Visitor) -> None:
    saved = site.get("/ui/services/named/merge", None, labels="version=1", focus="json", format="pprof")
    assert sum(decode(saved.content).samples.values[:, 0].tolist()) == 30


def test_a_series_takes_no_patterns(site: Visitor, shared: Server) -> None:
    answer = shared.ask("/v1/series", service="named", function="shop.serve", focus="json")
    assert answer.status_code == 400
    page = site.page(
        "/ui/services/named/series", 200, function="json.Marshal", labels="version=1", focus="gc"
    )
    assert any("30.0 %" in cell for row in rows(page) for cell in row) or "30.0 %" in page.text
    assert not any("focus=" in link for link in page.links())


def test_tables_link_lines_to_their_function(site: Visitor) -> None:
    page = site.page("/ui/services/named/top", by="line", labels="version=1")
    assert rows(page)[1][-1] == "runtime.gc :2"
    assert any("function=runtime.gc" in link and ":2" not in link for link in page.links())
