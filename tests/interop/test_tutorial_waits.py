"""The tutorial on waits as a reader meets it: its commands, pasted into a shell, with a real PostgreSQL."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.latency.waiting import needs_tracker
from tests.interop.listening import free_port
from tests.interop.postgres_cluster import MISSING, only_postgres
from tests.interop.shell import pasted
from tests.oracle.oracle import go_environment

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial-waits.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.system("root"),
]


@pytest.fixture
def paste(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Runs commands where a reader would, and gives what they print."""
    needs_tracker("offcpu")
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    home = tempfile.mkdtemp(prefix="tutorial-")
    Path(home).chmod(0o755)  # a reader's /tmp is open to the user `postgres`
    instead = {"/tmp/tutorial-waits": f"{home}/waits", "PGPORT=5498": f"PGPORT={free_port()}"}  # noqa: S108 - as the page has it
    start, *_, cleaning = BLOCKS

    def run(commands: str) -> str:
        script = start + commands
        for there, here in instead.items():
            script = script.replace(there, here)
        return pasted(script, tmp_path, go_environment())

    with only_postgres():
        try:
            yield run
        finally:
            run(cleaning)
            assert [*Path(home).iterdir()] == []
            shutil.rmtree(home)


def test_the_lock_is_found_as_the_page_says(paste: Callable[[str], str]) -> None:
    """Takes some 20 s: the page tracks for 5 s, and the tracker is compiled before."""
    _, preparing, tracking, reading, waking, counting, _ = BLOCKS
    paste(preparing)
    counts = [int(number) for number in re.findall(r"(\d+) (?:seen|reported|below|dropped)", paste(tracking))]
    assert counts[0] == sum(counts[1:]) > 20
    rows = re.findall(r"([\d.]+)(m?)s +[\d.]+%  (\w+)$", paste(reading), re.MULTILINE)
    seconds = {name: float(number) / (1000 if milli else 1) for number, milli, name in rows}
    assert {
        "LockAcquireExtended",
        "LockTuple",
        "XactLockTableWait",
        "ProcSleep",
        "pg_sleep",
    } <= seconds.keys()
    # Three wait for the lock while one has it.
    assert seconds["LockAcquireExtended"] >= seconds["ProcSleep"] > seconds["pg_sleep"]
    assert "CommitTransactionCommand" in paste(waking)
    assert re.search(r"latency: Total .*s of ", paste(counting))
