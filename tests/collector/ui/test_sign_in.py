"""Sign in to the pages: what a session permits, and to whom."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from pgo_collector.catalog.tables import ENDED_SESSIONS
from pgo_collector.http.keys import Key, KeyFile, digest_of
from pgo_collector.ui import throttle
from pgo_collector.ui.sessions import SessionTokens
from pgo_collector.ui.throttle import SignInThrottle
from starlette.requests import Request

from tests.collector.visitor import Page, Visitor
from tests.constants import SESSION_SECONDS, SIGN_IN_WAIT
from tests.faults.stacks import profile_of
from tests.server import Server, bearer, fingerprint

pytestmark = pytest.mark.any_store

COOKIE = "pgo_session"
HOST = "collector.example"


@pytest.fixture(scope="module")
def stored(shared: Server) -> Server:
    for service in ("checkout", "search", "search-eu"):
        assert shared.submit(profile_of("main.work"), query={"service": service}).status_code == 204
    return shared


def signs_in(visitor: Visitor, key: str) -> bool:
    return visitor.sign_in(key).status_code == 303


def test_who_is_not_signed_in_is_led_to_the_form_and_back(stored: Server) -> None:
    visitor = Visitor(stored, key=None)
    path = "/ui/services/checkout?last=7d&root=0"
    answer = visitor.get(path)
    assert answer.status_code == 303
    form = Page(visitor.get(answer.headers["Location"]))
    (after,) = form.all("input", name_="next")
    assert visitor.sign_in(Server.merge_key, after.attributes["value"]).headers["Location"] == path
    assert visitor.get("/ui").headers["Location"] == "/ui/"


def test_the_cookie_is_no_key_and_scripts_and_other_sites_have_no_use_of_it(stored: Server) -> None:
    cookie = Visitor(stored, key=None).sign_in(Server.merge_key).headers["Set-Cookie"]
    attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/ui", "max-age=43200"} <= attributes
    assert "secure" not in attributes
    assert Server.merge_key not in cookie
    assert digest_of(Server.merge_key.encode()).hex() not in cookie


def test_behind_https_the_cookie_stays_on_https(stored: Server) -> None:
    answer = Visitor(stored, key=None).sign_in(Server.merge_key, X_Forwarded_Proto="https")
    assert "; Secure" in answer.headers["Set-Cookie"]


@pytest.mark.parametrize("key", ["wrong", Server.submit_key, "", " "])
def test_no_other_key_signs_in(stored: Server, key: str) -> None:
    visitor = Visitor(stored, key=None)
    answer = visitor.sign_in(key)
    assert (answer.status_code, answer.headers.get("Set-Cookie")) == (403, None)
    (alert,) = Page(answer).all("p", role="alert")
    assert alert.text == "This is not a merge key."
    assert visitor.get("/ui/").status_code == 303


def test_a_key_in_the_header_is_for_the_api(stored: Server) -> None:
    assert stored.client.get("/ui/", headers=bearer(Server.merge_key)).status_code == 303


def copy_of(visitor: Visitor, server: Server) -> Visitor:
    """Return a visitor with the same cookies."""
    copy = Visitor(server, key=None)
    copy.cookies.update(visitor.cookies)
    return copy


def test_signing_out_ends_the_session_and_copies_of_it(stored: Server) -> None:
    visitor, another = Visitor(stored), Visitor(stored)
    copy = copy_of(visitor, stored)
    assert visitor.get("/ui/").status_code == copy.get("/ui/").status_code == 200
    assert visitor.post("/ui/sign-out").status_code == 303
    for path in ("/ui/", "/ui/services/checkout"):
        assert visitor.get(path).status_code == copy.get(path).status_code == 303
        assert another.get(path).status_code == 200
    assert copy.post("/ui/sign-out").status_code == 303


def test_the_end_of_a_session_outlives_a_restart_and_a_rebuild_of_the_catalog(stopped: Server) -> None:
    stopped.environment[SESSION_SECONDS] = "2"
    stopped.start()
    short = Visitor(stopped)
    short.post("/ui/sign-out")
    ended = time.time()
    stopped.environment[SESSION_SECONDS] = "3600"
    stopped.restart()
    visitor, stays = Visitor(stopped), Visitor(stopped)
    copy = copy_of(visitor, stopped)
    visitor.post("/ui/sign-out")
    stopped.restart()
    assert copy.get("/ui/").status_code == 303
    stopped.stop()
    stopped.reindex()
    stopped.start()
    assert copy.get("/ui/").status_code == 303
    assert stays.get("/ui/").status_code == 200
    time.sleep(max(ended + 3 - time.time(), 0))  # the session's two seconds, and one that was cut off
    stays.post("/ui/sign-out")
    stopped.restart()
    stopped.wait_for_log("upkeep done")
    with stopped.catalog() as catalog:  # the first is forgotten, as it would have ended by now
        assert len(catalog.execute(sa.select(ENDED_SESSIONS)).all()) == 2
    assert stays.get("/ui/").status_code == 303


@pytest.mark.parametrize("path", ["/ui/sign-in", "/ui/sign-out"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
    ],
    ids=str,
)
def test_forms_of_other_sites_are_refused(stored: Server, path: str, headers: dict[str, str]) -> None:
    visitor = Visitor(stored)
    answer = visitor.post(path, {"key": Server.merge_key}, **headers)
    assert (answer.status_code, answer.headers.get("Set-Cookie")) == (403, None)


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "same-origin"}, {"Origin": f"https://{HOST}", "Host": HOST}, {}],
    ids=str,
)
def test_forms_of_our_own_are_taken(stored: Server, headers: dict[str, str]) -> None:
    answer = Visitor(stored, key=None).sign_in(Server.merge_key, **headers)
    assert answer.status_code == 303


@pytest.mark.parametrize(
    "after", ["https://elsewhere.example/", "//elsewhere.example", "/v1/merge", "/ui/\r\nX: y", "/ui/\\", ""]
)
def test_signing_in_leads_nowhere_else(stored: Server, after: str) -> None:
    answer = Visitor(stored, key=None).sign_in(Server.merge_key, after)
    assert answer.headers["Location"] == "/ui/"
    form = Page(Visitor(stored, key=None).get("/ui/sign-in", next_=after))
    assert [tag.attributes["value"] for tag in form.all("input", name_="next")] == ["/ui/"]


def test_a_link_from_another_site_comes_again_by_itself(stored: Server) -> None:
    """A browser doesn't send a Strict cookie with a request from another site, but with the next one."""
    visitor = Visitor(stored, key=None)
    path = "/ui/services/checkout"
    pages = {
        site: Page(visitor.get("/ui/sign-in", {"Sec-Fetch-Site": site}, next_=path))
        for site in ("cross-site", "same-origin")
    }
    (refresh,) = pages["cross-site"].all("meta", http_equiv="refresh")
    assert refresh.attributes["content"] == f"0; url={path}"
    assert not pages["same-origin"].all("meta", http_equiv="refresh")


