"""Events that wait in the outbox: through kills, stops and rebuilt catalogs, and until they are too old."""

from __future__ import annotations

import time
from threading import Event

import pytest

from tests.collector.webhooks import (
    deliveries,
    once,
    profiles_in,
    send,
    started,
    wait_until_none_wait,
    waiting,
)
from tests.constants import WEBHOOK_DAYS, WEBHOOK_EVENTS
from tests.receiver import Receiver
from tests.server import Server


def test_a_kill_between_the_answer_and_the_delivery_loses_no_event(hooked: Server) -> None:
    with Receiver() as receiver:
        server = started(hooked, receiver)
    send(server, *"abc")
    server.kill()
    with Receiver(port=receiver.port) as back:
        server.start()
        back.wait_for(3)
        wait_until_none_wait(server)
        server.kill()
        server.start()
        send(server, "d")
        back.wait_for(4)
    assert len({*back.ids}) == len(back.received) == 4


def test_a_stop_is_clean_while_a_delivery_is_under_way(hooked: Server) -> None:
    may_answer = Event()
    with Receiver(once(may_answer)) as receiver:
        server = started(hooked, receiver)
        send(server, "a")
        receiver.wait_for(1)
        assert server.stop() == 0
        assert not [line for line in server.log if line["level"] != "info" and line["event"] != "check found"]
        may_answer.set()
    with Receiver(port=receiver.port) as back:
        server.start()
        back.wait_for(1)
        wait_until_none_wait(server)
    assert back.ids == receiver.ids


def test_waiting_events_survive_a_reindex_and_none_is_sent_twice(hooked: Server) -> None:
    with Receiver() as receiver:
        server = started(hooked, receiver)
        send(server, "a", "b")
        receiver.wait_for(2)
        wait_until_none_wait(server)
    send(server, "c")
    server.stop()
    time.sleep(
        1
    )  # objects of a bucket have whole seconds; of the catalog's own second, events are made again
    server.reindex()
    assert waiting(server) == 1
    with Receiver(port=receiver.port) as back:
        server.start()
        back.wait_for(1)
        wait_until_none_wait(server)
        send(server, *"abcd")
        back.wait_for(2)
    assert len(back.received) == 2


@pytest.mark.sqlite
@pytest.mark.folder
def test_waiting_events_survive_a_catalog_of_another_version(hooked: Server) -> None:
    with Receiver() as receiver:
        server = started(hooked, receiver)
    send(server, "a", "b")
    server.stop()
    with server.catalog() as catalog:
        catalog.exec_driver_sql("UPDATE catalog_version SET version_num = '3.0'")
    with Receiver(port=receiver.port) as back:
        server.start()
        assert server.events("catalog tables replaced")
        back.wait_for(2)
        wait_until_none_wait(server)
        send(server, *"ab")
    assert len(back.received) == 2


def test_a_profile_that_was_not_counted_before_a_kill_gets_its_event_at_the_start(hooked: Server) -> None:
    with Receiver() as receiver:
        server = started(hooked, receiver)
        for number, name in enumerate("ab", 1):  # events that wait are delivered in any order
            send(server, name)
            receiver.wait_for(number)
        wait_until_none_wait(server)
        server.kill()
        with server.catalog() as catalog:
            catalog.exec_driver_sql("DELETE FROM profiles WHERE blob_id = (SELECT max(id) FROM blobs)")
            catalog.exec_driver_sql("DELETE FROM blobs WHERE id = (SELECT max(id) FROM blobs)")
        server.start()
        assert server.events("profiles recovered")
        receiver.wait_for(3)
        wait_until_none_wait(server)
        send(server, "b")
        assert waiting(server) == 0
    assert profiles_in(receiver.received)[1] == profiles_in(receiver.received)[2]


def test_the_number_of_waiting_events_is_bounded(hooked: Server) -> None:
    with Receiver() as receiver:
        server = started(hooked, receiver, {WEBHOOK_EVENTS: "3"})
    send(server, *"abcdefgh")
    server.wait_for_log("events dropped")
    deadline = time.monotonic() + 120
    while sum(line["count"] for line in server.events("events dropped")) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert waiting(server) == 3
    assert deliveries(server)["too_many"] == 5
    with Receiver(port=receiver.port) as back:
        back.wait_for(3)
        wait_until_none_wait(server)
    times = sorted(each.event["data"]["time"] for each in back.received)
    assert len(times) == 3
    assert times[0] == "2023-11-14T22:15:02Z"  # of "f"; the oldest are those that went


def test_an_event_that_is_too_old_is_dropped(hooked: Server) -> None:
    with Receiver() as receiver:
        server = started(hooked, receiver, {WEBHOOK_DAYS: f"{2 / 86400}"})
    send(server, "a")
    assert server.wait_for_log("events dropped")["reason"] == "too_old"
    assert waiting(server) == 0
    assert deliveries(server)["too_old"] == 1
