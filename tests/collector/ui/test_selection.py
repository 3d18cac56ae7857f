"""The selection bar of a service's pages: labels to choose, the same on /v1, the timeline, sample types."""

from __future__ import annotations

import shlex
import time
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest
from pgo_collector.model.profile_types import TYPES
from pgo_collector.ui.selection_bar import MEANINGS
from pprof_proto.profile_pb2 import Profile, ValueType

from tests.collector.hostile_names import HOSTILE, label_of, submit_hostile
from tests.collector.ui.test_pages import assert_ours, titles
from tests.collector.visitor import Page, Visitor
from tests.constants import LABEL_VALUES, SELECTION_CHARACTERS, TIMELINE_STEPS
from tests.faults.stacks import profile_of
from tests.merge.stacked import HEAP, heap_of, stacked
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

SECOND = 10**9
HOUR = 3600 * SECOND
NOW = time.time_ns() // (24 * HOUR) * 24 * HOUR
SHOP = "/ui/services/shop"


@pytest.fixture(scope="module")
def site(shared: Server) -> Visitor:
    """Store an hourly profile of a service for two days: three versions, two regions, one profile without."""
    for hour in range(48):
        labels = f"version=1.{hour // 16},region={'eu' if hour % 4 else 'us'}"
        profile = stacked({"main.main;work": 10 + hour}, time_nanos=NOW - (48 - hour) * HOUR)
        query = {"service": "shop", "labels": labels if hour != 47 else "version=1.2"}
        assert shared.submit(profile, query=query).status_code == 204
    return Visitor(shared)


def values(page: Page) -> dict[str, str]:
    """Return what the chooser says of each value; a checked one begins with a star."""
    boxes = page.all("input", type="checkbox")
    lines = [
        " ".join(tag.text.split())
        for tag in page.all("label")
        if tag.text.strip() and "for" not in tag.attributes
    ]
    return {
        box.attributes["value"]: ("*" if "checked" in box.attributes else "") + line
        for box, line in zip(boxes, lines, strict=True)
    }


def conditions(page: Page) -> list[str]:
    """Return the conditions that a page lists, with the words of their links."""
    items = (" ".join(tag.text.split()) for tag in page.all("li"))
    return [text for text in items if text.endswith("remove")]


def choose(site: Visitor, chosen: str, **form: str) -> Page:
    """Send the chooser's form with values, and follow the redirection."""
    query = urlencode([*form.items(), *(("value", f"={value}") for value in chosen.split("|") if chosen)])
    answer = site.get(f"{SHOP}/choose?{query}")
    assert answer.status_code == 303, answer.text
    return site.page(answer.headers["Location"])


def test_a_chooser_lists_values_with_their_profiles(site: Visitor) -> None:
    page = site.page(SHOP, choose="version")
    assert values(page) == {"=1.0": "1.0 16", "=1.1": "1.1 16", "=1.2": "1.2 16"}
    (keys,) = page.all("select", id="choose")
    assert keys.text.split() == ["region", "(2)", "version", "(3)"]
    regions = values(site.page(f"{SHOP}/top", choose="region", labels="version=1.2"))
    assert regions == {"=eu": "eu 11", "=us": "us 4", "=": "unset 1"}
    chosen = values(site.page(SHOP, choose="version", labels="version=1.0|9,region=us"))
    assert chosen == {"=1.0": "*1.0 4", "=9": "*9", "=1.1": "1.1 4", "=1.2": "1.2 4"}


def test_a_value_is_found_by_part_of_it(site: Visitor) -> None:
    page = site.page(SHOP, choose="region", find="U")
    assert {*values(page)} == {"=eu", "=us"}
    assert {*values(site.page(SHOP, choose="region", find="us"))} == {"=us"}
    assert "No value matches" in site.page(SHOP, choose="region", find="%").text


@pytest.mark.parametrize("path", ["", "/live", "/top", "/diff", "/function", "/series", "/build"])
def test_several_values_are_selected_on_every_page(site: Visitor, path: str) -> None:
    form = {"page": path[1:], "key": "version", "is": "one-of", "last": "30d"}
    page = choose(site, "1.0|1.2", **form, labels="region=eu,version=7")
    assert page.answer.url.path == f"{SHOP}{path}"
    assert dict(page.answer.url.params) == {"last": "30d", "labels": "region=eu,version=1.0|1.2"}
    assert conditions(page) == ["region is eu exclude remove", "version is 1.0 or 1.2 exclude remove"]
    assert ("Profiles 1 of 23 selected" if path == "/live" else "Profiles 23") in page.text


