"""The pages in a real browser, by mouse and keyboard, with JavaScript and without."""

from __future__ import annotations

import re
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from pgo_collector.traces.spans import PARTS
from pgo_collector.ui.rendering import has_speedscope
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import WIDTHS, Person, Theme, open_selection
from tests.collector.recorded_traces import SUBMIT, hostile_trace
from tests.collector.ui.test_live import collector, target
from tests.faults.stacks import profile_of
from tests.merge.stacked import stacked
from tests.server import Server, bearer

pytestmark = pytest.mark.system

SERVICE = "/ui/services/apisvc"
WAITS = "/ui/services/db/latency?type=offcpu"
PAGES = {
    "services": "/ui/",
    "flame": SERVICE,
    "search": f"{SERVICE}?search=malloc",
    "upright": f"{SERVICE}?layout=flame&by=line&recursion=collapse",
    "grouped": f"{SERVICE}?group=version",
    "filtered": f"{SERVICE}?focus=ServeHTTP&hide=%5Eruntime%5C.&by=package",
    "live": f"{SERVICE}/live",
    "values": f"{SERVICE}/top?choose=version&labels=instance!%3Dweb-1",
    "memory": "/ui/services/cached?type=heap&sample_type=alloc_space",
    "top": f"{SERVICE}/top",
    "packages": f"{SERVICE}/top?by=package&sort=cum",
    "no base": f"{SERVICE}/diff",
    "diff": f"{SERVICE}/diff?labels=version%3D1.5.0&base_labels=version%3D1.4.2",
    "function": f"{SERVICE}/function?function=runtime.mallocgc",
    "no function": f"{SERVICE}/function",
    "no series": f"{SERVICE}/series",
    "unnamed": f"{SERVICE}/unnamed",
    "series": f"{SERVICE}/series?function=runtime.mallocgc&step=hour",
    "build": f"{SERVICE}/build",
    "latencies": f"{WAITS}&from=2020-01-01",
    "two windows": f"{WAITS}&base_labels=instance%3Ddb-1",
    "some latencies": "/ui/services/db?type=offcpu&latency_from=16777216ns&latency_to=33554432ns",
    "compiler": "/ui/services/compiler",
    "file": "/ui/file",
    "traces": "/ui/traces",
    "trace": f"/ui/traces/{SUBMIT}",
}
# Rules of axe for what differs between themes: their stylesheets give other colors to the same elements.
OF_COLORS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
CALLS = ".flame > svg > a"
# A call has the colors of its class, so one of each is left, with a text and without.
_ONE_CALL_OF_EACH_COLOR = """calls => {
    const seen = new Set();
    for (const call of calls) {
        const look = `${call.firstElementChild.className.baseVal} ${call.querySelector("text") !== null}`;
        seen.has(look) ? call.remove() : seen.add(look);
    }
}"""
_LINKS = "calls => calls.map(call => call.getAttribute('href'))"


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def choose(page: Page, name: str) -> None:
    """Click on the first call of a name."""
    page.locator(f'{CALLS}[aria-label^="{name}\\a "]').first.click()


@pytest.mark.exhaustive
@pytest.mark.alike(1)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_without_faults_for_eyes_and_screen_readers(
    browser: Browser, server: Server, theme: Theme
) -> None:
    """Takes long: axe checks each of a thousand calls, on every page; in the dark, each color of them."""
    axe = Axe()
    options: dict[str, object] = {"resultTypes": ["violations"]}
    if theme == "dark":
        options["runOnly"] = OF_COLORS
    with Person.of(browser, server, theme=theme) as person:
        for name, path in PAGES.items():
            person.page.goto(path)
            if theme == "dark":
                person.page.locator(CALLS).evaluate_all(_ONE_CALL_OF_EACH_COLOR)
            found = axe.run(person.page, options=options)
            assert found.violations_count == 0, f"{name}: {found.generate_report()}"
        assert not person.faults


