"""The HTML of the pages: their content, their links, and that nothing hostile gets into them."""

from __future__ import annotations

import gzip
import shlex
import time
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
from pgo_collector.ui.amounts import percent
from pgo_collector.ui.headers import PAGES_POLICY
from pprof_merge import FORMATS
from pprof_proto.profile_pb2 import Profile

from tests.collector.hostile_names import HOSTILE, label_of, submit_hostile
from tests.collector.pushing import assert_pushed, one, push, without_start_lines
from tests.collector.visitor import Page, Visitor
from tests.faults.stacks import profile_of
from tests.merge.stacked import stacked
from tests.oracle.oracle import go_root
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

DAY = 86400 * 10**9
NOW = time.time_ns() // DAY * DAY - DAY
POSTGRES = Path(__file__).parents[2] / "testdata" / "postgres"
PATHS = ("", "/top", "/diff", "/function", "/series", "/build")


@pytest.fixture(scope="module")
def site(shared: Server) -> Visitor:
    """Store two versions of a service, from two hosts, over three days."""
    for day, version, stacks in (
        (0, "1.4", {"main.main;net/http.serve;main.old": 60, "main.main;runtime.gc": 40}),
        (1, "1.4", {"main.main;net/http.serve;main.old": 50, "main.main;runtime.gc": 50}),
        (3, "1.5", {"main.main;net/http.serve;main.new": 75, "main.main;runtime.gc": 25}),
    ):
        profile = stacked(stacks, time_nanos=NOW - (3 - day) * DAY)
        query = {"service": "shop", "labels": f"version={version},instance=web-{day % 2}"}
        assert shared.submit(profile, query=query).status_code == 204
    return Visitor(shared)


def rows(page: Page) -> list[list[str]]:
    """Return the texts of a table, row by row."""
    found: list[list[str]] = []
    for tag in page.tags:
        if tag.name == "tr":
            found.append([])
        elif tag.name in {"td", "th"}:
            found[-1].append(" ".join(tag.text.split()))
    return found


def calls(page: Page) -> dict[str, str]:
    """Return the links of the calls in a flame graph, by the first line of their titles."""
    titles = [tag.text for tag in page.all("title")[1:] if "\n" in tag.text]
    links = [tag.attributes["href"] for tag in page.all("a") if "root=" in tag.attributes["href"]]
    return {title.split("\n")[0]: link for title, link in zip(titles, links, strict=True)}


def titles(page: Page) -> dict[str, str]:
    """Return the second line of each call's title, by the first."""
    texts = (tag.text.partition("\n") for tag in page.all("title")[1:] if "\n" in tag.text)
    return {name: said for name, _, said in texts}


def colours(page: Page) -> set[tuple[str, str]]:
    """Return the first characters of the table's differences, with the colours of their cells."""
    cells = [(tag.text.strip(), tag.attributes.get("class", "").split()) for tag in page.all("td")]
    return {
        (text[0], " ".join(classes[1:]))
        for text, classes in cells
        if classes[:1] == ["number"] and "interval" not in classes and not text.endswith("%")
    }


def test_the_services_are_listed_with_what_is_stored_of_them(site: Visitor) -> None:
    (row,) = (row for row in rows(site.page("/ui/")) if row[0] == "shop")
    assert row[3:6] == ["3", "2", "2"]
    assert row[1].endswith("ago")
    (spark,) = (svg for svg in site.page("/ui/").all("svg", role="img") if "3 in two weeks" in str(svg))
    assert spark


def test_the_services_come_in_pages(server: Server) -> None:
    names = {f"service-{number:03}" for number in range(60)}
    for name in names:
        assert server.submit(profile_of("main.work"), query={"service": name}).status_code == 204
    visitor = Visitor(server)
    first = visitor.page("/ui/")
    (following,) = first.all("a", rel="next")
    second = visitor.page(following.attributes["href"])
    listed = [[row[0] for row in rows(page)[1:]] for page in (first, second)]
    assert [len(page) for page in listed] == [50, 10]
    assert listed[0] + listed[1] == sorted(names)
    assert not second.all("a", rel="next")


