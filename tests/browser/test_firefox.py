"""All pages in Firefox: none has a fault in the console, and the scripts do what they do in Chromium."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser.chromium import WIDTHS
from tests.browser.firefox import PATH, Firefox
from tests.browser.site import PAGES, SERVICE
from tests.server import Server

pytestmark = pytest.mark.system


@pytest.mark.exhaustive
@pytest.mark.alike(2, family="Firefox")
@pytest.mark.skipif(PATH is None, reason="Firefox is not installed")
def test_every_page_is_without_faults_in_firefox(server: Server, tmp_path: Path) -> None:
    """Starts a browser of its own, and opens every page."""
    with Firefox.running(tmp_path / "firefox") as firefox:
        firefox.sign_in(server)
        for name, path in PAGES.items():
            firefox.go(f"{server.base_url}{path}")
            assert firefox.run("document.querySelectorAll('h1').length") == 1, name
            assert firefox.run("document.documentElement.scrollWidth - innerWidth") <= 0, name
            assert not firefox.faults, name
        for kind in ("mouse", "touch"):
            firefox.go(f"{server.base_url}{SERVICE}/top?last=14d")
            place = "document.querySelector('.timeline > svg').getBoundingClientRect()"
            left, top, width = (firefox.run(f"{place}.{name}") for name in ("left", "top", "width"))
            firefox.drag(kind, *((left + part * width, top + 20) for part in (0.7, 0.8, 0.9)))
            firefox.wait("location.search.includes('from=') && document.querySelector('#from').value")
        firefox.go(f"{server.base_url}{SERVICE}")
        firefox.run("document.querySelector('#search').value = 'malloc'")
        firefox.run("document.querySelector('#search').dispatchEvent(new Event('input', {bubbles: true}))")
        assert firefox.run("document.querySelectorAll('.flame .hit').length") > 0
        firefox.run("document.querySelectorAll('.flame > svg > a')[2].dispatchEvent(new MouseEvent('click', "
                    "{bubbles: true, cancelable: true}))")  # fmt: skip
        firefox.wait("document.querySelector('.where').textContent.includes('Zoomed to')")
        firefox.run("document.querySelectorAll('.flame > svg > a')[1].focus()")
        key = "new KeyboardEvent('keydown', {key: 'c', bubbles: true})"
        firefox.run(
            "(() => { const call = document.activeElement;"
            "call.dispatchEvent(new PointerEvent('pointermove', {bubbles: true}));"
            f"call.dispatchEvent({key}); }})()"
        )
        assert firefox.run("getSelection().toString()") == firefox.run(
            "document.activeElement.getAttribute('aria-label')"
        )
        # The PNG is drawn from the SVG: an image that isn't loaded would be a fault.
        firefox.run("document.querySelector('a.save + button').click()")
        firefox.go(f"{server.base_url}{SERVICE}/live")
        assert firefox.run("document.querySelector('[data-newest]').dataset.newest") != "0"
        assert not firefox.faults


@pytest.mark.exhaustive
@pytest.mark.alike(2, family="Firefox")
@pytest.mark.skipif(PATH is None, reason="Firefox is not installed")
def test_every_page_is_without_faults_in_firefox_on_a_phone_in_the_dark(
    server: Server, tmp_path: Path
) -> None:
    """Starts a browser of its own, and opens every page."""
    with Firefox.running(
        tmp_path / "firefox", {"layout.css.prefers-color-scheme.content-override": 0}
    ) as firefox:
        firefox.sign_in(server)
        firefox.resize(WIDTHS["phone"])
        for name, path in PAGES.items():
            firefox.go(f"{server.base_url}{path}")
            assert firefox.run("document.documentElement.scrollWidth - innerWidth") <= 0, name
            background = firefox.run("getComputedStyle(document.body).backgroundColor")
            assert max(map(int, re.findall(r"\d+", background)[:3])) < 64, name
            assert not firefox.faults, name


@pytest.mark.exhaustive
@pytest.mark.alike(2, family="Firefox")
@pytest.mark.skipif(PATH is None, reason="Firefox is not installed")
def test_every_page_is_whole_in_firefox_without_scripts(server: Server, tmp_path: Path) -> None:
    """Starts a browser of its own, and opens every page."""
    signed_in = server.client.post("/ui/sign-in", data={"key": server.merge_key})
    with Firefox.running(tmp_path / "firefox", {"javascript.enabled": False}) as firefox:
        for name, value in signed_in.cookies.items():
            firefox.add_cookie(name, value, "127.0.0.1")
        for name, path in PAGES.items():
            firefox.go(f"{server.base_url}{path}")
            assert firefox.count("h1") == 1, name
            assert firefox.count("a[href='/ui/sign-in']") == 0, name
            assert not firefox.faults, name
        firefox.go(f"{server.base_url}{SERVICE}?search=malloc")
        assert firefox.count(".flame .hit") > 0
        assert firefox.count("a.save + button") == 0  # a script adds it
