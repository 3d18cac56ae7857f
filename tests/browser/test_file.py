"""A file is dropped on its page, or chosen there; in a real browser."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import CALLS, Person
from tests.server import Server

pytestmark = pytest.mark.system

PROFILES = Path(__file__).parents[1] / "testdata" / "profiles"
BEFORE, AFTER = (next(iter(sorted(PROFILES.glob(f"apisvc-v{n}-*.pb.gz")))) for n in (1, 2))
# Files as the browser hands them to a page: each with a name, a content, and the time of its last change.
_DROP = """files => {
    const dropped = new DataTransfer();
    for (const [name, content, lastModified] of files) {
        const bytes = Uint8Array.from(atob(content), letter => letter.charCodeAt(0));
        dropped.items.add(new File([bytes], name, { lastModified }));
    }
    for (const type of ["dragenter", "dragover", "drop"]) {
        const options = { bubbles: true, cancelable: true, dataTransfer: dropped };
        document.querySelector("main").dispatchEvent(new DragEvent(type, options));
    }
}"""


def drop(page: Page, *files: Path) -> None:
    """Drop files on the page; each was changed later than the one before."""
    page.evaluate(
        _DROP,
        [
            [file.name, base64.b64encode(file.read_bytes()).decode(), 1000 + number]
            for number, file in enumerate(files)
        ],
    )


def test_a_dropped_file_is_shown(person: Person) -> None:
    page = person.page
    page.goto("/ui/")
    page.get_by_role("link", name="Open a file").first.click()
    expect(page.get_by_text("Drop them anywhere on this page")).to_be_visible()
    drop(page, AFTER)
    page.wait_for_url("**/ui/file/services/**")
    expect(page.get_by_role("heading", level=1)).to_have_text(AFTER.name)
    page.locator(CALLS).nth(3).click()
    expect(page.get_by_text("Zoomed to")).to_be_visible()
    page.get_by_role("link", name="Top", exact=True).click()
    page.locator("tbody a").first.click()
    expect(page.get_by_role("heading", name="Callers")).to_be_visible()
    assert person.overflow() <= 0


def test_of_two_dropped_files_the_older_one_is_the_base(person: Person) -> None:
    page = person.page
    page.goto("/ui/file")
    drop(page, BEFORE, AFTER, AFTER)
    expect(page.get_by_role("status")).to_have_text("Drop one file, or two to compare them.")
    drop(page, BEFORE, AFTER)
    page.wait_for_url("**/diff?**")
    expect(page.get_by_role("heading", level=1)).to_have_text(AFTER.name)
    assert f"base_service={BEFORE.name}" in page.url
    page.get_by_role("link", name=f"with {BEFORE.name}").click()
    page.get_by_role("link", name="Files").click()
    expect(page.get_by_role("region", name="Open files").locator("tbody tr")).to_have_count(2)


def test_what_is_no_profile_is_refused_on_the_page(person: Person, tmp_path: Path) -> None:
    page = person.page
    file = tmp_path / "<img src=x onerror=alert(1)>.txt"
    file.write_text("<script>alert(1)</script>")
    page.goto("/ui/file")
    drop(page, file)
    expect(page.get_by_role("alert")).to_contain_text("in no format that is known here")
    assert not person.dialogs
    person.faults.clear()  # Chromium logs the 422


def test_files_are_chosen_without_javascript(browser: Browser, server: Server) -> None:
    with Person.of(browser, server, java_script_enabled=False) as person:
        page = person.page
        page.goto("/ui/file")
        expect(page.get_by_text("Drop them anywhere")).to_be_hidden()
        page.get_by_label("File", exact=True).set_input_files(AFTER)
        page.get_by_label("Compare with, if you like").set_input_files(BEFORE)
        page.get_by_role("button", name="Open").click()
        page.wait_for_url("**/diff?**")
        expect(page.get_by_role("heading", level=1)).to_have_text(AFTER.name)
