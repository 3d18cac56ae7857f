"""From view to view in a real browser, with JavaScript and without."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import CALLS, WIDTHS, Person, choose, open_selection, query
from tests.browser.site import SERVICE, WAITS
from tests.server import Server

pytestmark = pytest.mark.system


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