@pytest.mark.parametrize("path", PATHS)
def test_every_page_says_how_fresh_and_representative_it_is(site: Visitor, path: str) -> None:
    text = site.page(f"/ui/services/shop{path}").text
    for fact in ("Newest", "Oldest", "Profiles 3", "Hosts 2", "Versions 2", "Stacks 6"):
        assert fact in text


def test_a_flame_graph_says_of_each_call_its_total_and_its_own(site: Visitor) -> None:
    said = titles(site.page("/ui/services/shop"))
    assert said == {
        "all": "100.0 %: 3.00 s cumulative, 0 ns flat",
        "main.main": "100.0 %: 3.00 s cumulative, 0 ns flat",
        "net/http.serve": "61.7 %: 1.85 s cumulative, 0 ns flat",
        "main.old": "36.7 %: 1.10 s cumulative, 1.10 s flat",
        "main.new": "25.0 %: 750 ms cumulative, 750 ms flat",
        "runtime.gc": "38.3 %: 1.15 s cumulative, 1.15 s flat",
    }


def test_a_call_leads_to_what_is_below_it_and_back(site: Visitor) -> None:
    page = site.page("/ui/services/shop", last="30d", search="old")
    zoomed = site.page(f"/ui/services/shop{calls(page)['net/http.serve']}")
    assert {*titles(zoomed)} == {"all", "main.main", "net/http.serve", "main.old", "main.new"}
    assert "Zoomed to net/http.serve, 61.7 % of all" in zoomed.text
    (out,) = zoomed.all("a", class_="out")
    assert parse_qs(urlsplit(out.attributes["href"]).query) == {"last": ["30d"], "search": ["old"]}
    assert {*titles(site.page(out.attributes["href"]))} == {*titles(page)}


@pytest.mark.parametrize("page", ["", "/live"])
def test_the_table_beside_a_graph_is_that_of_the_api(site: Visitor, shared: Server, page: str) -> None:
    path = f"/ui/services/shop{page}"
    # The live page shows the newest profile, the only one of its version.
    query = {"service": "shop", "labels": "version=1.5"} if page else {"service": "shop"}
    for sort in ("flat", "cum"):
        answer = shared.ask("/v1/top", **query, sort=sort, n="25").json()
        found = site.page(path, sort=sort)
        assert [row[1:] for row in rows(found)[1:]] == [
            [percent(row["flat_share"]), percent(row["cum_share"]), row["name"].rpartition("/")[2]]
            for row in answer["rows"]
        ]
    (link,) = (tag for tag in found.all("a") if tag.text == "http.serve")
    searched = site.page(link.attributes["href"])
    assert searched.all("input", id="search")[0].attributes["value"] == "net/http.serve"
    assert searched.all("mark")
    assert [tag.text for tag in searched.all("a", aria_current="true", data_swap="") if "http" in tag.text]
    hidden = site.page(next(tag for tag in found.all("a") if tag.text == "Hide the table").attributes["href"])
    assert not rows(hidden)
    shown = next(tag for tag in hidden.all("a") if tag.text == "Show the table")
    assert rows(site.page(shown.attributes["href"])) == rows(found)
    assert site.page(f"{path}?table=below", 400).all("h1")


def test_calls_without_a_package_have_the_colour_of_their_binary(shared: Server) -> None:
    content = (POSTGRES / "simple.pb.gz").read_bytes()
    assert shared.submit(content, query={"service": "postgres"}).status_code == 204
    page = Visitor(shared).page("/ui/services/postgres")
    (legend,) = (tag for tag in page.all("ul", class_="legend") if "postgres" in tag.text)
    assert legend.text.split() == ["postgres", "[kernel.kallsyms]", "libc.so.6", "libm.so.6", "[vdso]"]
    boxes = {svg.text.split("\n")[0]: svg.attributes["class"] for svg in page.all("svg", height="21")}
    named = ("PostgresMain", "[postgres]"), ("do_syscall_64", "do_softirq.part.0"), ("__send", "epoll_wait")
    colours = [{boxes[name] for name in names} for names in named]
    assert [len(each) for each in colours] == [1, 1, 1]
    assert len(set[str]().union(*colours)) == 3


