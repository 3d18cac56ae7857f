"""A headless Chromium, with users who look at pages and record everything that goes wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request, expect, sync_playwright

from tests.server import Server

# The shell has no windows, menus and profiles, which took half of the CPU time of these tests.
PATH = shutil.which("chromium-headless-shell") or shutil.which("chromium")
# There is no sandbox for root in a container. The other options keep Chromium from contacting other hosts.
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

# Long enough for a busy machine; only a failing test waits this long.
_PATIENCE_MS = 120_000
expect.set_options(timeout=_PATIENCE_MS)

Theme = Literal["light", "dark"]
WIDTHS = {"desktop": 1360, "phone": 390}
CALLS = ".flame > svg > a"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser; an event loop runs in this thread meanwhile."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PATH, args=[*_FLAGS], timeout=_PATIENCE_MS)
        yield browser
        browser.close()


def open_selection(page: Page) -> None:
    """Open what selects the profiles of a page of a service; it is closed at first."""
    page.locator(".selected > summary").click()


def query(page: Page) -> dict[str, list[str]]:
    """Return the parameters of the address of a page."""
    return parse_qs(urlsplit(page.url).query)


def choose(page: Page, name: str) -> None:
    """Click on the first call of a name."""
    page.locator(f'{CALLS}[aria-label^="{name}\\a "]').first.click()


@dataclass
class Person:
    """A signed-in user with a window.

    `faults` are errors of the console and of scripts, and requests to other hosts; `dialogs` are texts of
    dialogs that scripts opened.
    """

    server: Server
    page: Page
    faults: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def of(
        cls,
        browser: Browser,
        server: Server,
        *,
        theme: Theme = "light",
        width: str = "desktop",
        key: str | None = Server.merge_key,
        **options: Any,
    ) -> Iterator[Self]:
        """Open a window for a new user, who has signed in unless `key` is None. The form takes seconds."""
        context = browser.new_context(
            base_url=server.base_url,
            viewport={"width": WIDTHS[width], "height": 860},
            color_scheme=theme,
            **options,
        )
        context.set_default_timeout(_PATIENCE_MS)
        person = cls(server, context.new_page())
        person.watch()
        if key is not None:
            context.request.post("/ui/sign-in", form={"key": key}, max_redirects=0)
        yield person
        context.close()

    def sign_in(self, key: str = Server.merge_key) -> None:
        """Sign in by the form, which leads to the services."""
        self.page.goto("/ui")
        self.page.get_by_label("Key").fill(key)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url("**/ui/")

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window, once it is loaded."""
        self.page.wait_for_load_state()
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))

    def watch(self) -> None:
        """Record from now on what goes wrong."""
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", self._check_host)

    def _hear(self, message: ConsoleMessage) -> None:
        # Warnings about WebGL on a machine without a graphics card aren't faults of a page.
        if message.type in {"error", "warning"} and "GL Driver Message" not in message.text:
            self.faults.append(message.text)

    def _dismiss(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _check_host(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.server.base_url).netloc:
            self.faults.append(f"a request to {request.url}")
