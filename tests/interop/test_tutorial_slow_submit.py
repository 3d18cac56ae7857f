"""The tutorial on slow submits as a reader meets it: its commands, pasted into a shell, with a collector."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.listening import free_port
from tests.interop.tutorial import Clone, commands
from tests.server import Server

START, SERVING, SENDING, SHOWING, LOCKING, LISTING, ASKING, ADDING, CLEANING = commands(
    "tutorial-slow-submit.md"
)
# The slow steps take far longer than on the page, so that they are the longest on a busy machine, too.
SLOWER = {r"sleep 3": "sleep 10", r"time\.sleep\(5\)": "time.sleep(20)"}


@pytest.fixture
def paste(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Runs commands where a reader would, and gives what they print."""
    clone = Clone(tmp_path / "clone", Server(tmp_path / "server"))
    instead = {r"127\.0\.0\.1:8090": f"127.0.0.1:{free_port()}", **SLOWER}

    def run(commands: str) -> str:
        return clone.paste(START + commands, instead)

    try:
        yield run
    finally:
        run(CLEANING)
    assert clone.untracked() == []
    assert not (clone.folder / ".dev" / "tutorial-slow-submit").exists()


def _self_times(shown: str) -> dict[str, float]:
    """Return the largest self time of the steps of each name, in ms, in what `trace show` prints."""
    rows = re.findall(r"^ *[\d.]+ +[\d.]+ +([\d.]+)  +(.*?)(?:  \[.*)?$", shown, flags=re.MULTILINE)
    found: dict[str, float] = {}
    for nanos, name in rows:
        found[name] = max(found.get(name, 0.0), float(nanos))
    return found


@pytest.mark.exhaustive
def test_the_slow_step_is_found_as_the_page_says(paste: Callable[[str], str]) -> None:
    """Takes over 20 s: two submits wait for that long, which no other step on a busy machine does."""
    paste(SERVING)
    paste(SENDING)
    network = _self_times(paste(SHOWING))
    assert {"key check", "inflate", "decode", "COMMIT", "answer"} <= network.keys()
    assert max(network, key=network.__getitem__) == "body"
    lock = _self_times(paste(LOCKING))
    assert max(lock, key=lock.__getitem__) == "BEGIN"
    assert re.findall(r"^[0-9a-f]{32} .* 204  POST /v1/submit (\w+)$", paste(LISTING), re.MULTILINE)
    assert '"service":"shop"' in paste(ASKING)
    totals = re.findall(r"([\d.]+)(m?)s +[\d.]+% +[\d.]+% +\S+ +[\d.]+%  (.+)$", paste(ADDING), re.MULTILINE)
    assert {name for _, _, name in totals[:2]} == {"body", "BEGIN"}
