"""The documentation site: it builds without warnings, from fresh pages, and needs no other host."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tools.site.build import DOCS
from tools.site.reference.pages import FOLDER, files

ROOT = DOCS.parent
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "srcset")}


def built(out: Path, *docs: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make docs` does."""
    build = "import sys; from pathlib import Path; from tools.site.build import build; "
    command: list[str | Path] = [
        sys.executable,
        "-c",
        build + "sys.exit(build(*map(Path, sys.argv[1:])))",
        out,
        *docs,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = built(out)
    assert (done.returncode, done.stderr) == (0, "")
    return out


class Tags(HTMLParser):
    """The tags of a page: its ids, its links, and the files that it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif (tag, name) == ("a", "href"):
                self.links.append(value or "")
            elif (tag, name) in LOADED:
                self.loaded.append(value or "")


@pytest.fixture(scope="module")
def tags(site: Path) -> dict[Path, Tags]:
    return {page: Tags(page) for page in site.rglob("*.html")}


def test_what_is_made_from_the_code_is_fresh() -> None:
    made = files()
    assert {*FOLDER.glob("*.md")} <= made.keys()
    stale = [file.name for file, text in made.items() if not file.exists() or file.read_text() != text]
    assert not stale, "call `make docs`"
    lines = "\n".join(made.values())
    for beginning, least in (("| `PGOF_", 20), ("## pgo", 10), ("## /v1/", 10), ("| `pgo_collector_", 20)):
        assert lines.count(f"\n{beginning}") > least, beginning


@pytest.mark.exhaustive
def test_every_page_of_the_repository_is_there(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").exists()


def elsewhere(links: list[str]) -> list[str]:
    return [link for link in links if urlsplit(link).netloc]


@pytest.mark.exhaustive
def test_nothing_is_loaded_from_another_host(site: Path, tags: dict[Path, Tags]) -> None:
    assert {page: found for page, of in tags.items() if (found := elsewhere(of.loaded))} == {}
    for page, of in tags.items():
        for link in of.loaded:
            assert link.startswith("data:") or (page.parent / unquote(urlsplit(link).path)).exists(), link
    styles = [*site.rglob("*.css")]
    assert styles
    for style in styles:
        assert not re.search(r"(url\(|@import )[\"']?(https?:)?//", style.read_text()), style


@pytest.mark.exhaustive
def test_every_link_leads_somewhere(site: Path, tags: dict[Path, Tags]) -> None:
    assert sum(len(of.links) for of in tags.values()) > 1000
    for page, of in tags.items():
        for link in of.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.is_file(), f"{page.relative_to(site)}: {link}"
            assert not parts.fragment or unquote(parts.fragment) in tags[target].ids, f"{page}: {link}"


@pytest.mark.exhaustive
def test_files_and_folders_of_the_repository_are_shown(site: Path) -> None:
    shown = (site / "files/deploy/systemd/pgo-collector.service.html").read_text()
    assert "ProtectSystem" in shown
    folder = (site / "files/deploy/compose.html").read_text()
    assert all(file.name in folder for file in (ROOT / "deploy" / "compose").iterdir())
    links = (site / "deploy.html").read_text()
    for page in ("files/deploy/compose.html", "files/agent/README.md.html"):
        assert f'href="{page}"' in links
        assert (site / page).exists()


def test_what_is_not_there_fails_the_build(tmp_path: Path) -> None:
    """The build goes on after a warning, so one build tells of each page."""
    wrong = {
        "page": "[a](gone.md)",
        "heading": "[a](#gone)",
        "file": "[a](deploy/gone.yml)",
        "above": "[a](../deploy/gone.md)",
        "elsewhere": "[a](right.md#gone)",
        "picture": "![a](gone.png)",
        "table": "```{toctree}\ngone\n```",
    }
    docs = tmp_path / "docs"
    docs.mkdir()
    listed = "\n".join(["right", *wrong])
    (docs / "index.md").write_text(f"# A\n\n```{{toctree}}\n{listed}\n```\n")
    (docs / "right.md").write_text("# Right\n\n[a](index.md)\n")
    for name, content in wrong.items():
        (docs / f"{name}.md").write_text(f"# {name}\n\n{content}\n")
    done = built(tmp_path / "out", docs)
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if "WARNING" in line and "gone" in line]
    assert {name for name in wrong if any(f"{name}.md" in line for line in told)} == {*wrong}, done.stderr
    assert not any("right.md:" in line for line in told)


def test_a_page_without_a_place_in_the_navigation_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("# A\n")
    (tmp_path / "lost.md").write_text("# Lost\n")
    done = built(tmp_path / "out", tmp_path)
    assert done.returncode == 1
    assert "lost.md" in done.stderr
