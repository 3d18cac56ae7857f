"""`pprof-merge view` without the pages; tests/collector/serve/test_view.py is about these."""

from __future__ import annotations

import subprocess
import sys

from tests.merge.command.installed import PPROF_MERGE

# The command as it would run without other packages that add to it.
_ALONE = """
import importlib.metadata, sys
importlib.metadata.entry_points = lambda **_: ()
from pprof_merge.command.cli import main
sys.exit(main(["view", "cpu.pb.gz"]))
"""


def test_it_says_what_to_install() -> None:
    ended = subprocess.run([sys.executable, "-c", _ALONE], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "pprof-merge: view needs the collector's pages: pip install pgo-collector\n"


def test_more_than_two_files_are_not_compared() -> None:
    ended = subprocess.run([PPROF_MERGE, "view", *"abc"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "give one file, or two to compare" in ended.stderr
