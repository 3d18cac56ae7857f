"""Events of stored profiles, delivered to a real receiver: their content and their signatures."""

from __future__ import annotations

import base64
import secrets
import time
from pathlib import Path

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tests.collector.webhooks import (
    SECRET,
    deliveries,
    profiles_in,
    send,
    started,
    wait_until_none_wait,
    waiting,
)
from tests.faults.stacks import profile_of
from tests.receiver import Answer, Receiver
from tests.server import Server, bearer


def test_an_event_describes_the_stored_profile(hooked: Server) -> None:
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


def test_each_new_profile_has_one_event_whichever_api_it_came_by(hooked: Server) -> None:
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


def test_no_events_are_stored_without_a_webhook(server: Server) -> None:
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
