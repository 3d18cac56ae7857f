"""Questions of a fleet: each profile has a row, and a trimming that changes a build is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.gains import fleet
from tests.gains.test_curve import drawn, profile

EVERY = profile([3000, 900, 99, 1])
KINDS = {fleet.OWN: EVERY, fleet.WHOLE: EVERY, fleet.EVEN: profile([3000]), fleet.SHARED: profile([2000])}


class Made:
    """A program of which each sample saves the same; each build is the next of `builds`."""

    name = "shop"

    def __init__(self, *builds: Path) -> None:
        self._builds = [*builds]

    @property
    def guided(self) -> Path:
        return self._builds.pop(0) if len(self._builds) > 1 else self._builds[0]

    def saved(self, profile: bytes) -> float:
        return min(sum(drawn(profile).values()), 4000) / 5000


def test_each_profile_has_a_row_beside_that_of_its_own() -> None:
    saved = fleet.saved_by(Made(Path(sys.executable)), KINDS)
    assert [*fleet.rows_of("shop", saved)] == [
        ("shop", "its own", "80.0 %", "100 %"),
        ("shop", "the same, not trimmed", "80.0 %", "100 %"),
        ("shop", "its own, each instance alike", "60.0 %", "75 %"),
        ("shop", "one of all three", "40.0 %", "50 %"),
    ]


def test_trimming_may_not_change_the_machine_code() -> None:
    with pytest.raises(AssertionError, match="trimming changed"):
        fleet.saved_by(Made(Path(sys.executable), Path("/bin/sh")), KINDS)
