"""Events of stored profiles: to a real receiver, once if all goes well, and at least once if not."""

from __future__ import annotations

import base64
import secrets
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tests.faults.stacks import EPOCH, SECOND, profile_of
from tests.receiver import Answer, Received, Receiver
from tests.server import Server, bearer

SECRET = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"


@pytest.fixture
def hooked(stopped: Server) -> Server:
    """A collector that isn't running, and that will deliver to nobody yet."""
    file = stopped.home / "webhook_secret"
    file.write_text(f"{SECRET}\n")
    stopped.environment["PGOF_WEBHOOK_SECRET_FILE"] = str(file)
    stopped.environment["PGOF_METRICS_OPEN"] = "true"
    return stopped


def started(server: Server, receiver: Receiver, **settings: str) -> Server:
    """The collector, with events for the receiver."""
    server.environment["PGOF_WEBHOOK_URL"] = receiver.url
    server.environment.update({f"PGOF_WEBHOOK_{name.upper()}": value for name, value in settings.items()})
    server.start()
    return server


def send(server: Server, *names: str, **query: str) -> None:
    for name in names:
        profile = profile_of(name, time_nanos=EPOCH + ord(name[0]) * SECOND)
        assert server.submit(profile, query=query).status_code == 204


def profiles_in(received: list[Received]) -> list[str]:
    return [each.event["data"]["id"] for each in received]


def waiting(server: Server) -> int:
    """How many events are in the outbox."""
    with closing(sqlite3.connect(server.data / "catalog.sqlite3")) as catalog:
        return int(catalog.execute("SELECT count(*) FROM outbox").fetchone()[0])


def wait_until_none_wait(server: Server) -> None:
    deadline = time.monotonic() + 120
    while waiting(server):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def deliveries(server: Server) -> dict[str, float]:
    """What the metrics say of events, by outcome."""
    lines = server.client.get("/metrics").text.splitlines()
    found = (line.rsplit(" ", 1) for line in lines if line.startswith("pgo_collector_deliveries_total{"))
    return {series.split('"')[1]: float(value) for series, value in found if float(value)}


def test_an_event_tells_of_a_profile(hooked: Server) -> None:
    with Receiver() as receiver:
        server = started(hooked, receiver)
        before = time.time()
        profile = profile_of("a")
        server.submit(profile, query={"service": "shop", "labels": "version=1.4,region=eu"})
        (received,) = receiver.wait_for(1)
        listed = server.ask("/v1/profiles", service="shop").json()["profiles"][0]
    assert received.path == "/events"
    assert received.headers["content-type"] == "application/json"
    event = received.event
    shared = {"id", "service", "time", "duration_seconds", "labels", "bytes", "samples"}
    stored_at = event["timestamp"]
    assert event == {
        "type": "profile.stored",
        "id": received.id,
        "timestamp": stored_at,
        "data": {name: listed[name] for name in shared} | {"type": "cpu", "stored_at": stored_at},
    }
    assert event["data"]["bytes"] == len(profile)
    assert stored_at >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(before))


def test_each_new_profile_has_one_event_by_whichever_api(hooked: Server) -> None:
    with Receiver() as receiver:
        server = started(hooked, receiver)
        send(server, "a", "b", "a")
        for _ in range(2):
            server.client.post(
                "/api/0/profiles?service=s&type=cpu",
                content=profile_of("c"),
                headers=bearer(Server.submit_key),
            )
        server.submit(b"no profile")
        server.combine()
        send(server, "a")
        receiver.wait_for(3)
        wait_until_none_wait(server)
        assert deliveries(server) == {"delivered": 3}
        assert server.stop() == 0
    assert len({*receiver.ids}) == len(receiver.received) == 3
    assert [each.split("/")[0] for each in sorted(profiles_in(receiver.received))] == [
        "default",
        "default",
        "s",
    ]


