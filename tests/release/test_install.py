"""Each line of the docs that installs something, as it is written, in a new environment and offline."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.release.conftest import ROOT, Release, environment, run
from tools.dist import DISTRIBUTIONS

pytestmark = [pytest.mark.exhaustive, pytest.mark.system("npm")]
_PAGES = [ROOT / "README.md", *sorted(ROOT.glob("*/README.md")), *sorted((ROOT / "docs").glob("*.md"))]
_TEXTS = {page.name: page.read_text() for page in _PAGES}
_LINE = re.compile(r"(?<![\w/])((?:/?[\w-]+/)*pip install (?:[^`\n#]*[^`\n# ]))")


def blocks() -> list[str]:
    """Return the blocks of commands with more than one line, in which an environment is made."""
    found = [
        block
        for text in _TEXTS.values()
        for block in re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        if "pip install" in block and "-m venv" in block
    ]
    return sorted(set(found))


def lines() -> list[str]:
    """Return the other lines that install one of ours, into an environment that the reader has."""
    in_blocks = "".join(blocks())
    found = {line for text in _TEXTS.values() for line in _LINE.findall(text)}
    ours = DISTRIBUTIONS.values()
    return sorted(line for line in found if line not in in_blocks and any(name in line for name in ours))


def test_every_line_installs_from_a_release_or_from_the_clone() -> None:
    assert len(lines()) > 5
    assert len(blocks()) > 2
    for line in {line for text in _TEXTS.values() for line in _LINE.findall(text)}:
        assert "--find-links dist " in line or "--require-hashes" in line or " ./proto " in line, line


@pytest.mark.alike(1, family="a release")
@pytest.mark.parametrize("line", lines())
def test_a_line_installs_what_it_says(release: Release, line: str, tmp_path: Path) -> None:
    programs = environment(tmp_path / "mine")
    (tmp_path / "dist").symlink_to(release.files)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    run("bash", "-ec", line, cwd=tmp_path, env=release.offline | path)
    run(programs / "pip", "check", cwd=tmp_path)
    (installed,) = [name for name in DISTRIBUTIONS.values() if name in line]
    shown = run(programs / installed, "--version", cwd=tmp_path)
    assert shown.startswith(f"{installed} 1.")
    assert ", commit " in shown


@pytest.mark.alike(1, family="a release")
@pytest.mark.parametrize("block", blocks())
def test_the_commands_that_make_an_environment_install_into_it(
    release: Release, block: str, tmp_path: Path
) -> None:
    """Run the commands that don't need root; /opt is another folder."""
    folder = tmp_path / "clone"
    shutil.copytree(
        ROOT, folder, ignore=shutil.ignore_patterns(".venv", ".dev", ".git", "_compiled", "tests", "dist")
    )
    (folder / "dist").symlink_to(release.files)
    opt = tmp_path / "opt"
    opt.mkdir()
    commands = [line for line in block.splitlines() if re.search(r"-m venv|pip |sha256sum|--version", line)]
    path = tmp_path / "python"
    path.mkdir()
    (path / "python3").symlink_to(sys.executable)
    variables = release.offline | {"PATH": f"{path}:{os.environ['PATH']}"}
    text = "\n".join(commands).replace("/opt/", f"{opt}/")
    run("bash", "-ec", text, cwd=folder, env=variables)
    (programs,) = [made.parent for made in tmp_path.rglob("bin/pgo-*")][:1]
    run(programs / "pip", "check", cwd=tmp_path)
