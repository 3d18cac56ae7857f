"""A clone of the repository as the reader of a tutorial has it, in which the page's commands are pasted."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.interop.shell import pasted
from tests.oracle.oracle import go_environment
from tests.server import Server

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"


def commands(page: str) -> list[str]:
    """Return the shell blocks of a page of the documentation, in order."""
    return re.findall(r"^```sh\n(.*?)^```", (DOCS / page).read_text(), flags=re.MULTILINE | re.DOTALL)


def checked_commands(page: str, script: Path) -> list[str]:
    """Return a page's blocks of commands, each a script that needs none but the first before it.

    `script` is a file to write.
    """
    blocks = commands(page)
    for block in blocks:
        script.write_text(block)
        subprocess.run(["bash", "-n", script], check=True)
    # Each block is run by a shell of its own, after the first.
    assert not any(re.search(r"^\w+\(\) \{", block, re.MULTILINE) for block in blocks[1:])
    return blocks


class Clone:
    """A folder with what the tutorials use of a clone after `make serve`: sources, tools and keys.

    Commands run at the server's address. `instead` names what else of a page is replaced, and by what.
    """

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self._server = server
        folder.mkdir(exist_ok=True)
        shutil.copy(ROOT / ".gitignore", folder)
        for name in ("tutorial-go", "tutorial-c"):
            shutil.copytree(DOCS / name, folder / "docs" / name)
        (folder / "tests").symlink_to(ROOT / "tests")
        (folder / ".venv").symlink_to(sys.prefix)
        (folder / "profiles").mkdir()
        for keys in (server.submit_keys, server.merge_keys):
            shutil.copy(keys, folder / "profiles")
        self._git("init", "--quiet")
        self._git("add", "--all")

    def paste(
        self,
        commands: str,
        instead: dict[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Return what the commands print; fail if one does. `environment` has more variables for them."""
        for there, here in {"http://127.0.0.1:8080": self._server.base_url, **(instead or {})}.items():
            commands = re.sub(there, here, commands)
        return pasted(commands, self.folder, {**go_environment(), **(environment or {})})

    def untracked(self) -> list[str]:
        """Return the files that git neither has nor ignores."""
        return self._git("ls-files", "--others", "--exclude-standard").splitlines()

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout
