"""The flame graph in a real browser, by mouse and keyboard, and its newest profile."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from pgo_collector.ui.rendering import has_speedscope
from playwright.sync_api import Browser, expect

from tests.browser.chromium import CALLS, Person, query
from tests.browser.site import PAGES, SERVICE
from tests.collector.ui.test_live import collector, target
from tests.faults.stacks import profile_of
from tests.merge.stacked import stacked
from tests.server import Server

pytestmark = pytest.mark.system

_LINKS = "calls => calls.map(call => call.getAttribute('href'))"


@pytest.mark.parametrize(("width", "height", "highest"), [(1400, 900, 330), (390, 844, 500)])
def test_the_graph_comes_first(person: Person, width: int, height: int, highest: int) -> None:
    """For eyes, and for the keyboard: the first link skips to it."""
    page = person.page
    page.set_viewport_size({"width": width, "height": height})
    for name in ("memory", "grouped", "search", "some latencies", "diff", "live", "flame"):
        page.goto(PAGES[name])
        box = page.locator(".flame > svg").bounding_box()
        assert box is not None
        assert box["y"] < highest, (name, box["y"])
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#graph")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator(f"{CALLS}:focus")).to_have_attribute("aria-label", re.compile("^all\n"))
    page.locator(".selected > summary").click()
    expect(page.locator("#type")).to_be_visible()
    page.get_by_role("link", name="Package", exact=True).click()
    expect(page.get_by_role("link", name="Package", exact=True)).to_have_attribute("aria-current", "true")
    expect(page.locator("#type")).to_be_visible()  # what was open stays so


def test_on_a_wide_window_the_table_is_beside_the_graph(person: Person) -> None:
    """A click on a name, or Enter, marks its calls as a search does. A narrow window has the graph alone."""
    page = person.page
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto(SERVICE)
    table = page.get_by_role("region", name="Largest values")
    graph, beside = page.locator(".flame > svg").bounding_box(), table.bounding_box()
    assert graph is not None
    assert beside is not None
    assert beside["x"] >= graph["x"] + graph["width"]
    assert abs(beside["y"] - graph["y"]) < 10
    name = table.locator("tbody a").nth(1)
    name.click()
    page.wait_for_url("**search=**")
    expect(name).to_be_focused()
    expect(name).to_have_attribute("aria-current", "true")
    expect(page.get_by_role("searchbox", name="Search")).to_have_value("regexp.(*machine).add")
    expect(page.locator(".flame .hit").first).to_be_attached()
    table.locator("tbody a").nth(2).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("searchbox", name="Search")).to_have_value(
        "internal/runtime/syscall/linux.Syscall6"
    )
    table.get_by_role("link", name="Cumulative").click()
    expect(table.locator("th[aria-sort]")).to_have_text("Cumulative")
    table.get_by_role("link", name="Hide the table").click()
    expect(table).to_have_count(0)
    page.get_by_role("link", name="Show the table").click()
    expect(table).to_be_visible()
    page.set_viewport_size({"width": 1190, "height": 900})
    expect(table).to_be_hidden()
    alone = page.locator(".flame > svg").bounding_box()
    assert alone is not None
    assert alone["width"] > 1100


def test_a_zoom_shows_what_was_too_small(person: Person) -> None:
    page = person.page
    page.goto("/ui/services/compiler")
    before = {*page.locator(CALLS).evaluate_all(_LINKS)}
    page.locator(CALLS).nth(1).click()
    expect(page.locator(".where")).to_contain_text("Zoomed")
    assert {*page.locator(CALLS).evaluate_all(_LINKS)} - before


def test_a_call_says_what_it_is(person: Person) -> None:
    page = person.page
    page.goto(SERVICE)
    tip = page.locator(".tip")
    expect(tip).to_be_hidden()
    page.locator(CALLS).first.hover()
    expect(tip).to_contain_text(re.compile(r"%: .* s cumulative, .* flat"))
    box, window = tip.bounding_box(), page.viewport_size
    assert box is not None
    assert window is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= window["width"]
    page.get_by_role("heading", level=1).hover()
    expect(tip).to_be_hidden()


def test_the_keyboard_goes_from_call_to_call(person: Person) -> None:
    page = person.page
    page.goto(SERVICE)
    focused = page.locator(f"{CALLS}:focus")
    page.get_by_role("button", name="Search").focus()
    page.keyboard.press("Tab")
    first = focused.get_attribute("aria-label")
    expect(page.locator(".tip")).to_have_text(first or "", use_inner_text=False)
    page.keyboard.press("ArrowDown")
    below = focused.get_attribute("aria-label")
    assert below != first
    page.keyboard.press("ArrowRight")
    assert focused.get_attribute("aria-label") != below
    page.keyboard.press("ArrowLeft")
    assert focused.get_attribute("aria-label") == below
    page.keyboard.press("ArrowUp")
    assert focused.get_attribute("aria-label") == first
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".where")).to_contain_text("Zoomed to")
    expect(focused).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".where")).not_to_contain_text("Zoomed to")
    page.keyboard.press("Tab")
    assert page.locator(f"{CALLS}:focus").count() <= 1


def test_a_search_marks_at_once_and_adds_up_when_sent(person: Person) -> None:
    page = person.page
    page.goto(SERVICE)
    field = page.get_by_role("searchbox", name="Search")
    field.fill("MALLOC")
    expect(page.locator(".flame .hit").first).to_be_attached()
    marked = page.locator(".flame .hit").count()
    field.press("Enter")
    expect(page.locator("mark")).to_have_text(re.compile(r"[\d.]+ %"))
    # The mark takes room in the page, which has a bound, from a few of the narrowest calls.
    assert 0.9 * marked <= page.locator(".flame .hit").count() <= marked
    page.get_by_role("link", name="clear").click()
    expect(page.locator(".flame .hit")).to_have_count(0)


def test_a_graph_is_turned_and_the_keyboard_with_it(person: Person) -> None:
    page = person.page
    page.goto(SERVICE)
    page.get_by_role("link", name="Flame", exact=True).click()
    page.wait_for_url("**layout=flame**")
    expect(page.locator("#flame-help")).to_contain_text("its callers are below it")
    focused = page.locator(f"{CALLS}:focus")
    page.get_by_role("button", name="Search").focus()
    page.keyboard.press("Tab")
    first = focused.get_attribute("aria-label")
    page.keyboard.press("ArrowUp")
    assert focused.get_attribute("aria-label") != first
    page.keyboard.press("ArrowDown")
    assert focused.get_attribute("aria-label") == first
    for by in ("Package", "File", "Line"):
        page.get_by_label("A box is").get_by_role("link", name=by).click()
        expect(page.get_by_label("A box is").locator("[aria-current]")).to_have_text(by)
        expect(page.locator(CALLS).nth(3)).to_be_attached()
    page.get_by_role("link", name="Collapse recursion").click()
    expect(page.get_by_role("link", name="Show recursion")).to_be_visible()
    assert query(page) == {"layout": ["flame"], "by": ["line"], "recursion": ["collapse"]}


@pytest.mark.parametrize("has_scripts", [True, False])
def test_what_a_search_finds_is_hidden(browser: Browser, server: Server, *, has_scripts: bool) -> None:
    with Person.of(browser, server, java_script_enabled=has_scripts) as person:
        page = person.page
        page.goto(SERVICE)
        page.get_by_role("searchbox", name="Search").fill("mallocgc")
        page.get_by_role("button", name="Search").click()
        expect(page.locator(".where")).to_contain_text(re.compile(r"in \d+ names"))
        page.get_by_role("link", name="hide", exact=True).click()
        expect(page.locator("#hide")).to_have_value("(?i:mallocgc)")
        page.get_by_role("link", name="Top", exact=True).click()
        expect(page.locator("#hide")).to_have_value("(?i:mallocgc)")
        expect(page.get_by_text("runtime.mallocgc")).to_have_count(0)
        page.get_by_role("link", name="Show all").click()
        page.locator(".filters > summary").click()
        page.locator("#focus").fill("mallocgc")
        page.get_by_role("button", name="Filter", exact=True).click()
        expect(page.locator(".filters .note")).to_contain_text(re.compile(r"This is [\d.]+ % of all"))
        assert not person.faults


def test_the_text_of_a_call_is_copied(browser: Browser, server: Server) -> None:
    with Person.of(browser, server, permissions=["clipboard-read", "clipboard-write"]) as person:
        page = person.page
        page.goto(SERVICE)
        tip = page.locator(".tip")
        page.locator(CALLS).nth(1).hover()
        page.keyboard.press("c")
        text = page.locator(CALLS).nth(1).get_attribute("aria-label")
        assert page.evaluate("getSelection().toString()") == text
        assert page.evaluate("navigator.clipboard.readText()") == text
        page.get_by_role("heading", level=1).hover()
        expect(tip).to_be_visible()
        page.keyboard.press("Escape")
        expect(tip).to_be_hidden()
        page.locator(CALLS).nth(2).click(modifiers=["Alt"])
        expect(tip).to_have_class("tip pinned")
        assert not query(page)
        page.get_by_role("heading", level=1).click()
        expect(tip).to_be_hidden()
        assert not person.faults


def test_a_graph_is_saved_as_svg_and_as_png(person: Person) -> None:
    page = person.page
    page.goto(f"{SERVICE}?search=malloc")
    with page.expect_download() as download:
        page.get_by_role("link", name="SVG").click()
    assert download.value.suggested_filename == "apisvc.svg"
    assert b"<svg" in download.value.path().read_bytes()
    with page.expect_download() as download:
        page.get_by_role("button", name="PNG").click()
    assert download.value.suggested_filename == "apisvc.png"
    content = download.value.path().read_bytes()
    assert content.startswith(b"\x89PNG")
    width = int.from_bytes(content[16:20])
    assert width == 2 * 1220
    assert len(content) > 20_000


@pytest.mark.parametrize("has_scripts", [True, False])
def test_the_newest_profile_is_shown_as_it_comes(
    browser: Browser, server: Server, *, has_scripts: bool
) -> None:
    service = f"live-{has_scripts}"

    def store(function: str) -> None:
        profile = stacked({f"main.main;{function}": 10}, time_nanos=time.time_ns())
        assert server.submit(profile, query={"service": service}).status_code == 204

    store("first.work")
    with Person.of(browser, server, java_script_enabled=has_scripts) as person:
        page = person.page
        page.goto(f"/ui/services/{service}")
        page.get_by_role("link", name="Live", exact=True).click()
        expect(page.locator(".flame")).to_contain_text("first.work")
        store("second.work")
        if not has_scripts:
            page.get_by_role("link", name="Refresh").click()
        expect(page.locator(".flame")).to_contain_text("second.work")
        expect(page.locator(".flame")).not_to_contain_text("first.work")
        page.locator(CALLS).nth(1).click()
        expect(page.locator(".where").last).to_contain_text("Zoomed to")
        assert not person.faults


@pytest.mark.parametrize("has_scripts", [True, False])
def test_a_profile_is_taken_now(browser: Browser, tmp_path: Path, *, has_scripts: bool) -> None:
    with target() as (host, _), collector(tmp_path, f"shop=http://{host}/profile") as server:
        assert server.submit(profile_of("a"), query={"service": "shop"}).status_code == 204
        with Person.of(browser, server, java_script_enabled=has_scripts) as person:
            person.page.goto("/ui/services/shop/live")
            person.page.get_by_role("button", name=f"Take a profile of {host} now").click()
            expect(person.page.locator(".flame")).to_contain_text("captured.now")
            assert not person.faults


@pytest.mark.skipif(not has_speedscope(), reason="speedscope is not built: make speedscope")
def test_speedscope_opens_the_same_profile(person: Person) -> None:
    page = person.page
    page.goto(f"{SERVICE}/build")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open in speedscope").click()
    viewer = Person(person.server, opened.value)
    viewer.watch()
    expect(opened.value).to_have_title(re.compile("apisvc"))
    expect(opened.value.get_by_text("Left Heavy")).to_be_visible()
    assert not viewer.faults
