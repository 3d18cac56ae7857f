"""Markdown, as these pages need it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTE = "<!-- Made by `make docs` from the code; what is changed here by hand is lost. -->"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells may be empty, and have any text on one line."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "\n".join(f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in line)}|" for line in lines)


def code(text: object) -> str:
    """Text as code; nothing for what is empty."""
    return f"`{text}`" if str(text) else ""


def page(title: str, *blocks: str) -> str:
    """A whole page."""
    return "\n\n".join([f"# {title}", NOTE, *(block for block in blocks if block)]) + "\n"
