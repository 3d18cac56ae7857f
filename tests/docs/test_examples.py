"""The examples of pages that no other test follows do what the pages say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pprof_merge import decode, encode, merge

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


def test_the_python_of_the_engines_readme_merges_files(tmp_path: Path) -> None:
    (program,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "merge" / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL
    )
    profiles = sorted((ROOT / "tests" / "testdata" / "profiles").glob("apisvc-v1-*.pb.gz"))
    (tmp_path / "profiles").mkdir()
    for profile in profiles:
        shutil.copy(profile, tmp_path / "profiles")
    (tmp_path / "profiles" / "broken.pb.gz").write_bytes(b"no profile")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("profiles/broken.pb.gz is left out: ")
    merged = [
        decode((tmp_path / "merged.pb.gz").read_bytes()),
        merge(decode(p.read_bytes()) for p in profiles),
    ]
    assert encode(merged[0]) == encode(merged[1])
