"""What the pages on merging and compilers print at their beginning is what their commands print."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.interop.shell import pasted
from tests.oracle.oracle import go_environment

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["merging.md", "pgo.md"])
def test_the_first_example_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / page).read_text()
    found = re.search(r"^```sh\n(.*?)^```\n\n```\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    commands, shown = found.groups()
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    assert pasted(commands, tmp_path, {**os.environ, **go_environment()}) == shown
    assert sorted(file.name for file in tmp_path.iterdir()) == [".venv", "tests"]