def test_values_are_excluded_and_unset_ones_are_selected(site: Visitor) -> None:
    page = choose(site, "1.0", key="version", **{"is": "none-of"})
    assert conditions(page) == ["version is not 1.0 select remove"]
    assert "Profiles 32" in page.text
    # An empty value stands for profiles without the label.
    unset = {"key": "region", "value": "="}
    assert "Profiles 1 " in choose(site, "", **unset, **{"is": "one-of"}).text
    assert "Profiles 47" in choose(site, "", **unset, **{"is": "none-of"}).text
    assert "Profiles 48" in choose(site, "", key="region", labels="region=eu").text
    opposite = next(link for link in page.links() if "labels=version%3D1.0" in link)
    assert "Profiles 16" in site.page(opposite).text


@pytest.mark.parametrize(
    "query",
    [
        {"key": "version", "page": "//elsewhere.example"},
        {"key": "version", "page": "merge"},
        {"value": "=1"},
        {"key": "k" * 256},
        {"key": "version", "labels": "version"},
        {"key": "version", "type": "none"},
    ],
)
def test_a_form_that_no_page_has_is_refused(site: Visitor, query: dict[str, str]) -> None:
    assert site.get(f"{SHOP}/choose", None, **query).status_code == 400


def test_a_chooser_lists_as_many_values_as_the_setting_says(stopped: Server) -> None:
    stopped.environment |= {LABEL_VALUES: "3", TIMELINE_STEPS: "5"}
    stopped.start()
    for number in range(7):
        query = {"service": "shop", "labels": f"version=v{number}"}
        profile = stacked({"main.main": 5}, time_nanos=NOW - number * HOUR)
        assert stopped.submit(profile, query=query).status_code == 204
    page = Visitor(stopped).page(SHOP, choose="version", labels="version=v0|v6")
    assert [*values(page)] == ["=v0", "=v6", "=v1", "=v2"]
    assert "4 of 7 values" in page.text
    (plot,) = page.all("svg", data_count="4")
    assert len(page.all("rect", class_="bin")) == 2
    assert plot.attributes["data-seconds"] == "7200"


@pytest.mark.parametrize(
    ("path", "routes"),
    [
        ("", ["flame", "merge"]), ("?by=package&search=WORK&layout=flame", ["flame", "merge"]),
        ("/series", []), ("/series?package=main&step=hour", ["series"]),
        ("/top?by=package&sort=cum", ["top"]), ("/function?function=work", ["function"]),
        ("/diff?base_labels=version%3D1.0", ["diff", "flame"]),
        ("/top?sample_type=samples", ["top"]), ("/diff", []), ("/function", []),
    ],
)  # fmt: skip
def test_the_commands_ask_the_api_the_same(
    site: Visitor, shared: Server, path: str, routes: list[str]
) -> None:
    labels = quote("version=1.1|1.2,region!=us", safe="")
    joint = "&" if "?" in path else "?"
    page = site.page(f"{SHOP}{path}{joint}labels={labels}")
    urls = [shlex.split(command.text.replace("\\\n", ""))[-1] for command in page.all("pre")]
    assert [urlsplit(url).path for url in urls] == [f"/v1/{route}" for route in routes]
    for url in urls:
        assert parse_qs(urlsplit(url).query)["labels"] == ["version=1.1|1.2,region!=us"]
        answer = shared.client.get(url, headers=bearer(shared.merge_key))
        assert answer.status_code == 200, answer.text
        if "/v1/flame" in url:
            names = {call["name"] or "all" for call in answer.json()["calls"]}
            assert names == {tag.text.partition("\n")[0] for tag in page.all("svg", height="21")}
            assert (answer.json()["found"] is not None) == ("search" in path)


@pytest.mark.usefixtures("site")
def test_a_flame_graph_on_v1_says_what_a_search_finds(shared: Server) -> None:
    def asked(**query: str) -> dict[str, Any]:
        answer = shared.ask("/v1/flame", service="shop", **query)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    plain, found = asked(), asked(search="WORK")
    assert plain["found"] is None
    assert found["found"] == {"names": 1, "value": plain["total"], "share": 1.0, "base_value": None}
    assert [call["name"] for call in found["calls"] if call["is_match"]] == ["work"]
    assert asked(search="nothing")["found"] == {"names": 0, "value": 0, "share": 0.0, "base_value": None}
    both = asked(search="work", labels="region=eu", base_labels="region=us")
    assert both["found"]["base_value"] == both["base_total"]
    assert both["found"]["share"] == 1
    assert shared.ask("/v1/flame", service="shop", search="x" * 201).status_code == 400


def test_the_length_of_a_selection_is_a_setting(stopped: Server) -> None:
    stopped.environment |= {SELECTION_CHARACTERS: "1500", "PGOF_PATTERN_SECONDS": "1e-9"}
    stopped.start()
    assert stopped.submit(stacked({"main.main": 5}), query={"service": "shop"}).status_code == 204
    visitor = Visitor(stopped)
    assert visitor.page(SHOP, labels=f"version!={'v' * 1400}")
    for path in ("", "/top", "/live", "/flame.svg"):
        refused = visitor.get(f"{SHOP}{path}", None, labels=f"version!={'v' * 1500}")
        assert (refused.status_code, "over 1,500 characters" in refused.text) == (400, True)
    for path in ("/v1/top", "/v1/flame", "/v1/merge"):
        slow = stopped.ask(path, service="shop", focus="main")
        assert (slow.status_code, "PGOF_PATTERN_SECONDS" in slow.text) == (400, True)


def test_the_timeline_adds_up(site: Visitor) -> None:
    page = site.page(SHOP)
    steps = [tag.text for tag in page.all("title") if " profile" in tag.text]
    assert len(steps) == 48
    assert steps[0].endswith("100 ms of cpu, 1 profile")
    (plot,) = page.all("svg", data_seconds="1800")
    assert plot.attributes["data-count"] == "95"
    assert "3 versions begin in this time" in page.text
    samples = site.page(SHOP, sample_type="samples")
    assert any(tag.text.endswith(": 57 of samples, 1 profile") for tag in samples.all("title"))
    cut = site.page(SHOP, from_=written(NOW - 20 * HOUR), to=written(NOW - 10 * HOUR))
    assert "1 version begins in this time" in cut.text  # 1.1 began before
    assert len([tag for tag in cut.all("title") if " profile" in tag.text]) == 10


def written(nanos: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(nanos // SECOND))


def test_other_times_are_links(site: Visitor) -> None:
    page = site.page(SHOP, from_=written(NOW - 20 * HOUR), to=written(NOW - 10 * HOUR), labels="region=eu")
    (presets,) = (tag for tag in page.all("nav") if tag.attributes.get("aria-label") == "Other times")
    links = {tag.text: tag.attributes["href"] for tag in page.all("a") if tag.text in presets.text}
    wider = parse_qs(urlsplit(links["wider"]).query)
    assert (wider["from"], wider["to"]) == ([written(NOW - 25 * HOUR) + "Z"], [written(NOW - 5 * HOUR) + "Z"])
    assert parse_qs(urlsplit(links["← earlier"]).query)["to"] == [written(NOW - 20 * HOUR) + "Z"]
    assert parse_qs(urlsplit(links["week"]).query) == {"last": ["7d"], "labels": ["region=eu"]}
    assert parse_qs(urlsplit(links["all"]).query) == {"labels": ["region=eu"]}
    for link in links.values():
        assert site.get(link).status_code in {200, 404}


def test_a_release_is_marked(server: Server) -> None:
    profile = stacked({"main.main": 50}, time_nanos=time.time_ns() - HOUR)
    assert server.submit(profile, query={"service": "default"}).status_code == 204
    server.release().raise_for_status()
    page = Visitor(server).page("/ui/services/default", last="1d")
    assert "1 release in this time" in page.text
    assert "release 1" in page.text


@pytest.mark.parametrize(
    "times",
    [
        (1, (1 << 63) - 1),
        (-(1 << 62), 1 << 62),
        pytest.param(((1 << 63) - 1,), marks=pytest.mark.exhaustive),
    ],
    ids=str,
)
def test_a_timeline_of_any_times_is_drawn(shared: Server, times: tuple[int, ...]) -> None:
    service = f"ages-{len(times)}-{times[0] > 0}"
    for time_nanos in times:
        answer = shared.submit(stacked({"main.main": 5}, time_nanos=time_nanos), query={"service": service})
        assert answer.status_code == 204, answer.text
    visitor = Visitor(shared)
    for query in ({}, {"from": "1678-01-01"}, {"to": "2261-12-31"}, {"last": "999999w"}):
        page = Page(visitor.get(f"/ui/services/{service}", None, **query))
        assert page.answer.status_code in {200, 404}, page.answer.text
        for link in page.links():
            assert visitor.get(link).status_code in {200, 400, 404} if "from=" in link else True
    assert not shared.events("unexpected error")


@pytest.fixture(scope="module")
def memory(shared: Server) -> Visitor:
    stacks = {"main.main;grow": [10, 10 << 20, 1, 1 << 10], "main.main;keep": [2, 2 << 10, 2, 2 << 10]}
    profile = heap_of(stacks, time_nanos=NOW - HOUR)
    assert shared.submit(profile, query={"service": "memory", "type": "heap"}).status_code == 204
    return Visitor(shared)


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("", {}, "100.0 %: 3.00 KiB cumulative"),
        ("", {"sample_type": "alloc_space"}, "100.0 %: 10.0 MiB cumulative"),
        ("", {"sample_type": "alloc_objects"}, "100.0 %: 12 cumulative"),
        ("/live", {"sample_type": "alloc_space"}, "100.0 %: 10.0 MiB cumulative"),
        ("/top", {"sample_type": "alloc_space"}, "Total: 10.0 MiB"),
        ("/top", {"sample_type": "inuse_objects"}, "Total: 3 in"),
        ("/function", {"sample_type": "alloc_space", "function": "grow"}, "100.0 % 10.0 MiB"),
        ("/series", {"sample_type": "alloc_space", "function": "grow"}, "Share of alloc_space/bytes"),
    ],
)
def test_a_page_shows_the_chosen_sample_type(
    memory: Visitor, path: str, query: dict[str, str], said: str
) -> None:
    page = memory.page(f"/ui/services/memory{path}", 200, type="heap", **query)
    assert said in page.text + "".join(titles(page).values())
    (switch,) = (tag for tag in page.all("nav") if tag.attributes.get("aria-label") == "Sample type")
    assert switch.text.split() == [word for pair in HEAP for word in pair]
    chosen = [tag for tag in page.all("a", aria_current="true") if "sample_type=" in tag.attributes["href"]]
    assert chosen[0].text.split()[0] == query.get("sample_type", "inuse_space")
    tabs = [link for link in page.links() if urlsplit(link).path.endswith(("/top", "/diff", "/function"))]
    assert all(("sample_type=" in link) == bool(query) for link in tabs if "/top" in link)


def test_wall_time_is_shown_where_a_profile_has_cpu_time_beside_it(shared: Server) -> None:
    """So do profiles of Node."""
    profile = Profile.FromString(stacked({"main;wait": 100}, time_nanos=NOW - HOUR))
    profile.string_table.append(b"wall")
    profile.sample_type.insert(
        1, ValueType(type=len(profile.string_table) - 1, unit=profile.sample_type[1].unit)
    )
    profile.sample[0].value[:] = [1, 5_000_000_000, 1_000_000_000]
    answer = shared.submit(profile.SerializeToString(), query={"service": "node", "type": "wall"})
    assert answer.status_code == 204
    page = Visitor(shared).page("/ui/services/node/top", 200, type="wall")
    assert "Total: 5.00 s" in page.text


