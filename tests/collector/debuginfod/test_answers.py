"""Answers of debuginfod servers are remembered in the store, within bounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_collector.blobs.folder import FolderStorage
from pgo_collector.debuginfod.answers import Answers
from pgo_collector.model.debuginfod_servers import parse_servers

pytestmark = pytest.mark.any_store

NOW = 1_800_000_000
MINUTE, HOUR, DAY = 60, 3600, 86_400
ONE, OTHER = parse_servers("http://one"), parse_servers("http://one http://other")


def build(number: int) -> str:
    return f"{number:040x}"


@pytest.fixture
def storage(tmp_path: Path) -> FolderStorage:
    (tmp_path / "incoming").mkdir()
    return FolderStorage(tmp_path / "binaries", tmp_path / "incoming")


def loaded(storage: FolderStorage, now: int = NOW, per_hour: int = 10) -> Answers:
    answers = Answers(storage, ONE, per_hour)
    answers.load(now)
    return answers


def test_what_is_missing_is_asked_for_again_after_longer_and_longer(storage: FolderStorage) -> None:
    answers, now, pauses = loaded(storage), NOW, []
    for _ in range(10):
        assert answers.is_due(build(1), now)
        answers.note(build(1), "missing", now)
        answers.save(now)
        answers = loaded(storage, now)  # as another collector, or after a restart
        pause = next(
            pause for pause in range(0, 2 * DAY, 5 * MINUTE) if answers.is_due(build(1), now + pause)
        )
        pauses.append(pause // MINUTE)
        now += pause
    assert pauses == [10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440]
    answers.note(build(1), "found", now)
    answers.note(build(1), "failed", now + DAY)
    assert answers.is_due(build(1), now + DAY + 10 * MINUTE)


@pytest.mark.parametrize("outcome", ["found", "unusable"])
def test_what_was_there_is_not_asked_for_again_for_a_day(outcome: str, storage: FolderStorage) -> None:
    answers = loaded(storage)
    answers.note(build(1), "found" if outcome == "found" else "unusable", NOW)
    assert not answers.is_due(build(1), NOW + DAY - 1)
    assert answers.is_due(build(1), NOW + DAY)
    assert answers.is_due(build(2), NOW)


def test_an_hour_and_the_memory_are_bounded(storage: FolderStorage) -> None:
    answers, number = loaded(storage), 0
    for hour in range(100):
        now = NOW + hour * HOUR
        assert answers.left(now) == 10
        while answers.left(now):
            answers.note(build(number), "missing", now)
            number += 1
        answers.save(now)
        assert loaded(storage, now + MINUTE).left(now + MINUTE) == 0
    assert number == 1000
    stored = json.loads((storage.root / "_debuginfod" / "answers.json").read_text())
    assert len(stored["answers"]) <= 10 * 26


def test_a_clock_that_was_ahead_and_other_servers_leave_nothing(storage: FolderStorage) -> None:
    answers = loaded(storage)
    answers.note(build(1), "missing", NOW)
    answers.save(NOW)
    assert not loaded(storage).is_due(build(1), NOW)
    assert answers.is_due(build(1), NOW - DAY)
    earlier = loaded(storage, NOW - DAY)
    assert (earlier.is_due(build(1), NOW), earlier.left(NOW)) == (True, 10)
    others = Answers(storage, OTHER, 10)
    others.load(NOW)
    assert others.is_due(build(1), NOW)


@given(
    st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["servers", "answers", build(1)]), inner)
        ),
    )
)
def test_damage_is_forgotten(tmp_path_factory: pytest.TempPathFactory, content: object) -> None:
    home = tmp_path_factory.mktemp("store")
    storage = FolderStorage(home / "binaries", home)
    kept = Answers(storage, ONE, 10)
    kept.save(NOW)
    file = storage.root / "_debuginfod" / "answers.json"
    if isinstance(content, dict):
        content = (
            json.loads(file.read_text()) | content | {"servers": json.loads(file.read_text())["servers"]}
        )
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    answers = loaded(storage)
    answers.note(build(2), "missing", NOW)
    answers.save(NOW)
    assert not loaded(storage).is_due(build(2), NOW)