def test_two_groups_of_a_graph_are_compared(shared: Server) -> None:
    """The values have characters with a meaning in conditions, and one profile has no value."""
    for version, work in (("1=a,b", 10), ("2|c%", 30), ("", 20)):
        labels = f"region=eu{',version=' + quote(version, safe='') if version else ''}"
        profile = stacked({"main.main;work": work, "main.main;rest": 50})
        assert shared.submit(profile, query={"service": "groups", "labels": labels}).status_code == 204
    visitor = Visitor(shared)
    page = visitor.page("/ui/services/groups", group="version", labels="region=eu", by="package")
    (form,) = page.all("form", aria_label="Compare two groups")
    assert [tag.text for tag in page.all("option") if tag.attributes["value"].startswith("version=")] == [
        *("2|c%", "unset", "1=a,b"), *("2|c%", "unset", "1=a,b"),
    ]  # fmt: skip
    assert [tag.text for tag in page.all("option", selected="") if "version=" in tag.attributes["value"]] == [
        *("2|c%", "unset"),
    ]  # fmt: skip
    written = {tag.text: tag.attributes["value"] for tag in page.all("option")}
    query = httpx.QueryParams([
        *(("labels", "region=eu"), ("labels", written["1=a,b"]), ("by", "function")),
        *(("base_labels", "region=eu"), ("base_labels", written["unset"])),
    ])  # fmt: skip
    compared = visitor.page(f"{form.attributes['action']}?{query}")
    assert titles(compared)["work"].startswith("16.7 %, in the base 28.6 %")
    # What leads from there to elsewhere keeps both conditions of the base.
    assert (
        f"base_labels={quote('region=eu,version=', safe='')}&"
        in compared.all("a", data_swap="")[0].attributes["href"]
    )
    for fewer in ({"group": "version", "labels": "version=2%7Cc%25"}, {"group": "thread"}, {}):
        assert not visitor.page("/ui/services/groups", 200, **fewer).all(
            "form", aria_label="Compare two groups"
        )


def test_a_search_adds_up_and_marks(site: Visitor) -> None:
    page = site.page("/ui/services/shop", search="MAIN.O")
    (mark,) = page.all("mark")
    assert mark.text == "36.7 %"
    boxes = {svg.text.split("\n")[0]: svg.attributes["class"] for svg in page.all("svg", height="21")}
    assert {name for name, colour in boxes.items() if "hit" in colour.split()} == {"main.old"}


def test_the_selection_is_what_is_drawn(site: Visitor) -> None:
    page = site.page("/ui/services/shop", labels="version=1.5")
    assert "main.old" not in titles(page)
    # Links with a name of their own change the conditions.
    kept = [tag.attributes["href"] for tag in page.all("a") if "aria-label" not in tag.attributes]
    assert all("labels=version%3D1.5" in link for link in kept if "/services/shop" in link)
    later = site.page("/ui/services/shop", from_=time.strftime("%Y-%m-%d", time.gmtime(NOW / 10**9)))
    assert {*titles(later)} == {*titles(page)}
    nothing = site.page("/ui/services/shop", 404, type_="heap")
    assert "choose a type that there are profiles of: cpu: 3" in nothing.text


@pytest.mark.parametrize("sort", ["flat", "cum"])
@pytest.mark.parametrize("by", ["function", "package", "file"])
def test_the_top_is_that_of_the_api(site: Visitor, shared: Server, sort: str, by: str) -> None:
    expected = shared.ask("/v1/top", service="shop", by=by, sort=sort).json()["rows"]
    table = rows(site.page("/ui/services/shop/top", by=by, sort=sort))
    assert [row[-1] for row in table[1:]] == [row["name"] for row in expected]
    (headed,) = (
        tag for tag in site.page("/ui/services/shop/top", sort=sort).tags if "aria-sort" in tag.attributes
    )
    assert headed.text.strip() == {"flat": "Flat", "cum": "Cumulative"}[sort]