def test_the_signature_is_that_of_standard_webhooks(hooked: Server) -> None:
    with Receiver() as receiver:
        send(started(hooked, receiver), "a")
        (received,) = receiver.wait_for(1)
    assert Webhook(SECRET).verify(received.body, received.headers) == received.event
    assert abs(int(received.headers["webhook-timestamp"]) - time.time()) < 60
    for wrong in (
        {**received.headers, "webhook-id": "another"},
        {**received.headers, "webhook-timestamp": str(int(time.time()) + 1)},
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(received.body, wrong)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(received.body + b" ", received.headers)


def test_a_secret_is_replaced_without_a_restart(hooked: Server) -> None:
    new = f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"
    file = Path(hooked.environment["PGOF_WEBHOOK_SECRET_FILE"])
    with Receiver() as receiver:
        server = started(hooked, receiver)
        file.write_text(f"{new}\n{SECRET}\n")
        send(server, "a")
        receiver.wait_for(1)
        file.write_text(f"{new}\n")
        send(server, "b")
        both, last = receiver.wait_for(2)
    for secret in (SECRET, new):
        Webhook(secret).verify(both.body, both.headers)
    Webhook(new).verify(last.body, last.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(last.body, last.headers)


@pytest.mark.parametrize(
    "text", ["", "secret\n", "whsec_!!!\n", "whsec_c2hvcnQ=\n", f"{SECRET}\nwhsec_\n", "ä\n"]
)
def test_without_a_secret_it_does_not_start(hooked: Server, text: str) -> None:
    Path(hooked.environment["PGOF_WEBHOOK_SECRET_FILE"]).write_text(text)
    hooked.environment["PGOF_WEBHOOK_URL"] = "http://127.0.0.1:9/"
    finished = hooked.run("serve")
    assert finished.returncode == 2
    assert "webhook_secret" in finished.stderr
    assert SECRET not in finished.stderr


@pytest.mark.parametrize("url", ["", "example.org", "ftp://example.org/", "http://", "http://a b/"])
def test_a_url_is_one_of_http(hooked: Server, url: str) -> None:
    hooked.environment["PGOF_WEBHOOK_URL"] = url
    finished = hooked.run("serve")
    assert finished.returncode == 2
    assert "PGOF_WEBHOOK_URL" in finished.stderr


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


def test_a_failure_is_tried_again_with_the_same_id_and_longer_and_longer_pauses(hooked: Server) -> None:
    """Takes 10 s: three pauses, of 0.5 to 4 s."""
    with Receiver(lambda before: Answer(500 if len(before) < 4 else 200)) as receiver:
        server = started(hooked, receiver)
        send(server, "a")
        received = receiver.wait_for(4)
        wait_until_none_wait(server)
        assert deliveries(server) == {"failed": 3, "delivered": 1}
    assert len({*receiver.ids}) == 1
    assert len({each.body for each in received}) == 1
    for each in received:
        Webhook(SECRET).verify(each.body, each.headers)
    pauses = [later.at - earlier.at for earlier, later in pairwise(received)]
    assert all(pause >= least for pause, least in zip(pauses, (0.5, 1, 2), strict=True))
    assert [line["reason"] for line in server.events("event not delivered")] == ["status 500"] * 3


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 404, 429, 503])
def test_whatever_is_no_success_is_tried_again_and_no_redirect_is_followed(
    hooked: Server, status: int
) -> None:
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
    headers = (("Retry-After", "4"),)
    with Receiver(lambda before: Answer(429, headers) if len(before) == 1 else Answer()) as receiver:
        server = started(hooked, receiver)
        send(server, "a")
        receiver.wait_for(1)
        send(server, "b", "c")
        received = receiver.wait_for(4)[:4]
    assert received[1].at - received[0].at >= 4


def test_one_event_that_is_refused_holds_up_no_other(hooked: Server) -> None:
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


def once(may_answer: Event) -> Callable[[list[Received]], Answer]:
    """The answers of a receiver that gives none before it may."""

    def answer(_: list[Received]) -> Answer:
        assert may_answer.wait(600)
        return Answer()

    return answer


def test_no_submit_waits_for_the_receiver(hooked: Server) -> None:
    may_answer = Event()
    with Receiver(once(may_answer)) as receiver:
        server = started(hooked, receiver, timeout="600")
        send(server, "a")
        receiver.wait_for(1)
        send(server, *"bcdef")
        assert waiting(server) == 6
        may_answer.set()
        wait_until_none_wait(server)
    assert len({*receiver.ids}) == len(receiver.received) == 6


def test_a_slow_receiver_is_given_up_in_time(hooked: Server) -> None:
    with Receiver(lambda before: Answer(seconds=3 if len(before) == 1 else 0)) as receiver:
        server = started(hooked, receiver, timeout="1")
        send(server, "a")
        assert "1 seconds" in server.wait_for_log("event not delivered")["reason"]
        wait_until_none_wait(server)
    assert len({*receiver.ids}) == 1
    assert len(receiver.received) >= 2  # on a busy machine, the second may take too long as well


