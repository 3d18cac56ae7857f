"""Choosing labels, time and sample types in a real browser: by mouse, by keyboard and without JavaScript."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import WIDTHS, Person, open_selection
from tests.server import Server

pytestmark = pytest.mark.system

SERVICE = "/ui/services/apisvc"
MEMORY = "/ui/services/cached?type=heap"


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


@pytest.mark.parametrize("has_scripts", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_several_values_are_chosen_and_excluded(
    browser: Browser, server: Server, width: str, *, has_scripts: bool
) -> None:
    with Person.of(browser, server, width=width, java_script_enabled=has_scripts) as person:
        page = person.page
        page.goto(f"{SERVICE}/top?by=package&last=30d")
        open_selection(page)
        page.get_by_text("Choose labels").click()
        page.locator("#choose").select_option("instance")
        page.get_by_role("button", name="List values").click()
        page.get_by_role("checkbox", name="web-1").check()
        page.get_by_role("checkbox", name="web-3").check()
        page.get_by_role("button", name="Select", exact=True).click()
        expect(page.locator(".conditions li")).to_have_count(1)
        expect(page.locator(".conditions")).to_contain_text("instance is web-1 or web-3")
        asked = query(page)
        assert asked == {"by": ["package"], "last": ["30d"], "labels": ["instance=web-1|web-3"]}
        expect(page.locator(".facts")).to_contain_text("Hosts2")
        page.get_by_role("link", name="Exclude instead: instance").click()
        expect(page.locator(".conditions")).to_contain_text("instance is not web-1 or web-3")
        expect(page.locator(".facts")).to_contain_text("Hosts3")
        open_selection(page)
        page.get_by_text("The same on /v1").click()
        expect(page.locator(".query pre")).to_contain_text("labels=instance%21%3Dweb-1%7Cweb-3")
        page.get_by_role("link", name="Remove the condition on instance").click()
        expect(page.locator(".conditions")).to_have_count(0)
        assert person.overflow() <= 0
        assert not person.faults


def test_values_are_chosen_by_keyboard(person: Person) -> None:
    page = person.page
    page.goto(f"{SERVICE}?choose=version")
    page.locator("#is").focus()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Select", exact=True)).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Enter")  # sends the form
    expect(page.locator(".conditions")).to_contain_text("version is 1.4.2")
    page.goto(f"{SERVICE}?choose=version&find=1.5")
    expect(page.get_by_role("checkbox")).to_have_count(1)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_time_is_selected_by_dragging(browser: Browser, server: Server, theme: str) -> None:
    with Person.of(browser, server, theme=theme) as person:  # type: ignore[arg-type] # both are themes
        page = person.page
        page.goto(f"{SERVICE}/top?last=14d&by=package")
        box = page.locator(".timeline > svg").bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 0.85 * box["width"], y)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.95 * box["width"], y, steps=4)
        expect(page.locator(".timeline .brush")).to_be_attached()
        page.mouse.up()
        page.wait_for_url("**from=**")
        asked = query(page)
        assert {*asked} == {"by", "from", "to"}
        assert asked["from"][0] < asked["to"][0]
        expect(page.locator("#from")).to_have_value(asked["from"][0])
        expect(page.locator(".facts")).to_contain_text("Versions1")
        expect(page.locator(".timeline .brush")).to_have_count(0)
        page.get_by_role("link", name="wider").click()
        expect(page.locator("#from")).not_to_have_value(asked["from"][0])
        page.go_back()
        expect(page.locator("#from")).to_have_value(asked["from"][0])
        # Escape gives up.
        page.mouse.move(box["x"] + 0.2 * box["width"], y)
        page.mouse.down()
        page.keyboard.press("Escape")
        page.mouse.up()
        assert query(page) == asked
        assert not person.faults


def test_a_time_is_selected_by_a_finger(browser: Browser, server: Server) -> None:
    """On a phone, a finger that moves along the timeline selects; one that scrolls or taps doesn't."""
    with Person.of(browser, server, width="phone", has_touch=True, is_mobile=True) as person:
        page = person.page
        page.goto(f"{SERVICE}/top?last=14d&by=package")
        fingers = page.context.new_cdp_session(page)
        plot = page.locator(".timeline > svg")

        def drag(*places: tuple[float, float]) -> None:
            """Put a finger on the plot, given in widths and heights of it, move it, and lift it."""
            box = plot.bounding_box()
            assert box is not None
            for number, (x, y) in enumerate(places):
                point = {"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]}
                kind = "touchMove" if number else "touchStart"
                fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
            fingers.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

        before = query(page)
        drag((0.5, 0.5))
        drag((0.5, 0.5), (0.505, 0.5))
        expect(page.locator(".timeline .brush")).to_have_count(0)
        assert query(page) == before
        drag((0.7, 0.5), (0.75, 0.5), (0.8, 0.5), (0.9, 0.6))
        page.wait_for_url("**from=**")
        asked = query(page)
        assert {*asked} == {"by", "from", "to"}
        expect(page.locator("#from")).to_have_value(asked["from"][0])
        expect(page.locator(".timeline .brush")).to_have_count(0)
        scrolled = page.evaluate("scrollY")
        drag((0.5, 0.5), (0.5, 0.3), (0.5, -0.5), (0.5, -2))
        page.wait_for_function("before => scrollY > before", arg=scrolled)
        expect(page.locator(".timeline .brush")).to_have_count(0)
        assert query(page) == asked
        assert person.overflow() <= 0
        assert not person.faults


@pytest.mark.parametrize("width", WIDTHS)
def test_a_time_is_selected_without_javascript(browser: Browser, server: Server, width: str) -> None:
    with Person.of(browser, server, width=width, java_script_enabled=False) as person:
        page = person.page
        page.goto(SERVICE)
        expect(page.locator(".timeline .mark")).not_to_have_count(0)
        page.get_by_text("versions begin").click()
        expect(page.locator(".marks")).to_contain_text("version 1.5.0")
        page.get_by_role("link", name="week", exact=True).click()
        assert query(page)["last"] == ["7d"]
        open_selection(page)
        page.locator("#last").select_option("")
        page.locator("#from").fill("2020-01-01")
        page.get_by_role("button", name="Show").first.click()
        assert query(page)["from"] == ["2020-01-01"]
        expect(page.locator(".timeline .bin")).not_to_have_count(0)
        assert person.overflow() <= 0
        assert not person.faults


@pytest.mark.parametrize("has_scripts", [True, False])
def test_sample_types_are_switched_on_every_page(
    browser: Browser, server: Server, *, has_scripts: bool
) -> None:
    with Person.of(browser, server, java_script_enabled=has_scripts) as person:
        page = person.page
        page.goto(MEMORY)
        switch = page.get_by_role("navigation", name="Sample type")
        expect(switch.locator("[aria-current]")).to_contain_text("inuse_space")
        switch.get_by_role("link", name="alloc_objects").click()
        expect(switch.locator("[aria-current]")).to_contain_text("alloc_objects")
        expect(page.locator(".timeline .legend")).to_contain_text("alloc_objects")
        page.get_by_role("link", name="Top", exact=True).click()
        expect(page.locator(".where")).to_contain_text("Total: 318,600 in 24 profiles")
        switch.get_by_role("link", name="alloc_space").click()
        expect(page.locator(".where")).to_contain_text("GiB")
        page.locator("tbody th a").first.click()
        expect(switch.locator("[aria-current]")).to_contain_text("alloc_space")
        page.goto(f"{MEMORY}&sample_type=cpu")
        expect(page.locator(".note", has_text="no sample type cpu")).to_be_visible()
        assert not person.faults
