"""Traces in a real browser."""

from __future__ import annotations

import pytest
from pgo_collector.traces.spans import PARTS
from playwright.sync_api import Browser, expect

from tests.browser.chromium import WIDTHS, Person, Theme
from tests.collector.recorded_traces import SUBMIT, hostile_trace
from tests.server import Server, bearer

pytestmark = pytest.mark.system


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
