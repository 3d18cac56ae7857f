"""Write the reference pages; `make docs` runs it before Sphinx."""

from __future__ import annotations

from tools.site.reference.pages import FOLDER, pages
from tools.site.reference.trackers import PAGE, with_trackers


def main() -> None:
    """Write the pages that have changed, and the table in the one of latency trackers."""
    FOLDER.mkdir(exist_ok=True)
    made = {FOLDER / name: text for name, text in pages().items()}
    for file, text in (made | {PAGE: with_trackers(PAGE.read_text())}).items():
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


main()
