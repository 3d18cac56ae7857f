"""Take the pictures of the pages for docs/ again: `python -m tests.browser.pictures`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.browser.chromium import Person, Theme, chromium
from tests.browser.site import fill, fill_with_postgres, fill_with_services
from tests.server import Server

FOLDER = Path(__file__).parents[2] / "docs" / "ui"
SERVICE = "/ui/services/apisvc"
WIDTHS = {"wide": 1400, "desktop": 1180, "phone": 390}
# Theme, width, height in pixels, scroll position in pixels, and path.
Pictures = dict[str, tuple[Theme, str, int, int, str]]
PICTURES: Pictures = {
    "flame": ("light", "desktop", 860, 0, f"{SERVICE}?labels=version%3D1.5.0"),
    "labels": ("light", "desktop", 700, 0, f"{SERVICE}/top?choose=instance&labels=instance%3Dweb-1%7Cweb-2"),
    "search": ("dark", "desktop", 600, 130, "/ui/services/compiler?search=regalloc"),
    "diff": (
        "dark",
        "desktop",
        760,
        0,
        f"{SERVICE}/diff?labels=version%3D1.5.0&base_labels=version%3D1.4.2",
    ),
    "function": ("light", "desktop", 900, 240, f"{SERVICE}/function?function=compress/flate.NewWriter"),
    "memory": ("dark", "desktop", 640, 0, "/ui/services/cached?type=heap&sample_type=alloc_space"),
    "series": ("light", "desktop", 640, 260, f"{SERVICE}/series?function=runtime.mallocgc"),
    "latency": ("light", "desktop", 860, 210, "/ui/services/db/latency?type=offcpu"),
    "build": ("light", "desktop", 760, 180, f"{SERVICE}/build"),
    "phone": ("dark", "phone", 844, 0, SERVICE),
}
# Without the compiler's profile, whose one day is higher than all others.
FLEET: Pictures = {
    "fleet": ("light", "desktop", 860, 0, "/ui/"),
    "services": ("light", "desktop", 400, 100_000, "/ui/"),
}
POSTGRES: Pictures = {
    "beside": ("light", "wide", 760, 0, "/ui/services/postgres?labels=protocol%3Dsimple"),
    "postgres": ("light", "desktop", 640, 90, "/ui/services/postgres?labels=protocol%3Dsimple"),
    "postgres-diff": (
        "light",
        "desktop",
        680,
        0,
        "/ui/services/postgres/diff?labels=protocol%3Dprepared&base_labels=protocol%3Dsimple",
    ),
}


def main() -> None:
    """Take all pictures."""
    FOLDER.mkdir(exist_ok=True)
    take(FLEET, fill_with_services)
    take(PICTURES, fill)
    take(POSTGRES, fill_with_postgres)


def take(pictures: Pictures, fill_: Callable[[Server], None]) -> None:
    """Take some pictures of a collector that `fill_` has filled."""
    with tempfile.TemporaryDirectory() as home, Server(Path(home)) as server, chromium() as browser:
        fill_(server)
        for name, (theme, width, height, scrolled, path) in pictures.items():
            with Person.of(browser, server, theme=theme) as person:
                person.page.set_viewport_size({"width": WIDTHS[width], "height": height})
                person.page.goto(path)
                person.page.evaluate("top => scrollTo(0, top)", scrolled)
                person.page.screenshot(path=FOLDER / f"{name}.png")


if __name__ == "__main__":
    main()