@pytest.mark.parametrize("width", ["phone", pytest.param("desktop", marks=pytest.mark.exhaustive)])
def test_every_page_fits_the_window(browser: Browser, server: Server, width: str) -> None:
    with Person.of(browser, server, width=width) as person:
        for name, path in PAGES.items():
            person.page.goto(path)
            assert person.overflow() <= 0, name
        assert not person.faults


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.exhaustive)])
def test_the_form_to_sign_in_is_without_faults(browser: Browser, server: Server, theme: Theme) -> None:
    with Person.of(browser, server, theme=theme, key=None) as person:
        person.page.goto("/ui")
        found = Axe().run(person.page)
        assert found.violations_count == 0, found.generate_report()
        assert not person.faults
        expect(person.page.get_by_label("Key")).to_be_focused()
        person.page.keyboard.type("wrong")
        person.page.keyboard.press("Enter")
        expect(person.page.get_by_role("alert")).to_have_text("This is not a merge key.")


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


@pytest.mark.parametrize("has_scripts", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_two_groups_are_compared(browser: Browser, server: Server, width: str, *, has_scripts: bool) -> None:
    with Person.of(browser, server, width=width, java_script_enabled=has_scripts) as person:
        page = person.page
        page.goto(f"{SERVICE}?labels=region%3Deu%7Cus")
        page.get_by_text("Group by", exact=True).click()
        page.get_by_role("link", name="version", exact=True).click()
        form = page.get_by_role("form", name="Compare two groups")
        form.get_by_label("with").select_option("1.5.0")
        form.get_by_label("Compare").select_option("1.4.2")
        form.get_by_role("button", name="Compare").click()
        page.wait_for_url("**/diff?**")
        expect(page.locator("#base_labels")).to_have_value("region=eu|us,version=1.5.0")
        expect(page.locator(".conditions")).to_contain_text("version is 1.4.2")
        expect(page.locator(".flame .more4, .flame .less4").first).to_be_attached()
        assert person.overflow() <= 0
        assert not person.faults


def test_on_a_phone_fingers_find_links_and_buttons(browser: Browser, server: Server) -> None:
    """Links and buttons are 24 pixels high, and none is beyond the edge or in what scrolls to the side."""
    with Person.of(browser, server, width="phone", permissions=["clipboard-write"]) as person:
        page = person.page
        for name in ("flame", "top", "build", "traces", "memory", "no base"):
            page.goto(PAGES[name])
            found = page.evaluate(
                """() => [...document.querySelectorAll("a, button, select, summary")]
                    .filter(each => each.checkVisibility() && !each.closest(".flame svg, .skip"))
                    .map(each => [each.textContent.trim(), each.getBoundingClientRect()])
                    .filter(([, box]) => box.height < 23.9 || box.right > innerWidth + 0.5)
                    .map(([text, box]) => `${text}: ${box.height} high, up to ${box.right}`)"""
            )
            assert not found, name
        page.goto(PAGES["build"])
        for command in page.locator(".command").all():
            text, button = (command.locator(part).bounding_box() for part in ("pre", "button"))
            assert text is not None
            assert button is not None
            assert button["y"] >= text["y"] + text["height"]
            assert command.locator("pre").evaluate("pre => pre.scrollWidth <= pre.clientWidth")
        page.goto(PAGES["traces"])
        assert page.locator(".scroll").evaluate("all => all.scrollWidth <= all.clientWidth + 1")
        expect(page.get_by_role("cell", name="10 steps")).to_be_visible()
        assert not person.faults


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_links_in_text_and_tables_are_underlined_and_differ_from_it(
    browser: Browser, server: Server, theme: Theme
) -> None:
    with Person.of(browser, server, theme=theme) as person:
        for name in ("services", "search", "filtered", "top", "diff", "function", "build", "values", "trace"):
            person.page.goto(PAGES[name])
            plain = person.page.evaluate(
                """() => [...document.querySelectorAll("main a:not(.button)")]
                    .filter(each => each.checkVisibility() && !each.closest(".flame svg, .choice, .tabs"))
                    .filter(each => !getComputedStyle(each).textDecorationLine.includes("underline")
                        || !each.closest("thead") && getComputedStyle(each).color
                            === getComputedStyle(document.body).color)
                    .map(each => each.outerHTML)"""
            )
            assert not plain, name


def test_from_the_services_to_a_call(person: Person) -> None:
    page = person.page
    page.context.clear_cookies()
    person.sign_in()
    page.get_by_role("region", name="Services").get_by_role("link", name="apisvc").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("apisvc")
    choose(page, "net/http.HandlerFunc.ServeHTTP")
    where = page.locator(".where")
    expect(where).to_contain_text("Zoomed to net/http.HandlerFunc.ServeHTTP")
    expect(page.locator(f"{CALLS}:focus")).to_have_attribute(
        "aria-label", re.compile("^net/http.HandlerFunc.ServeHTTP\n")
    )
    zoomed = page.url
    assert query(page)["root"]
    page.get_by_role("link", name="zoom out").click()
    expect(where).not_to_contain_text("Zoomed")
    page.go_back()
    expect(where).to_contain_text("Zoomed to net/http.HandlerFunc.ServeHTTP")
    page.goto(zoomed)
    expect(where).to_contain_text("Zoomed to net/http.HandlerFunc.ServeHTTP")


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


def test_the_table_is_sorted_in_place(person: Person) -> None:
    page = person.page
    page.goto(f"{SERVICE}/top")
    first = page.locator("tbody th").first
    flat = first.text_content()
    page.get_by_role("link", name="Cumulative").click()
    expect(first).not_to_have_text(flat or "")
    expect(page.locator("th[aria-sort]")).to_have_text("Cumulative")
    expect(page.get_by_role("link", name="Cumulative")).to_be_focused()
    page.get_by_role("link", name="Package", exact=True).click()
    expect(page.get_by_role("columnheader", name="Package")).to_be_visible()
    assert query(page) == {"sort": ["cum"], "by": ["package"]}


def test_what_is_selected_goes_along(person: Person) -> None:
    page = person.page
    page.goto(SERVICE)
    open_selection(page)
    page.locator("#labels").fill("version=1.5.0")
    page.locator("#from").fill("2020-01-01")
    page.locator("#to").fill("2040-01-01")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**labels=**")
    assert query(page) == {
        "type": ["cpu"],
        "from": ["2020-01-01"],
        "to": ["2040-01-01"],
        "labels": ["version=1.5.0"],
    }
    expect(page.locator(".facts")).to_contain_text("Versions1")
    for tab in ("Top", "Difference", "Over time", "Build", "Flame graph"):
        page.get_by_role("link", name=tab, exact=True).click()
        expect(page.locator("#labels")).to_have_value("version=1.5.0")
    open_selection(page)
    page.locator("#to").fill("2020-02-01")
    with page.expect_response(lambda answer: "2020-02-01" in answer.url) as answered:
        page.get_by_role("button", name="Show").click()
    assert answered.value.status == 404
    expect(page.get_by_role("heading", name="No matching profiles")).to_be_visible()
    person.faults.clear()  # Chromium logs the 404


def test_two_versions_are_compared(person: Person) -> None:
    page = person.page
    page.goto(SERVICE)
    page.get_by_text("Compare", exact=True).click()
    page.get_by_role("link", name="version 1").click()
    expect(page.locator(".flame .more1, .flame .more2, .flame .more3, .flame .more4").first).to_be_attached()
    expect(page.locator(".flame .less1, .flame .less2, .flame .less3, .flame .less4").first).to_be_attached()
    page.locator(CALLS).nth(3).click()
    expect(page.locator(".where").first).to_contain_text("Zoomed")
    page.get_by_role("link", name="Cumulative").click()
    expect(page.locator("th[aria-sort]")).to_have_text("Cumulative")
    page.get_by_text("Base:", exact=True).click()
    page.locator("#base_labels").fill("region=eu")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#base_labels")).to_have_value("region=eu")


def test_a_function_is_followed_over_time(person: Person) -> None:
    page = person.page
    page.goto(f"{SERVICE}/top?sort=cum")
    page.locator("tbody th a").first.click()
    page.get_by_role("link", name="its share over time").click()
    expect(page.locator(".plot path.cum")).to_be_attached()
    page.get_by_role("link", name="Hours").click()
    page.wait_for_url("**step=hour**")
    page.get_by_text("As a table").click()
    expect(page.get_by_role("columnheader", name="Cumulative")).to_be_visible()
    page.get_by_label("Package").fill("runtime")
    page.get_by_role("button", name="Show").last.click()
    expect(page.get_by_role("heading", level=2)).to_have_text("runtime")


@pytest.mark.parametrize("has_scripts", [True, False])
def test_callers_and_callees_lead_to_each_other(
    browser: Browser, server: Server, *, has_scripts: bool
) -> None:
    with Person.of(browser, server, java_script_enabled=has_scripts) as person:
        page = person.page
        page.goto(f"{SERVICE}?labels=version%3D1.5.0")
        choose(page, "net/http.HandlerFunc.ServeHTTP") if has_scripts else page.locator(
            CALLS, has=page.locator("title", has_text=re.compile("^net/http.HandlerFunc.ServeHTTP"))
        ).first.click()
        page.get_by_role("link", name="callers, callees and lines").click()
        heading = page.locator("h2.name")
        expect(heading).to_have_text("net/http.HandlerFunc.ServeHTTP")
        callee = (
            page.locator("section", has=page.get_by_role("heading", name="Callees")).locator("th a").first
        )
        name = callee.text_content()
        callee.click()
        expect(heading).to_have_text(name or "")
        page.locator("section", has=page.get_by_role("heading", name="Callers")).get_by_role(
            "link", name="net/http.HandlerFunc.ServeHTTP"
        ).click()
        expect(heading).to_have_text("net/http.HandlerFunc.ServeHTTP")
        page.locator(f"{CALLS}").first.click()
        expect(heading).not_to_have_text("net/http.HandlerFunc.ServeHTTP")
        assert query(page)["labels"] == ["version=1.5.0"]
        assert not person.faults


@pytest.mark.parametrize("has_scripts", [True, False])
def test_a_cell_of_a_heat_map_leads_to_its_stacks(
    browser: Browser, server: Server, *, has_scripts: bool
) -> None:
    with Person.of(browser, server, java_script_enabled=has_scripts) as person:
        page = person.page
        page.goto("/ui/services/db?type=offcpu")
        page.get_by_role("link", name="Latencies", exact=True).click()
        row = page.locator(".heat tr", has=page.get_by_role("link", name="33.6 ms", exact=True))
        row.locator(".cells a").first.click()
        expect(page.locator(".note")).to_contain_text(
            "Only waits of 33.6 ms or more and of less than 67.1 ms."
        )
        assert query(page)["latency_from"] == ["33554432ns"]
        expect(page.locator(CALLS).first).to_be_attached()
        page.get_by_role("link", name="Top", exact=True).click()
        expect(page.locator(".note")).to_contain_text("Only waits of 33.6 ms or more")
        page.get_by_role("link", name="Show all").click()
        expect(page.locator(".note")).to_have_count(0)
        assert not person.faults


def test_a_part_of_a_heat_map_is_chosen_and_compared(person: Person) -> None:
    page = person.page
    page.goto(WAITS)
    page.get_by_label("Waits of", exact=True).select_option("16777216ns")
    page.get_by_role("button", name="Flame graph").click()
    page.wait_for_url("**latency_from=16777216ns**")
    assert {"from", "to"} <= {*query(page)}
    assert "latency_to" not in query(page)
    page.go_back()
    page.get_by_role("link", name="the later and the earlier half").click()
    expect(page.locator(".pairs")).to_be_visible()
    expect(page.locator(".figures tbody tr")).to_have_count(2)
    page.get_by_role("link", name="the difference of the flame graphs").click()
    expect(page.locator(CALLS).first).to_be_attached()


def test_a_merge_is_saved(person: Person) -> None:
    page = person.page
    page.goto(f"{SERVICE}/build")
    with page.expect_download() as download:
        page.get_by_role("link", name="apisvc.folded").click()
    assert download.value.suggested_filename == "apisvc.folded"
    content = download.value.path().read_bytes()
    assert content == person.server.merge(query={"service": "apisvc"}, format_="folded").content


def test_without_javascript_links_do_the_same(browser: Browser, server: Server) -> None:
    with Person.of(browser, server, java_script_enabled=False) as person:
        page = person.page
        page.goto(SERVICE)
        page.locator(CALLS).nth(2).click()
        expect(page.locator(".where")).to_contain_text("Zoomed to")
        page.get_by_role("searchbox", name="Search").fill("malloc")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("mark")).to_be_visible()
        page.get_by_role("link", name="Top", exact=True).click()
        page.get_by_role("link", name="Cumulative").click()
        expect(page.locator("th[aria-sort]")).to_have_text("Cumulative")


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


