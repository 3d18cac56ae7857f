"""The C tutorial as a reader meets it: its commands, pasted into a shell, with real perf and clang."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.interop.native_program import needs_clang_and_perf
from tests.interop.tutorial import Clone, commands
from tests.server import Server

pytestmark = needs_clang_and_perf
SHORTER = {r"json 600\b": "json 60"}


def test_the_commands_build_a_guided_program(tmp_path: Path) -> None:
    """Takes over 20 s on a busy machine: three recordings, and two builds with clang."""
    clone = Clone(tmp_path / "clone", Server(tmp_path / "server"))
    path, build, profile, show, merge, guide = commands("tutorial-c.md")
    for step in (path + build, path + profile):
        clone.paste(step, SHORTER)
    assert re.search(r"\d%  next$", clone.paste(path + show), flags=re.MULTILINE)
    clone.paste(path + merge)
    made = clone.folder / ".dev" / "tutorial-c"
    assert re.search(r"^next:[1-9]\d*:0\n 1: \d+$", (made / "json.prof").read_text(), flags=re.MULTILINE)
    flags = build.splitlines()[0]
    clone.paste(f"{flags}\n{guide}")
    plain, guided = (
        subprocess.run([made / name, "1"], check=True, capture_output=True, text=True).stdout
        for name in ("json", "json-guided")
    )
    assert plain == guided
    assert clone.untracked() == []
