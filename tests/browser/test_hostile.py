"""Hostile names in a real browser: no page runs them as code, and none breaks."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import Person
from tests.collector.hostile_names import HOSTILE, label_of, submit_hostile
from tests.collector.recorded_traces import hostile_trace
from tests.server import Server

pytestmark = pytest.mark.system


@pytest.fixture
def person(browser: Browser, server: Server) -> Iterator[Person]:
    submit_hostile(server)
    with Person.of(browser, server) as person:
        yield person
        assert not person.faults
        assert not person.dialogs


def test_no_page_runs_what_a_profile_says(person: Person) -> None:
    page = person.page
    base = "/ui/services/hostile"
    for path in (
        "",
        "/top",
        "/series",
        "/function",
        "/build",
        f"/diff?base_labels={quote(label_of(HOSTILE[0]), safe='')}",
    ):
        page.goto(f"{base}{path}")
        assert person.overflow() <= 0, path
    for name in HOSTILE:
        page.goto(f"{base}?choose=version&find={quote(name[:100], safe='')}")
        assert person.overflow() <= 0, name
        page.goto(f"{base}/top?choose=version&labels={quote(label_of(name), safe='')}")
        assert person.overflow() <= 0, name
        page.goto(f"{base}?search={quote(name[:2000], safe='')}")
        page.goto(f"{base}/series?function={quote(name[:2000], safe='')}")
        page.goto(f"{base}/function?function={quote(name[:2000].replace(';', ':'), safe='')}")
        assert person.overflow() <= 0, name
        person.faults[:] = [fault for fault in person.faults if "404" not in fault]  # of cut names


def test_no_page_runs_what_a_trace_says(person: Person) -> None:
    page = person.page
    page.goto("/ui/traces?errors=true")
    assert person.overflow() <= 0
    for at in range(len(HOSTILE)):
        page.goto(f"/ui/traces/{hostile_trace(at)}")
        expect(page.locator(".waterfall tbody tr")).to_have_count(40)
        assert person.overflow() <= 0


def test_a_tooltip_is_text(person: Person) -> None:
    page = person.page
    page.goto("/ui/services/hostile")
    for each in page.locator(".flame > svg > a").all():
        each.focus()
        page.keyboard.press("ArrowRight")
    call = page.locator('.flame a[aria-label^="<script>"] rect').first
    call.hover()
    expect(page.locator(".tip")).to_contain_text(HOSTILE[0])
    assert page.locator(".tip *").count() == 0
    call.click()
    expect(page.locator(".where")).to_contain_text(f"Zoomed to {HOSTILE[0]}")