def test_too_large_a_form_is_refused(stored: Server) -> None:
    assert Visitor(stored, key=None).sign_in("k" * 20_000).status_code == 413


def test_a_key_with_a_scope_sees_its_services_alone(stored: Server) -> None:
    before = stored.merge_keys.read_text()
    stored.merge_keys.write_text(
        f"{before}of-search name=finder service=search*\nof-one name=one service=search\n"
    )
    stored.wait_for_log("keys read")
    visitor = Visitor(stored, "of-search")
    page = visitor.page("/ui/")
    listed = {link for link in page.links() if link.startswith("/ui/services/") and "?" not in link}
    assert listed == {"/ui/services/search", "/ui/services/search-eu"}
    assert "Signed in as finder" in page.text
    visitor.page("/ui/services/search")
    for path in ("", "/top", "/diff", "/series", "/build", "/merge"):
        assert visitor.get(f"/ui/services/checkout{path}").status_code == 403
    assert visitor.get("/ui/services/search/diff", base_service="checkout").status_code == 403
    assert visitor.get("/ui/services/*").status_code == 403
    one = Visitor(stored, "of-one").page("/ui/").links()
    assert "/ui/services/search" in one
    assert "/ui/services/search-eu" not in one


def test_who_sends_wrong_keys_has_to_wait_and_nobody_else(tmp_path: Path) -> None:
    waits = {"PGOF_SIGN_IN_ATTEMPTS": "3", SIGN_IN_WAIT: "4", "PGOF_BIND_ADDRESS": ":0"}
    with Server(tmp_path / "home", waits) as server:
        visitor = Visitor(server, key=None)
        for number in range(3):
            assert visitor.sign_in(f"wrong {number}").status_code == 403
        deadline = time.monotonic() + 120
        answer = visitor.sign_in(Server.merge_key)
        while answer.status_code != 429:  # the first wait is 1 s, and may be over already
            assert time.monotonic() < deadline
            visitor.sign_in("wrong")
            answer = visitor.sign_in(Server.merge_key)
        assert 1 <= int(answer.headers["Retry-After"]) <= 4
        (alert,) = Page(answer).all("p", role="alert")
        assert "too many wrong keys" in alert.text
        port = server.base_url.rpartition(":")[2]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", verify=False) as elsewhere:  # noqa: S501 (HTTP)
            assert elsewhere.post("/ui/sign-in", data={"key": Server.merge_key}).status_code == 303
        while not signs_in(visitor, Server.merge_key):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_each_wrong_key_doubles_the_wait_and_time_forgives(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(throttle, "_LONGEST_SECONDS", 60.0)
    sign_ins, sender = SignInThrottle(attempts=3), coming_from("192.0.2.1")
    waits = []
    for number in range(10):
        sign_ins.note_wrong(sender, f"{number}".encode())
        waits.append(sign_ins.seconds_of_address(sender))
        now += waits[-1]
        assert sign_ins.seconds_of_address(sender) == 0
    assert waits == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    now += 61
    sign_ins.note_wrong(sender, b"later")
    assert sign_ins.seconds_of_address(sender) == 0


def test_a_wrong_key_that_many_addresses_try_is_refused_to_all() -> None:
    sign_ins = SignInThrottle(attempts=3)
    tried = [sign_ins.note_wrong(coming_from(f"192.0.2.{number}"), b"leaked") for number in range(5)]
    assert tried[:3] == [0, 0, 0]
    assert all(tried[3:])
    assert sign_ins.seconds_of_address(coming_from("192.0.2.1")) == 0


@pytest.mark.parametrize(
    ("senders", "another"),
    [
        (["::ffff:192.0.2.7"] * 3, "192.0.2.7"),
        (["2001:db8::1", "2001:db8::2", "2001:db8::3"], "2001:db8::99"),
    ],
    ids=["IPv4 as IPv6", "a network of IPv6"],
)
def test_an_address_is_what_one_sender_cannot_choose(senders: list[str], another: str) -> None:
    sign_ins = SignInThrottle(attempts=3)
    for sender in senders:
        sign_ins.note_wrong(coming_from(sender), sender.encode())
    assert sign_ins.seconds_of_address(coming_from(another)) > 0


def test_so_many_senders_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "_MAX_REMEMBERED", 100)
    sign_ins = SignInThrottle(attempts=3)
    for number in range(1000):
        sign_ins.note_wrong(coming_from(f"2001:db8:0:{number:x}::1"), f"{number}".encode())
    assert len(sign_ins) == 100


