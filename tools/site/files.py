"""A Sphinx extension: a link from a page to a file of the repository leads to a page that shows the file.

A link to a folder leads to a page with all its files. A link to something else is left to MyST, whose warning
fails the build.
"""

from __future__ import annotations

import html
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]

Page = tuple[str, dict[str, Any], str]


class Files:
    """The files that pages link to, by path from the root; collected while Sphinx reads the pages."""

    def __init__(self) -> None:
        self._linked: dict[str, list[Path]] = {}

    def link(self, app: Sphinx, page: nodes.document) -> None:
        """Change the links of a page that Sphinx has read."""
        unknown = filter(_is_path, page.findall(addnodes.pending_xref))
        for node in [*unknown, *page.findall(addnodes.download_reference)]:
            target = _target(node, Path(app.srcdir), app.env.docname)
            if files := _tracked(target):
                path = str(target.relative_to(ROOT))
                self._linked[path] = files
                uri = app.builder.get_relative_uri(app.env.docname, _page_of(path))
                node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=True))

    def pages(self, _app: Sphinx) -> Iterator[Page]:
        """Yield a page for each linked path."""
        for path, files in self._linked.items():
            body = "".join(_shown(file, with_name=len(files) > 1) for file in files)
            yield _page_of(path), {"title": path, "body": f"<h1>{html.escape(path)}</h1>{body}"}, "page.html"


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx. The links are known only after all pages are read, so each build reads all (-E)."""
    files = Files()
    app.connect("doctree-read", files.link, priority=400)  # before Sphinx copies them as downloads
    app.connect("html-collect-pages", files.pages)
    return {"parallel_read_safe": False}


def _is_path(link: addnodes.pending_xref) -> bool:
    """Return whether a link may lead to a folder or to a page outside the site, which MyST doesn't know."""
    is_known = link["refdomain"] == "doc" and not link["reftarget"].startswith("/")
    return link["reftype"] == "myst" and not is_known and "/" in link["reftarget"]  # an anchor has none


def _target(link: nodes.Element, pages: Path, page: str) -> Path:
    """Return the target of a link of a page. MyST names a page by its path from docs/, without a suffix."""
    if link.get("refdomain") == "doc":
        return Path(os.path.normpath(pages / f"{link['reftarget']}.md"))
    return Path(os.path.normpath((pages / page).parent / link["reftarget"]))


def _page_of(path: str) -> str:
    return f"files/{path}"


def _tracked(target: Path) -> list[Path]:
    """Return the file, or all files in a folder, that git tracks or doesn't ignore."""
    if not target.is_relative_to(ROOT) or not target.exists():
        return []
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", str(target)]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - fixed
    return [ROOT / line for line in listed.stdout.splitlines()]


def _shown(file: Path, *, with_name: bool) -> str:
    text = file.read_text()
    try:
        lexer = get_lexer_for_filename(file.name, text)
    except ClassNotFound:
        lexer = TextLexer()
    name = f"<h2>{html.escape(str(file.relative_to(ROOT)))}</h2>" if with_name else ""
    return name + highlight(text, lexer, HtmlFormatter(cssclass="highlight"))
