"""The lines that a command runs are marked in each of its processes, however they end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tools import lines

_SOURCE = """\
\"\"\"Not a statement.\"\"\"
from __future__ import annotations
import os, signal

def child(kills):
    if kills:
        os.kill(os.getpid(), signal.SIGKILL)
        print("never")
    else:
        os._exit(0)

for kills in (True, False):
    if os.fork():
        os.wait()
    else:
        child(kills)
"""
_BEGIN = "import sys; from pathlib import Path; from tools.lines import begin; begin(Path(sys.argv[1])); "


def test_lines_of_killed_and_forked_processes_count(tmp_path: Path) -> None:
    source = tmp_path / "forks.py"
    source.write_text(_SOURCE)
    (tmp_path / "offsets").write_text(json.dumps({str(source): 0}))
    (tmp_path / "marks").write_bytes(bytes(100))
    program = f"{_BEGIN} sys.path.insert(0, sys.argv[1]); import forks"
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True)
    ran = {number for number, mark in enumerate((tmp_path / "marks").read_bytes()) if mark}
    assert lines.lines(source) == {3, 5, 6, 7, 8, 10, 12, 13, 14, 16}
    assert ran == lines.lines(source) - {8}