def test_the_table_is_sorted_by_its_links(site: Visitor) -> None:
    page = site.page("/ui/services/shop/top", by="package")
    (link,) = (link for link in page.links() if "sort=cum" in link)
    assert [row[-1] for row in rows(site.page(link))[1:]] == ["main", "net/http", "runtime"]


def test_a_function_below_the_rows_of_the_table_is_found(shared: Server, site: Visitor) -> None:
    """A program that waits may have a function in a sample or two; 50 others may have more."""
    stacks = {"main.main;main.allocates": 1} | {f"main.main;main.f{number}": 9 for number in range(60)}
    query = {"service": "rare", "type": "wall"}
    assert shared.submit(stacked(stacks, time_nanos=NOW), query=query).status_code == 204
    page = site.page("/ui/services/rare/top", type_="wall", sort="flat")
    assert "main.allocates" not in {row[-1] for row in rows(page)}
    (form,) = page.all("form", role="search")
    hidden = {tag.attributes["name"]: tag.attributes["value"] for tag in page.all("input", type="hidden")}
    assert hidden["type"] == "wall"
    found = site.page(form.attributes["action"], 404, type_="wall", function="allocates")
    (link,) = (link for link in found.links() if "function=main.allocates" in link)
    assert "main.main" in site.page(link).text
    every = site.page("/ui/services/rare/top", type_="wall", n="100")
    assert "main.allocates" in {row[-1] for row in rows(every)}
    assert not every.all("form", role="search")


def test_a_difference_has_both_sides(site: Visitor) -> None:
    start = site.page("/ui/services/shop/diff")
    suggested = offered(start)["version 1.5 and 1.4 before it"]
    page = site.page(suggested)
    said = titles(page)
    assert said["main.new"] == "75.0 %, in the base 0.00 %: +75.00 points"
    assert said["main.old"] == "0.00 %, in the base 55.0 %: \N{MINUS SIGN}55.00 points"
    table = {row[-1]: row[:6] for row in rows(page)[1:]}
    assert table["main.new"] == ["+75.00", "0.00 %", "75.0 %", "+75.00", "0.00 %", "75.0 %"]
    halves = [link for link in start.links() if "base_to" in link]
    assert len(halves) == 2
    for link in halves:
        assert "Total in the base" in site.page(link).text


def offered(page: Page) -> dict[str, str]:
    """Return the links of the comparisons that a page of a service offers, by their names."""
    links = (tag for tag in page.all("a") if "base_" in tag.attributes["href"])
    return {tag.text.strip(): tag.attributes["href"] for tag in links}


@pytest.mark.parametrize("path", PATHS)
def test_every_page_offers_comparisons_that_there_are_profiles_for(site: Visitor, path: str) -> None:
    links = offered(site.page(f"/ui/services/shop{path}"))
    assert {*links} == {
        "version 1.5 and 1.4 before it",
        "the last day and all before it",
        "the later and the earlier half",
        "host web-0 and the rest",
        "host web-1 and the rest",
    }
    for link in links.values():
        assert "Total in the base" in site.page(link).text
    chosen = offered(site.page(f"/ui/services/shop{path}", labels="version=1.4"))
    assert {*chosen} == {
        "the later and the earlier half",
        "host web-0 and the rest",
        "host web-1 and the rest",
    }
    rest = parse_qs(urlsplit(chosen["host web-1 and the rest"]).query)
    assert rest == {
        "labels": ["version=1.4,instance=web-1"],
        "base_labels": ["version=1.4,instance!=web-1"],
    }