def test_of_an_endless_answer_little_is_read(hooked: Server) -> None:
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
        server.wait_for_log("the receiver is gone, no event is tried until the next start")
        send(server, "b")
        time.sleep(3)
        assert len(receiver.received) == 1
        assert deliveries(server) == {"gone": 1}
        assert waiting(server) == 2
        server.stop()
        receiver.answer = lambda _: Answer()
        server.start()
        receiver.wait_for(3)
        wait_until_none_wait(server)
    assert len({*receiver.ids}) == 2


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
        assert not [line for line in server.log if line["level"] != "info"]
        may_answer.set()
    with Receiver(port=receiver.port) as back:
        server.start()
        back.wait_for(1)
        wait_until_none_wait(server)
    assert back.ids == receiver.ids


def test_events_that_wait_outlive_a_reindex_and_nothing_is_told_twice(hooked: Server) -> None:
    with Receiver() as receiver:
        server = started(hooked, receiver)
        send(server, "a", "b")
        receiver.wait_for(2)
        wait_until_none_wait(server)
    send(server, "c")
    server.stop()
    server.reindex()
    assert waiting(server) == 1
    with Receiver(port=receiver.port) as back:
        server.start()
        back.wait_for(1)
        wait_until_none_wait(server)
        send(server, *"abcd")
        back.wait_for(2)
    assert len(back.received) == 2


def test_events_that_wait_outlive_a_catalog_of_another_version(hooked: Server) -> None:
    with Receiver() as receiver:
        server = started(hooked, receiver)
    send(server, "a", "b")
    server.stop()
    with closing(sqlite3.connect(server.data / "catalog.sqlite3")) as catalog:
        catalog.execute("PRAGMA user_version=1")
    with Receiver(port=receiver.port) as back:
        server.start()
        assert server.events("the catalog is another version's, made anew from the blobs")
        back.wait_for(2)
        wait_until_none_wait(server)
        send(server, *"ab")
    assert len(back.received) == 2


def test_a_catalog_from_before_there_were_events_is_kept_as_it_is(hooked: Server) -> None:
    hooked.start()
    send(hooked, "a", "b")
    hooked.stop()
    with closing(sqlite3.connect(hooked.data / "catalog.sqlite3")) as catalog:
        catalog.execute("DROP TABLE outbox")
        catalog.execute("DROP TABLE made")
    with Receiver() as receiver:
        server = started(hooked, receiver)
        assert not server.events("the catalog is another version's, made anew from the blobs")
        assert not server.events("profiles taken in")
        send(server, *"abc")
        receiver.wait_for(1)
        wait_until_none_wait(server)
    assert len(receiver.received) == 1


def test_a_profile_that_was_not_counted_before_a_kill_is_news_at_the_start(hooked: Server) -> None:
    with Receiver() as receiver:
        server = started(hooked, receiver)
        for number, name in enumerate("ab", 1):  # events that wait are delivered in any order
            send(server, name)
            receiver.wait_for(number)
        wait_until_none_wait(server)
        server.kill()
        with closing(sqlite3.connect(server.data / "catalog.sqlite3")) as catalog, catalog:
            ((blob,),) = catalog.execute("SELECT max(id) FROM blobs")
            catalog.execute("DELETE FROM profiles WHERE blob_id = ?", [blob])
            catalog.execute("DELETE FROM blobs WHERE id = ?", [blob])
        server.start()
        assert server.events("profiles taken in")
        receiver.wait_for(3)
        wait_until_none_wait(server)
        send(server, "b")
        assert waiting(server) == 0
    assert profiles_in(receiver.received)[1] == profiles_in(receiver.received)[2]


def test_so_many_events_wait_and_no_more(hooked: Server) -> None:
    with Receiver() as receiver:
        server = started(hooked, receiver, events_kept="3")
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
        server = started(hooked, receiver, days=f"{2 / 86400}")
    send(server, "a")
    assert server.wait_for_log("events dropped")["reason"] == "too_old"
    assert waiting(server) == 0
    assert deliveries(server)["too_old"] == 1


def test_nothing_is_kept_for_nobody(server: Server) -> None:
    send(server, "a")
    assert waiting(server) == 0


def test_no_log_has_the_url_or_the_secret(hooked: Server) -> None:
    with Receiver(lambda before: Answer(500 if len(before) == 1 else 200)) as receiver:
        hooked.environment["PGOF_LOG_LEVEL"] = "debug"
        receiver.url = receiver.url.replace("http://", "http://user:password@")
        server = started(hooked, receiver)
        send(server, "a")
        _, last = receiver.wait_for(2)
        wait_until_none_wait(server)
        server.stop()
    assert last.headers["authorization"].startswith("Basic ")
    assert not [line for line in server.log if "password" in str(line) or SECRET in str(line)]
