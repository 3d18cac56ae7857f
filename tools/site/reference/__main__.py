"""Write the reference pages; `make docs` runs it before Sphinx."""

from __future__ import annotations

from tools.site.reference.pages import FOLDER, pages


def main() -> None:
    """Write the pages that have changed."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        file = FOLDER / name
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


main()