def test_a_week_and_a_release_are_compared_with_the_time_before(server: Server) -> None:
    now = time.time_ns()
    for days in (9, 8, 2, 1):
        profile = stacked({"main.main;work": 10 * days, "main.main;rest": 40}, time_nanos=now - days * DAY)
        assert server.submit(profile, query={"service": "default"}).status_code == 204
    visitor = Visitor(server)
    assert "after and before the current release" not in offered(visitor.page("/ui/services/default"))
    server.release().raise_for_status()
    later = stacked({"main.main;work": 10, "main.main;rest": 45}, time_nanos=time.time_ns() + 10 * 10**9)
    assert server.submit(later, query={"service": "default"}).status_code == 204
    links = offered(visitor.page("/ui/services/default"))
    weeks = visitor.page(links["this week and the one before"])
    assert "Base: profiles 2" in weeks.text
    released = visitor.page(links["after and before the current release"])
    assert "Base: profiles 4" in released.text


def test_a_difference_within_the_noise_is_called_noise(server: Server) -> None:
    for version, work in (("1", 5), ("2", 6), ("3", 60)):
        profile = stacked({"main.main;work": work, "main.main;rest": 100 - work})
        query = {"service": "shop", "labels": f"version={version}"}
        assert server.submit(profile, query=query).status_code == 204
    visitor = Visitor(server)
    little = visitor.page("/ui/services/shop/diff", labels="version=2", base_labels="version=1")
    much = visitor.page("/ui/services/shop/diff", labels="version=3", base_labels="version=1")
    assert all(row[6].startswith("noise") for row in rows(little)[1:])
    assert [row[6].startswith("noise") for row in rows(much)[1:]] == [False, False, True]
    assert "of 100 and 100 samples" in much.text


def test_only_a_change_that_can_be_read_has_a_colour(site: Visitor, shared: Server) -> None:
    for version, grown in (("1", 100_000), ("2", 100_001)):
        stacks = {"main.main;main.same": grown, "main.main;main.other": 100_000}
        query = {"service": "still", "labels": f"version={version}"}
        assert shared.submit(stacked(stacks, time_nanos=NOW), query=query).status_code == 204
    differing = site.page("/ui/services/shop/diff", labels="version=1.5", base_labels="version=1.4")
    assert colours(differing) == {("+", "up"), ("\N{MINUS SIGN}", "down"), ("0", "")}
    still = site.page("/ui/services/still/diff", labels="version=2", base_labels="version=1")
    assert colours(still) == {("0", "")}


def test_a_difference_says_what_is_wrong_with_its_base(site: Visitor) -> None:
    same = site.page("/ui/services/shop/diff", 400, base_service="shop")
    assert "the selection itself" in same.all("p", role="alert")[0].text
    none = site.page("/ui/services/shop/diff", 404, base_labels="version=0.1")
    assert "No stored profile" in none.all("p", role="alert")[0].text


def test_a_share_over_time_is_that_of_the_api(site: Visitor, shared: Server) -> None:
    start = site.page("/ui/services/shop/series")
    (link,) = (link for link in start.links() if "function=main.old" in link)
    page = site.page(link, 200)
    points = shared.ask("/v1/series", service="shop", function="main.old", step="day").json()["points"]
    told = [point for point in points if point["total"]]
    assert [row[0] for row in rows(page)[1:]] == [point["time"] for point in told]
    assert [row[1] for row in rows(page)[1:]] == ["60.0 %", "50.0 %", "0.00 %"]
    assert len(page.all("rect", class_="step")) == len(told) == 3
    assert "by the hour" not in site.page("/ui/services/shop/series", package="runtime", step="hour").text


def test_a_function_is_between_its_callers_and_callees(site: Visitor, shared: Server) -> None:
    (link,) = (link for link in site.page("/ui/services/shop/top").links() if "function=net" in link)
    page = site.page(link)
    assert "Cumulative 61.7 %" in page.text
    table = rows(page)
    assert [row[-1] for row in table] == [
        *("Function", "main.main", "Function", "main.old", "main.new"),
        *("Line", "unknown"),
    ]
    callee = next(link for link in page.links() if "/function?function=main.old" in link)
    of_callee = site.page(callee)
    assert "It calls no other function." in of_callee.text
    first = site.page("/ui/services/shop/function", function="main.main")
    assert "No function calls it" in first.text
    answer = shared.ask("/v1/function", service="shop", function="net/http.serve").json()
    assert [call["name"] for call in answer["callees"]] == ["main.old", "main.new"]


