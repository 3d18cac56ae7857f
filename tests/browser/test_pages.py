"""Every page in a real browser: for eyes and screen readers, on phones, and who is signed in."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, expect

from tests.browser.chromium import CALLS, Person, Theme
from tests.browser.site import PAGES, SERVICE
from tests.server import Server

pytestmark = pytest.mark.system

# Rules of axe for what differs between themes: their stylesheets give other colors to the same elements.
OF_COLORS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
# A call has the colors of its class, so one of each is left, with a text and without.
_ONE_CALL_OF_EACH_COLOR = """calls => {
    const seen = new Set();
    for (const call of calls) {
        const look = `${call.firstElementChild.className.baseVal} ${call.querySelector("text") !== null}`;
        seen.has(look) ? call.remove() : seen.add(look);
    }
}"""


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