def coming_from(host: str) -> Request:
    return Request({"type": "http", "client": (host, 1), "headers": []})


def test_a_session_ends_with_its_key_and_outlives_the_server(server: Server) -> None:
    keeps = f"{Server.merge_key}\n"
    server.merge_keys.write_text(f"{keeps}leaver\n")
    server.wait_for_log("keys read")
    stayer, leaver = Visitor(server), Visitor(server, "leaver")
    server.restart()
    for visitor in (stayer, leaver):
        assert visitor.get("/ui/").status_code == 200
    server.merge_keys.write_text(keeps)
    server.wait_for_log("keys read")
    assert leaver.get("/ui/").status_code == 303
    assert stayer.get("/ui/").status_code == 200
    secret = server.data / "session.secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    secret.write_bytes(b"damaged")
    server.restart()
    assert stayer.get("/ui/").status_code == 303
    assert not server.events("unknown file ignored")


def test_a_session_holds_at_every_collector_with_the_same_secret(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    settings = {"PGOF_SESSION_SECRET_FILE": str(secret)}
    for content, reason in ((None, "No such file"), (b"short\n", "the secret has 5 bytes")):
        if content is not None:
            secret.write_bytes(content)
        failed = Server(tmp_path / "own", settings).run("serve")
        assert failed.returncode == 2
        assert reason in failed.stderr
    secret.write_text(f"{'s' * 32}\n")
    with Server(tmp_path / "own", settings) as one, Server(tmp_path / "other", settings) as another:
        visitor, there = Visitor(one), Visitor(another, key=None)
        there.cookies.update(visitor.cookies)
        assert there.get("/ui/").status_code == 200
        assert not (one.data / "session.secret").exists()


def test_the_log_says_who_and_not_by_which_key(stored: Server) -> None:
    Visitor(stored).get("/ui/services/checkout", search="of-a-name")
    Visitor(stored, key=None).sign_in("a-secret-slip")
    stored.client.get("/healthz")
    deadline = time.monotonic() + 120
    while "/healthz" not in [line.get("path") for line in stored.events("request")]:
        assert time.monotonic() < deadline
    lines = [line for line in stored.events("request") if line["path"] == "/ui/services/checkout"]
    assert lines[-1]["key"] == fingerprint(Server.merge_key)
    log = str(stored.log)
    assert Server.merge_key not in log
    assert "a-secret-slip" not in log


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyFile:
    path: Path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("one\ntwo\n")
    return KeyFile(path)


def test_a_session_is_over_when_it_ends(keys: KeyFile) -> None:
    key = Key(digest_of(b"one"))
    assert SessionTokens(keys, b"secret", 60).key_of(SessionTokens(keys, b"secret", 60).begin(key)) == key
    assert SessionTokens(keys, b"secret", 0).key_of(SessionTokens(keys, b"secret", 0).begin(key)) is None


def test_a_session_is_of_one_secret_and_one_key(keys: KeyFile) -> None:
    sessions = SessionTokens(keys, b"secret", 60)
    token = sessions.begin(Key(digest_of(b"one")))
    assert SessionTokens(keys, b"another", 60).key_of(token) is None
    assert sessions.key_of(sessions.begin(Key(digest_of(b"three")))) is None
    _, _, signed = token.partition(".")
    assert sessions.key_of(f"{Key(digest_of(b'two')).fingerprint}.{signed}") is None


@given(st.data())
def test_whatever_is_changed_in_a_session_ends_it(keys: KeyFile, data: st.DataObject) -> None:
    sessions = SessionTokens(keys, b"secret", 60)
    token = sessions.begin(Key(digest_of(b"one")))
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters().filter(lambda letter: letter != token[at]))
    assert sessions.key_of(token[:at] + other + token[at + 1 :]) is None


@given(st.text())
def test_no_text_is_a_session_by_chance(keys: KeyFile, text: str) -> None:
    assert SessionTokens(keys, b"secret", 60).key_of(text) is None


def test_a_browser_that_opens_the_server_is_led_to_the_pages(stored: Server) -> None:
    visitor = Visitor(stored, key=None)
    opened = visitor.get("/", {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (opened.status_code, opened.headers["Location"]) == (307, "/ui/")
    for accepted in ("*/*", "application/json"):
        answer = visitor.get("/", {"Accept": accepted})
        assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")