def test_a_function_is_drawn_between_the_trees_of_its_callers_and_callees(shared: Server) -> None:
    stacks = {
        "main.main;a.one;f.work;b.leaf": 40, "main.main;a.two;f.work": 10,
        "main.main;a.one;f.work;f.work;b.leaf;c.deep": 30, "main.other": 20,
    }  # fmt: skip
    assert shared.submit(stacked(stacks), query={"service": "around"}).status_code == 204
    page = Visitor(shared).page("/ui/services/around/function", function="f.work")
    boxes = page.all("svg", height="21")
    drawn = {
        (box.text.partition("\n")[0], int(box.attributes["y"]) // 22, float(box.attributes["width"][:-1]))
        for box in boxes
    }
    assert drawn == {
        ("main.main", 0, 87.5), ("main.main", 0, 12.5), ("a.one", 1, 87.5), ("a.two", 1, 12.5),
        ("f.work", 2, 100),
        ("b.leaf", 3, 50), ("f.work", 3, 37.5), ("b.leaf", 4, 37.5), ("c.deep", 5, 37.5),
    }  # fmt: skip
    assert titles(page)["a.two"] == "10.0 %: 100 ms"
    assert titles(page)["f.work"] == "30.0 %: 300 ms"  # the call in itself comes after the function


def test_long_names_around_a_function_are_no_larger_page(shared: Server) -> None:
    stacks = {
        ";".join(("main.main", f"{'<' * 400}{at}", "work", f"{'&' * 400}{at}", f"leaf{at}")): 5
        for at in range(300)
    }
    assert shared.submit(stacked(stacks), query={"service": "wordy"}).status_code == 204
    page = Visitor(shared).page("/ui/services/wordy/function", function="work")
    assert 20 < len(page.all("svg", height="21")) < 200
    assert len(page.answer.content) < 300_000
    assert_ours(page)


def test_a_name_that_no_function_has_gets_those_like_it(site: Visitor) -> None:
    page = site.page("/ui/services/shop/function", 404, function="SERVE")
    assert "No function in the selection is named SERVE" in page.text
    (link,) = (link for link in page.links() if "/function?function=net" in link)
    assert "Callers" in site.page(link).text
    start = site.page("/ui/services/shop/function")
    assert [link for link in start.links() if "function=main.old" in link]


def test_what_a_build_takes(site: Visitor, shared: Server) -> None:
    page = site.page("/ui/services/shop/build")
    assert "Go's compiler uses it" in page.text
    release, merge = (shlex.split(code.text.replace("\\\n", "")) for code in page.all("pre"))
    assert urlsplit(release[-1]).path == "/v1/release"
    url = urlsplit(merge[-1])
    assert (f"{url.scheme}://{url.netloc}", url.path) == (shared.base_url, "/v1/merge")
    assert parse_qs(url.query) == {"service": ["shop"], "format": ["go"]}
    of_type = site.page("/ui/services/shop/build", type="cpu")
    for command in (*page.all("pre"), *of_type.all("pre")):
        written = shlex.split(command.text.replace("\\\n", ""))[-1]
        assert shared.client.get(written, headers=bearer(shared.merge_key)).status_code == 200, written
    links = [link for link in page.links() if "/merge?" in link]
    forms = {parse_qs(urlsplit(link).query)["format"][0]: site.get(link) for link in links}
    assert {*FORMATS} == {*forms}
    assert forms["pprof"].content == shared.merge(query={"service": "shop"}).content
    assert forms["folded"].headers["Content-Disposition"] == 'attachment; filename="shop.folded"'
    etag = forms["pprof"].headers["ETag"]
    assert site.get(links[0], {"If-None-Match": etag}).status_code == 304


def test_what_is_kept_apart_from_a_merge_for_builds_is_on_the_page(site: Visitor, shared: Server) -> None:
    assert "Not in the merge" not in site.page("/ui/services/shop/build").text
    apart = without_start_lines(gzip.compress(stacked({"main;ebpf": 1}, time_nanos=NOW)))
    assert_pushed(push(shared, one(apart, "both", region="eu")))
    empty = site.page("/ui/services/both/build", 404)
    assert "process_cpu are kept out of merges for builds" in empty.text
    assert "no start lines" in empty.text
    assert (
        shared.submit(stacked({"main;go": 1}, time_nanos=NOW), query={"service": "both"}).status_code == 204
    )
    page = site.page("/ui/services/both/build")
    (note,) = (tag for tag in page.all("p") if "Not in the merge" in tag.text)
    assert "1 profile of the type process_cpu" in note.text
    assert "no start lines" in note.text
    (link,) = (link for link in page.links() if "type=process_cpu" in link)
    assert "ebpf" in site.page(link).text
    assert "Not in the merge" not in site.page("/ui/services/both/build", labels="region!=eu").text


def test_the_command_says_https_behind_a_proxy(site: Visitor) -> None:
    headers = {"X-Forwarded-Proto": "https", "Host": "pgo.example'$(id)"}
    page = Page(site.get("/ui/services/shop/build", headers))
    (_, command) = page.all("pre")
    assert shlex.split(command.text.replace("\\\n", ""))[-1].startswith(
        "https://pgo.example%27%24%28id%29/v1/merge?"
    )


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ui/services/shop?root=nothing", 400),
        ("/ui/services/shop?last=soon", 400),
        ("/ui/services/shop?labels=" + "a%3Db," * 400, 400),
        ("/ui/services/shop/top?n=0", 400),
        ("/ui/services/shop/series?function=a&package=b", 400),
        ("/ui/services/shop/function?function=" + "a" * 10_001, 400),
        ("/ui/services/shop/function?function=a&n=0", 400),
        ("/ui/services/shop/function?function=missing", 404),
        ("/ui/services/shop/merge?format=none", 400),
        ("/ui/services/a%20b", 400),
        ("/ui/services/missing", 404),
        ("/ui/elsewhere", 404),
        ("/ui/services/shop/", 404),
        ("/ui/static/missing.css", 404),
    ],
)
def test_what_is_wrong_is_said_on_a_page(site: Visitor, path: str, status: int) -> None:
    assert site.page(path, status).all("h1")


