"""Answers of a cluster's workers, which anyone who reaches the cluster could send: none is unpickled."""

from __future__ import annotations

import json
from struct import pack

import pytest
from pgo_collector.engine.tasks import Unreadable
from pgo_collector.model.facts import Facts
from pgo_collector.workers.bulk_answers import (
    Answer,
    AnswerMalformed,
    answering,
    facts_as_json,
    facts_of,
    read_answer,
    unreadable_of,
)

pytestmark = pytest.mark.any_store

FACTS = Facts(1, 2, "ab" * 32, 3, 4)


def test_an_answer_is_read_as_it_was_given() -> None:
    given = Answer({"facts": facts_as_json([FACTS, Unreadable("it is damaged")])}, b"rows")
    assert read_answer(answering(lambda: given)()) == given
    said = read_answer(answering(lambda: given)()).said
    assert facts_of(said["facts"], 2) == [FACTS, Unreadable("it is damaged")]
    assert unreadable_of({"one": "damaged"}, ["one", "two"]) == {"one": "damaged"}


def test_a_task_that_fails_says_why() -> None:
    def fail() -> Answer:
        raise MemoryError("too large")

    assert read_answer(answering(fail)()).said == {"fails": "MemoryError: too large"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "isn't bytes"),
        ("text", "isn't bytes"),
        (b"short", "isn't bytes"),
        (pack("<Q", 3) + b"{}", "ends too early"),
        (pack("<Q", 2) + b"no", "has no JSON"),
        (pack("<Q", 100_000) + b"[" * 100_000, "has no JSON"),
    ],
)
def test_what_is_no_answer_is_malformed(answer: object, reason: str) -> None:
    with pytest.raises(AnswerMalformed, match=reason):
        read_answer(answer)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (None, "more or fewer"),
        ([], "more or fewer"),
        (["unreadable", "unreadable"], "more or fewer"),
        ([None], "that no profile has"),
        ([[1, 2, "no digest", 3, 4]], "that no profile has"),
        ([[1 << 63, 2, "ab" * 32, 3, 4]], "that no profile has"),
        ([[1, 2, "ab" * 32, -3, 4]], "that no profile has"),
        ([[1, 2, "ab" * 32, 3, 4, 5]], "that no profile has"),
    ],
)
def test_facts_that_no_profile_has_are_malformed(said: object, reason: str) -> None:
    with pytest.raises(AnswerMalformed, match=reason):
        facts_of(json.loads(json.dumps(said)), 1)


@pytest.mark.parametrize("said", [None, [], {"another": "damaged"}, {"one": 1}])
def test_reasons_about_other_blobs_are_malformed(said: object) -> None:
    with pytest.raises(AnswerMalformed, match="isn't about the blobs"):
        unreadable_of(said, ["one"])
