"""The pages below a path of a real nginx, in a real browser: nothing leads out of the path."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from pgo_collector.ui.rendering import has_speedscope
from playwright.sync_api import Browser, Page, Response, expect

from tests.browser.chromium import Person, open_selection
from tests.interop.nginx_process import nginx_below_path
from tests.merge.stacked import stacked
from tests.server import Server

pytestmark = pytest.mark.system("nginx")

_TOLD = "proxy_set_header X-Forwarded-Prefix /pgo;"


class Below(NamedTuple):
    """A collector below a path: itself, and its URL outside."""

    server: Server
    url: str


@pytest.fixture(scope="module", params=["kept", "removed", "told"])
def below(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, filled: Path
) -> Iterator[Below]:
    """Its proxy keeps the path in requests or removes it; a setting or the proxy tells it."""
    is_told = request.param == "told"
    settings = {"PGOF_TRUSTED_PROXIES": "127.0.0.1"} if is_told else {"PGOF_ROOT_PATH": "/pgo"}
    folder = tmp_path_factory.mktemp(request.param)
    server = Server(folder, settings)
    shutil.copytree(filled, server.data)
    with server:
        is_removed = request.param != "kept"
        also = _TOLD if is_told else ""
        with nginx_below_path(folder, server.base_url, is_removed=is_removed, also=also) as url:
            yield Below(server, url)


@pytest.fixture
def page(browser: Browser, below: Below) -> Iterator[Page]:
    """A window on the collector; at its end, nothing outside the path was asked for or failed."""
    astray, proxied = [], Server(below.server.home)
    proxied.base_url = below.url
    with Person.of(browser, proxied, key=None) as person:

        def check(response: Response) -> None:
            if not urlsplit(response.url).path.startswith("/pgo") or response.status >= 400:
                astray.append(f"{response.status} {response.url}")

        person.page.on("response", check)
        yield person.page
        assert not person.faults
        assert not astray


def test_people_see_stay_and_leave(page: Page, below: Below) -> None:
    """One long way through all kinds of links, forms, fetches and files."""
    page.goto(below.url)
    page.wait_for_url("**/pgo/ui/sign-in?*")
    page.get_by_label("Key").fill(Server.merge_key)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/pgo/ui/")
    (cookie,) = page.context.cookies()
    assert (cookie["name"], cookie["path"]) == ("pgo_session", "/pgo/ui")
    page.get_by_role("region", name="Services").get_by_role("link", name="apisvc").click()
    page.wait_for_url("**/pgo/ui/services/apisvc")

    # A zoom, which a script fetches, and the way back.
    page.locator('.flame > svg > a[aria-label^="net/http.HandlerFunc.ServeHTTP\\a "]').first.click()
    expect(page.locator(".where")).to_contain_text("Zoomed to net/http.HandlerFunc.ServeHTTP")
    assert urlsplit(page.url).path == "/pgo/ui/services/apisvc"
    page.go_back()
    expect(page.locator(".where .out")).to_have_count(0)
    with page.expect_download() as drawn:
        page.get_by_role("link", name="SVG").click()
    assert b"<svg" in drawn.value.path().read_bytes()

    # A form whose answer leads to another page.
    open_selection(page)
    page.get_by_text("Choose labels").click()
    page.locator("#choose").select_option("version")
    page.get_by_role("button", name="List values").click()
    page.get_by_role("checkbox", name="1.5.0").check()
    page.get_by_role("button", name="Select", exact=True).click()
    expect(page.locator(".conditions")).to_contain_text("version is 1.5.0")
    for tab in ("Top", "Difference", "Over time", "Live", "Build"):
        page.get_by_role("navigation", name="Pages of the service").get_by_role("link", name=tab).click()
        page.wait_for_load_state()
        assert urlsplit(page.url).path.startswith("/pgo/ui/services/apisvc/")
    expect(page.locator("pre").first).to_contain_text(f"'{below.url}/v1/")
    with page.expect_download() as merged:
        page.get_by_role("link", name="folded").click()
    assert merged.value.suggested_filename == "apisvc.folded"
    if has_speedscope():
        with page.context.expect_page() as opened:
            page.get_by_role("link", name="Open in speedscope").click()
        expect(opened.value.get_by_text("Left Heavy")).to_be_visible()

    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/pgo/ui/sign-in?*")
    assert not page.context.cookies()


def test_the_live_page_is_told_of_a_new_profile(page: Page, below: Below) -> None:
    service = "live-one"
    submit = {"service": service}
    assert below.server.submit(stacked({"main.main;main.before": 5}), query=submit).status_code == 204
    page.goto(f"{below.url}/ui/services/{service}/live")
    page.get_by_label("Key").fill(Server.merge_key)
    with page.expect_response(re.compile("/pgo/ui/services/live-one/live/events")):
        page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/pgo/ui/services/live-one/live")
    later = stacked({"main.main;main.after": 5}, time_nanos=1_800_000_000 * 10**9)
    assert below.server.submit(later, query=submit).status_code == 204
    expect(page.locator('.flame > svg > a[aria-label^="main.after"]')).to_have_count(1)