@pytest.mark.parametrize(
    "path", ["/ui/", *(f"/ui/services/shop{path}" for path in PATHS), "/ui/no", "/ui/sign-in"]
)
def test_no_page_has_a_script_or_style_in_it(site: Visitor, path: str) -> None:
    page = Page(site.get(path))
    headers = page.answer.headers
    assert headers["Content-Security-Policy"] == PAGES_POLICY
    assert "'unsafe" not in PAGES_POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "private, no-store"
    assert_ours(page)


def assert_ours(page: Page) -> None:
    """Check that scripts are ours, nothing comes from elsewhere, and no tag has a style or an event."""
    for tag in page.tags:
        if tag.name == "script":
            assert tag.attributes["src"].startswith("/ui/static/")
            assert not tag.text
        assert tag.name not in {"style", "img", "iframe", "object", "base"}
        assert not [name for name in tag.attributes if name == "style" or name.startswith("on")]
        for name in ("href", "src", "action"):
            target = tag.attributes.get(name, "")
            assert not target or target.startswith(("/ui/", "?", "#")), target


def test_the_files_are_kept_by_browsers(site: Visitor) -> None:
    page = site.page("/ui/")
    files = [
        tag.attributes.get("href", tag.attributes.get("src", ""))
        for tag in page.all("link") + page.all("script")
    ]
    for path in files:
        answer = site.get(path)
        assert answer.status_code == 200
        assert site.get(path, {"If-None-Match": answer.headers["ETag"]}).status_code == 304
    assert len(files) == 3


