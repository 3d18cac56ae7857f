"""The server is killed at operations on disk, in turn: each stored profile has exactly one event."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.constants import WEBHOOK_SECONDS
from tests.faults.campaign import Check, Strike, kill_at_points, lanes_in
from tests.faults.killer import Mode
from tests.faults.lane import KillableZygote, Lane, Tally, profile_named, submitted
from tests.faults.sample import Sample
from tests.faults.stacks import DAY, EPOCH

# The letter of the new profile, see `profile_named`.
NEW = "n"


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return the settings of a collector whose events all wait, since the receiver never answers."""
    secret = tmp_path / "secret"
    secret.write_text(f"whsec_{'A' * 32}\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield {
            "PGOF_WEBHOOK_URL": f"http://127.0.0.1:{listener.getsockname()[1]}/",
            "PGOF_WEBHOOK_SECRET_FILE": str(secret),
            WEBHOOK_SECONDS: "600",
        }


def three_profiles(lane: Lane) -> None:
    submitted(lane.start(), *"abc")


def submit(lane: Lane, mode: Mode, target: int) -> bool:
    return lane.struck_request(mode, target, lambda server: server.submit(profile_named(NEW)))


def told(lane: Lane) -> Tally:
    """Return the letters, which stand for days, of the profiles that have events."""
    with closing(sqlite3.connect(lane.data / "catalog.sqlite3")) as catalog:
        bodies = [json.loads(body) for (body,) in catalog.execute("SELECT body FROM outbox")]
    nanos = (int(body["data"]["id"].rpartition("/")[2].partition("-")[0]) for body in bodies)
    return Counter(chr((each - EPOCH) // DAY) for each in nanos)


def check_submit(lane: Lane, done: bool) -> None:
    """Check that the retry is answered as stored, and that the event is there from then on."""
    server = lane.start()
    if done:
        assert told(lane)[NEW] == 1
    submitted(server, NEW)
    assert told(lane) == Counter(f"abc{NEW}")


def check_reindex(lane: Lane, done: bool) -> None:
    """Check that no event is lost, and that profiles which a reindex finds get no new ones."""
    del done
    submitted(lane.start(), *"abc")
    assert told(lane) == Counter("abc")


@pytest.mark.parametrize(
    ("strike", "check"),
    [(submit, check_submit), (Lane.struck_reindex, check_reindex)],
    ids=["submit", "reindex"],
)
def test_killed(
    tmp_path: Path,
    killable: KillableZygote,
    settings: dict[str, str],
    sample: Sample,
    *,
    strike: Strike,
    check: Check,
) -> None:
    """Takes up to 40 s at all points: dozens of kills and restarts."""
    with lanes_in(tmp_path, killable, settings) as lanes:
        kill_at_points(lanes, three_profiles, strike, check, sample)
