"""Receivers that are down, slow, or refuse: each event is delivered, and nothing else waits for them."""

from __future__ import annotations

import time
from itertools import pairwise
from threading import Event

import pytest
from standardwebhooks import Webhook

from tests.collector.webhooks import (
    SECRET,
    deliveries,
    once,
    send,
    started,
    wait_until_none_wait,
    waiting,
)
from tests.constants import WEBHOOK_SECONDS
from tests.receiver import Answer, Received, Receiver
from tests.server import Server


def test_a_receiver_that_is_down_gets_all_when_it_is_back(hooked: Server) -> None:
    with Receiver() as receiver:
        server = started(hooked, receiver)
    send(server, *"abcdefghij")
    server.wait_for_log("event not delivered")
    assert waiting(server) == 10
    with Receiver(port=receiver.port) as back:
        back.wait_for(10)
        wait_until_none_wait(server)
    assert len({*back.ids}) == len(back.received) == 10


@pytest.mark.parametrize("failures", [2, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_a_failure_is_tried_again_with_the_same_id_and_longer_and_longer_pauses(
    hooked: Server, failures: int
) -> None:
    """Takes 10 s with three failures: the pauses after them are of 0.5 to 4 s."""
    with Receiver(lambda before: Answer(500 if len(before) <= failures else 200)) as receiver:
        server = started(hooked, receiver)
        send(server, "a")
        received = receiver.wait_for(failures + 1)
        wait_until_none_wait(server)
        assert deliveries(server) == {"failed": failures, "delivered": 1}
    assert len({*receiver.ids}) == 1
    assert len({each.body for each in received}) == 1
    for each in received:
        Webhook(SECRET).verify(each.body, each.headers)
    pauses = [later.at - earlier.at for earlier, later in pairwise(received)]
    assert all(pause >= least for pause, least in zip(pauses, (0.5, 1, 2)[:failures], strict=True))
    assert [line["reason"] for line in server.events("event not delivered")] == ["status 500"] * failures


@pytest.mark.parametrize(
    "status",
    [
        302,
        503,
        *(pytest.param(other, marks=pytest.mark.exhaustive) for other in (301, 307, 400, 401, 404, 429)),
    ],
)
def test_any_failure_is_tried_again_and_no_redirect_is_followed(hooked: Server, status: int) -> None:
    with Receiver() as elsewhere, Receiver() as receiver:
        headers = (("Location", elsewhere.url),)
        receiver.answer = lambda before: Answer(status, headers) if len(before) == 1 else Answer()
        server = started(hooked, receiver)
        send(server, "a")
        first, second = receiver.wait_for(2)
        wait_until_none_wait(server)
    assert first.id == second.id
    assert elsewhere.received == []


def test_a_receiver_is_left_alone_for_as_long_as_it_asks(hooked: Server) -> None:
    headers = (("Retry-After", "2"),)
    with Receiver(lambda before: Answer(429, headers) if len(before) == 1 else Answer()) as receiver:
        server = started(hooked, receiver)
        send(server, "a")
        receiver.wait_for(1)
        send(server, "b", "c")
        received = receiver.wait_for(4)[:4]
    assert received[1].at - received[0].at >= 2


def test_a_refused_event_does_not_hold_others_up(hooked: Server) -> None:
    def answer(before: list[Received]) -> Answer:
        return Answer(400 if before[-1].event["data"]["service"] == "bad" else 200)

    with Receiver(answer) as receiver:
        server = started(hooked, receiver)
        send(server, "a", service="bad")
        server.wait_for_log("event not delivered")
        send(server, *"bcdefg")
        deadline = time.monotonic() + 120
        while waiting(server) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        server.stop()
    good = [each for each in receiver.received if each.event["data"]["service"] != "bad"]
    assert len(good) == len({each.id for each in good}) == 6


def test_no_submit_waits_for_the_receiver(hooked: Server) -> None:
    may_answer = Event()
    with Receiver(once(may_answer)) as receiver:
        server = started(hooked, receiver, {WEBHOOK_SECONDS: "600"})
        send(server, "a")
        receiver.wait_for(1)
        send(server, *"bcdef")
        assert waiting(server) == 6
        may_answer.set()
        wait_until_none_wait(server)
    assert len({*receiver.ids}) == len(receiver.received) == 6


def test_a_slow_receiver_is_given_up_in_time(hooked: Server) -> None:
    with Receiver(lambda before: Answer(seconds=3 if len(before) == 1 else 0)) as receiver:
        server = started(hooked, receiver, {WEBHOOK_SECONDS: "1"})
        send(server, "a")
        assert "1 seconds" in server.wait_for_log("event not delivered")["reason"]
        wait_until_none_wait(server)
    assert len({*receiver.ids}) == 1
    assert len(receiver.received) >= 2  # on a busy machine, the second may be too slow, too


def test_little_of_an_endless_answer_is_read(hooked: Server) -> None:
    with Receiver(lambda _: Answer(200, body=bytes(50 << 20))) as receiver:
        server = started(hooked, receiver)
        send(server, "a")
        receiver.wait_for(1)
        wait_until_none_wait(server)
        assert deliveries(server) == {"delivered": 1}


def test_a_receiver_that_is_gone_is_left_alone_until_the_next_start(hooked: Server) -> None:
    with Receiver(lambda _: Answer(410)) as receiver:
        server = started(hooked, receiver)
        send(server, "a")
        server.wait_for_log("receiver gone")
        send(server, "b")
        time.sleep(2)
        assert len(receiver.received) == 1
        assert deliveries(server) == {"gone": 1}
        assert waiting(server) == 2
        server.stop()
        receiver.answer = lambda _: Answer()
        server.start()
        receiver.wait_for(3)
        wait_until_none_wait(server)
    assert len({*receiver.ids}) == 2