@pytest.fixture(scope="module")
def hostile(shared: Server) -> Visitor:
    submit_hostile(shared)
    return Visitor(shared)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name)[:30])
@pytest.mark.parametrize(
    "is_all", [False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["some", "all"]
)
def test_no_name_does_harm(hostile: Visitor, shared: Server, name: str, *, is_all: bool) -> None:
    """Each name on some pages, so that each page has several names; or on all of them."""
    label = label_of(name)
    pages: list[tuple[str, dict[str, str]]] = [
        ("", {"search": name[:4000]}),
        ("", {"labels": label}),
        ("/top", {}),
        ("/series", {"function": name[:4000]}),
        ("/function", {"function": name[:4000].replace(";", ":")}),
        ("/diff", {"base_labels": label}),
        ("/build", {}),
    ]
    for path, query in pages if is_all else pages[HOSTILE.index(name) % 3 :: 3]:
        answer = hostile.get(f"/ui/services/hostile{path}", None, **query)
        assert answer.status_code in {200, 404}
        assert len(answer.content) < 300_000
        assert b"<script>alert" not in answer.content
        assert "Set-Cookie" not in answer.headers
        assert_ours(Page(answer))
    assert_ours(Page(hostile.get(f"/ui/services/{quote(name[:4000], safe='')}")))
    assert not shared.events("not JSON")
    assert not shared.events("unexpected error")


def test_a_graph_of_names_is_a_tree_of_them(hostile: Visitor) -> None:
    shown = titles(hostile.page("/ui/services/hostile"))
    assert HOSTILE[0] in shown
    assert max(map(len, shown)) < 200


def test_a_large_profile_is_a_small_page(shared: Server) -> None:
    """Uses the profile of Go's compiler, of 17,000 samples."""
    profile = (go_root() / "src/cmd/compile/default.pgo").read_bytes()
    assert shared.submit(profile, query={"service": "compiler"}).status_code == 204
    visitor = Visitor(shared)
    page = visitor.page("/ui/services/compiler")
    assert len(page.answer.content) < 300_000
    drawn = calls(page)
    assert len(drawn) > 300
    zoomed = visitor.page(f"/ui/services/compiler{[*drawn.values()][-1]}")
    assert len(zoomed.answer.content) < 300_000
    assert "Zoomed to" in zoomed.text


def test_no_duration_keeps_a_service_from_being_shown(server: Server) -> None:
    for time_nanos in (1, 2):
        profile = Profile.FromString(stacked({"main.main": 5}, time_nanos=time_nanos))
        profile.duration_nanos = (1 << 63) - 1
        assert server.submit(profile.SerializeToString(), query={"service": "shop"}).status_code == 204
    visitor = Visitor(server)
    for path in PATHS:
        visitor.page(f"/ui/services/shop{path}")


def test_a_combined_profile_tells_of_more_than_is_selected(server: Server) -> None:
    for day in (2, 1):
        profile = stacked({"main.main;main.run": 5}, time_nanos=NOW - day * DAY)
        query = {"service": "shop", "labels": f"version={day},instance=web"}
        assert server.submit(profile, query=query).status_code == 204
    combined = {"service": "shop", "labels": "version=1"}
    server.submit(
        stacked({"main.main": 5}, time_nanos=NOW - 3 * DAY),
        query=combined | {"labels": "version=1,instance=web"},
    )
    assert server.combine(query=combined).status_code == 200
    visitor = Visitor(server)
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime((NOW - 2 * DAY) // 10**9))
    for path in ("", "/top"):
        assert (
            "1 of the profiles is a combined one"
            in visitor.page(f"/ui/services/shop{path}", from_=since).text
        )
        assert "combined one" not in visitor.page(f"/ui/services/shop{path}").text
    text = visitor.page("/ui/services/shop/build").text
    assert "Versions 2" in text
    assert "Hosts 1" in text
