"""Write the files that are made from the code; `make docs` runs it before Sphinx."""

from __future__ import annotations

from tools.site.reference.pages import FOLDER, files


def main() -> None:
    """Write the files that have changed."""
    FOLDER.mkdir(exist_ok=True)
    for file, text in files().items():
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


main()