@pytest.mark.parametrize("width", WIDTHS)
def test_a_trace_is_found_without_javascript(browser: Browser, server: Server, width: str) -> None:
    with Person.of(browser, server, width=width, java_script_enabled=False) as person:
        page = person.page
        page.goto("/ui/")
        page.get_by_role("link", name="Traces of requests").click()
        page.get_by_role("link", name="Slowest").click()
        page.get_by_role("link", name="POST /v1/submit").click()
        rows = page.locator(".waterfall tbody tr")
        expect(rows.nth(1)).to_contain_text("POST /v1/submit")
        whole, request = (rows.nth(number).locator("rect").bounding_box() for number in (0, 1))
        assert whole is not None
        assert request is not None
        # A request's bar begins after, and ends before, that of the proxy above it.
        assert whole["x"] < request["x"]
        assert request["x"] + request["width"] < whole["x"] + whole["width"]
        assert not person.faults


def test_on_a_phone_a_trace_needs_no_scrolling_to_the_side(browser: Browser, server: Server) -> None:
    """Both the page at /ui and the one in a file: no step, name or bar is beyond the window's edge."""
    saved = server.client.get(
        f"/v1/traces/{SUBMIT}", params={"form": "html"}, headers=bearer(server.merge_key)
    ).text
    with Person.of(browser, server, width="phone") as person:
        person.page.goto(f"/ui/traces/{SUBMIT}")
        alone = Person(server, person.page.context.new_page())
        alone.watch()
        alone.page.set_content(saved)
        for each in (person, alone):
            assert each.overflow() <= 0
            steps = each.page.locator("tbody tr")
            expect(steps).to_have_count(10)
            for part in ("proxy", "http", "workers", "engine", "store", "catalog"):
                expect(each.page.get_by_label("Parts").get_by_text(part)).to_be_visible()
            for piece in each.page.locator("tbody :is(th, td, small, svg)").all():
                box = piece.bounding_box()
                assert box is not None, piece
                assert box["x"] + box["width"] <= WIDTHS["phone"]
            bar = steps.first.locator("svg").bounding_box()
            assert bar is not None
            assert bar["width"] > 300
            scrolled = "all => all.filter(each => each.scrollWidth > each.clientWidth + 1).length"
            assert not each.page.locator(".scroll, main, table").evaluate_all(scrolled)
            assert not each.faults


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_part_of_a_trace_has_a_color_of_its_own(browser: Browser, server: Server, theme: Theme) -> None:
    with Person.of(browser, server, theme=theme) as person:
        person.page.goto(f"/ui/traces/{hostile_trace(0)}")
        expect(person.page.get_by_label("Parts")).to_have_text("other")
        colors = person.page.evaluate(
            """parts => parts.map(part => {
                const svg = document.querySelector(".legend svg").cloneNode(true);
                svg.setAttribute("class", `part-${part}`);
                document.querySelector(".legend").append(svg);
                return getComputedStyle(svg).fill;
            })""",
            [*PARTS, "other"],
        )
        assert len({*colors}) == len(PARTS) + 1, colors


def test_a_link_from_another_site_finds_who_is_signed_in(person: Person) -> None:
    page = person.page
    elsewhere = person.server.base_url.replace("127.0.0.1", "localhost")
    page.goto(f"{elsewhere}/ui/sign-in")
    page.evaluate("url => { location.href = url }", f"{person.server.base_url}{SERVICE}/top")
    expect(page.get_by_role("heading", level=1)).to_have_text("apisvc")
    person.faults.clear()  # Chromium logs the other site as a fault


def test_signing_out(person: Person) -> None:
    page = person.page
    page.goto("/ui/")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Key")).to_be_visible()
    page.goto(SERVICE)
    expect(page.get_by_label("Key")).to_be_visible()


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