def test_a_difference_is_that_of_the_chosen_sample_type(shared: Server) -> None:
    for version, grown in (("1", 1 << 20), ("2", 3 << 20)):
        stacks = {"main.main;grow": [1, grown, 1, 1 << 10], "main.main;keep": [1, 1 << 20, 1, 1 << 10]}
        profile = heap_of(stacks, time_nanos=NOW - HOUR)
        query = {"service": "grown", "type": "heap", "labels": f"version={version}"}
        assert shared.submit(profile, query=query).status_code == 204
    query = {"type": "heap", "labels": "version=2", "base_labels": "version=1"}
    visitor = Visitor(shared)
    same = visitor.page("/ui/services/grown/diff", 200, **query)
    assert titles(same)["grow"].endswith("0.00 points")
    page = visitor.page("/ui/services/grown/diff", 200, **query, sample_type="alloc_space")
    assert titles(page)["grow"].endswith("+25.00 points")
    answer = shared.ask("/v1/diff", service="grown", **query, sample_type="alloc_space").json()
    assert answer["sample_type"] == {"type": "alloc_space", "unit": "bytes"}
    assert answer["rows"][0]["flat_difference"] == 0.25


def test_a_sample_type_that_there_is_not_is_refused_or_replaced(memory: Visitor, shared: Server) -> None:
    page = memory.page("/ui/services/memory", type="heap", sample_type="cpu")
    assert "no sample type cpu : these are the values of inuse_space" in page.text.replace("cpu:", "cpu :")
    for path, query in (
        ("/v1/top", {}), ("/v1/function", {"function": "grow"}), ("/v1/series", {"function": "grow"}),
        ("/v1/flame", {}),
        ("/v1/diff", {"base_from": "2020-01-01"}),
    ):  # fmt: skip
        answer = shared.ask(path, service="memory", type="heap", sample_type="cpu", **query)
        assert answer.status_code == 422
        assert "give one of alloc_objects, alloc_space" in answer.json()["detail"]
        right = shared.ask(path, service="memory", type="heap", sample_type="alloc_space", **query).json()
        assert right["sample_type"] == {"type": "alloc_space", "unit": "bytes"}
        assert [each["type"] for each in right["sample_types"]] == [type_ for type_, _ in HEAP]
    assert memory.get("/ui/services/memory", None, type="heap", sample_type="x" * 201).status_code == 400


def test_every_type_has_a_meaning(shared: Server) -> None:
    assert {*MEANINGS} == {*TYPES}
    assert (
        shared.submit(profile_of("a", type_="wall"), query={"service": "few", "type": "offcpu"}).status_code
        == 204
    )
    page = Visitor(shared).page("/ui/services/few", type="offcpu")
    (chosen,) = (
        tag
        for tag in page.all("option")
        if "selected" in tag.attributes and tag.attributes.get("value") == "offcpu"
    )
    assert chosen.text == "offcpu: waits off the CPU"


HARMED = ("", "/top", "/build")


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name)[:30])
@pytest.mark.parametrize(
    "is_all", [False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["one", "all"]
)
def test_no_value_of_a_label_does_harm(shared: Server, name: str, *, is_all: bool) -> None:
    """Each name on one of the pages, or on all of them."""
    submit_hostile(shared)
    visitor = Visitor(shared)
    key = quote(name[:60].translate(dict.fromkeys(range(32), " ")), safe="")
    query = {"service": "hostile", "labels": f"{key}={key}"}
    assert shared.submit(stacked({"main.main": 1}, time_nanos=NOW), query=query).status_code in {204, 400}
    for path in HARMED if is_all else [HARMED[HOSTILE.index(name) % len(HARMED)]]:
        for asked in (
            {"choose": "version"},
            {"choose": "version", "find": name[:100]},
            {"choose": name[:255]},
            {"choose": "version", "labels": label_of(name)},
            {"sample_type": name[:200]},
            {"labels": label_of(name).replace("version=", f"{key}!=") + ",version="},
        ):
            answer = visitor.get(f"/ui/services/hostile{path}", None, **asked)
            assert answer.status_code in {200, 400, 404}, answer.text
            assert len(answer.content) < 300_000
            assert b"<script>alert" not in answer.content
            assert b"onerror=alert(1)>'" not in answer.content
            assert_ours(Page(answer))
        sent = visitor.get(
            "/ui/services/hostile/choose", None, key=name[:255], value=f"={name[:255]}", page=path[1:]
        )
        assert sent.status_code in {303, 400}
        if sent.status_code == 303:
            assert urlsplit(sent.headers["Location"])[:3] == ("", "", f"/ui/services/hostile{path}")
    assert not shared.events("unexpected error")
