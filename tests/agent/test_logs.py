"""The agent's log events: a key with its fields, on one line."""

from __future__ import annotations

import logging

import pytest
from pgo_agent.logs import EventLogger


def test_a_message_is_the_event_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "some.program")
    log = EventLogger("some.program")
    log.info("profile sent", ms="1.204", trace="6b0d")
    log.warning("profile dropped", reason='413: "too\nlarge"', folder="/tmp/ä b", path="")  # noqa: S108 - not opened
    log.error("profiler already running")
    assert [record.getMessage() for record in caplog.records] == [
        "profile sent: ms=1.204 trace=6b0d",
        r'profile dropped: reason="413: \"too\nlarge\"" folder="/tmp/ä b" path=""',
        "profiler already running",
    ]
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "ERROR"]
    assert {record.name for record in caplog.records} == {"some.program"}
    assert {record.funcName for record in caplog.records} == {
        test_a_message_is_the_event_with_its_fields.__name__
    }
    first = caplog.records[0]
    assert vars(first)["event"] == "profile sent"
    assert vars(first)["fields"] == {"ms": "1.204", "trace": "6b0d"}


def test_an_exception_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        bytes(-1)
    except ValueError:
        EventLogger("some.program").exception("profile failed", target="a=b")
    assert 'profile failed: target="a=b"' in caplog.text
    assert "ValueError" in caplog.text


def test_what_nobody_hears_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    class Unwritable:
        def __str__(self) -> str:
            raise AssertionError

    caplog.set_level(logging.WARNING, "some.program")
    EventLogger("some.program").info("sampling", profiler=Unwritable())
    assert not caplog.records
