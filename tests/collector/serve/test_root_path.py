"""A collector below a path of a proxy: requests with the path and without, and what its links begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pgo_collector.errors import SettingsInvalid
from pgo_collector.model.root_path import OWN_PARTS, is_in, parse_proxies
from pgo_collector.routes.protocols import PROTOCOLS
from pgo_collector.settings import read_settings

from tests.collector.visitor import Page, Visitor
from tests.faults.stacks import profile_of
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

SERVICE = "/ui/services/checkout"
PAGES = (
    "/ui/", SERVICE, f"{SERVICE}/top", f"{SERVICE}/live", f"{SERVICE}/build", f"{SERVICE}/diff",
    f"{SERVICE}/series", f"{SERVICE}/function?function=main.work", f"{SERVICE}/latency", "/ui/traces",
    "/ui/services/none", "/ui/nowhere", f"{SERVICE}?type=heap", f"{SERVICE}?last=x",
)  # fmt: skip
HOSTILE = [
    "//evil.example", "https://evil.example", "/a//b", "/a/../b", "/..", "/.", "pgo", "/p go", "/p%2e",
    "/p?q", "/p#f", '/p"onload="x', "/p'x", "/p<b>", "/p;q", "/p\\q", "/p,/q", "/é", "/" + "p" * 200, "/p\tq",
]  # fmt: skip


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A collector below a path of its settings, with two services."""
    with Server(tmp_path_factory.mktemp("below"), {"PGOF_ROOT_PATH": "/tools/pgo/"}) as server:
        for service in ("checkout", "search"):
            assert server.submit(profile_of("main.work"), query={"service": service}).status_code == 204
        yield server


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A collector whose proxy, at any loopback address, tells the path."""
    settings = {"PGOF_ROOT_PATH": "/otherwise", "PGOF_TRUSTED_PROXIES": "10.1.2.3, 127.0.0.0/8"}
    with Server(tmp_path_factory.mktemp("told"), settings) as server:
        assert server.submit(profile_of("main.work"), query={"service": "checkout"}).status_code == 204
        yield server


def places_in(page: Page) -> list[str]:
    """Return all addresses in a page that begin with a slash."""
    names = ("href", "src", "action", "data-events", "content")
    found = (tag.attributes.get(name, "") for tag in page.tags for name in names)
    return [place for place in found if place.startswith("/")]


@pytest.mark.parametrize("kept", ["", "/tools/pgo"], ids=["removed", "kept"])
def test_whether_the_proxy_removes_its_path_or_not_pages_lead_below_it(below: Server, kept: str) -> None:
    visitor = Visitor(below)
    for path in PAGES:
        page = Page(visitor.get(kept + path))
        places = places_in(page)
        assert len(places) > 3
        assert {place for place in places if not place.startswith("/tools/pgo/ui")} == set(), path
        assert "//127.0.0.1" not in page.text.replace(f"{below.base_url}/tools/pgo/v1/", "")


@pytest.mark.parametrize("kept", ["", "/tools/pgo"], ids=["removed", "kept"])
def test_redirects_and_the_cookie_are_below_the_path(below: Server, kept: str) -> None:
    visitor = Visitor(below, key=None)

    def led(path: str, **headers: str) -> str:
        return visitor.get(kept + path, headers).headers["Location"]

    assert led("/ui") == "/tools/pgo/ui/"
    assert led("/", Accept="text/html,*/*;q=0.8") == "/tools/pgo/ui/"
    after = f"/tools/pgo{SERVICE}?last=7d"
    assert led(f"{SERVICE}?last=7d") == f"/tools/pgo/ui/sign-in?next={quote(after, safe='')}"
    (form,) = Page(visitor.get(f"{kept}/ui/sign-in")).all("form")
    assert form.attributes["action"] == "/tools/pgo/ui/sign-in"
    answer = visitor.post(f"{kept}/ui/sign-in", {"key": Server.merge_key, "next": after})
    assert answer.headers["Location"] == after
    assert "Path=/tools/pgo/ui;" in answer.headers["Set-Cookie"]
    for elsewhere in ("/ui/", "//evil.example", "/tools/pgo//evil.example", "/tools/pgox/ui/"):
        sent = {"key": Server.merge_key, "next": elsewhere}
        assert visitor.post(f"{kept}/ui/sign-in", sent).headers["Location"] == "/tools/pgo/ui/"
    chosen = f"{SERVICE}/choose?key=version&value=%3D1&is=any-of&page=top"
    assert led(chosen).startswith(f"/tools/pgo{SERVICE}/top?")
    answer = visitor.post(f"{kept}/ui/sign-out")
    assert answer.headers["Location"] == "/tools/pgo/ui/"
    assert "Path=/tools/pgo/ui;" in answer.headers["Set-Cookie"]


def test_the_path_itself_leads_a_browser_to_the_pages(below: Server) -> None:
    visitor = Visitor(below)
    for path in ("/tools/pgo", "/tools/pgo/"):
        assert visitor.get(path, {"Accept": "text/html"}).headers["Location"] == "/tools/pgo/ui/"
        assert visitor.get(path, {"Accept": "*/*"}).status_code == 404
    assert visitor.get("/tools/pgox/ui/").status_code == 404


@pytest.mark.parametrize("kept", ["", "/tools/pgo"], ids=["removed", "kept"])
def test_programs_submit_and_read_below_the_path(below: Server, kept: str) -> None:
    client, key = below.client, bearer(below.merge_key)
    assert client.get(f"{kept}/healthz").text == "OK"
    submitted = client.post(
        f"{kept}/v1/submit?service=checkout",
        content=profile_of("main.more"),
        headers=bearer(below.submit_key),
    )
    assert submitted.status_code == 204
    assert client.get(f"{kept}/v1/merge?service=checkout", headers=key).status_code == 200
    made = client.post(f"{kept}/v1/releases?service=checkout", headers=key)
    location = made.headers["Location"]
    assert location == f"/tools/pgo/v1/releases/{made.json()['number']}?service=checkout"
    assert client.get(location, headers=key).json()["number"] == made.json()["number"]
    refused = client.post(f"{kept}/push.v1.PusherService/Push", json={})
    assert refused.json()["code"] == "unauthenticated"  # as the clients of that path expect it


def servers_of(server: Server, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.client.get("/v1/openapi.json", headers=named).json()["servers"]


def test_the_description_of_the_api_names_its_server(below: Server, shared: Server, told: Server) -> None:
    assert servers_of(below) == [{"url": "/tools/pgo"}]
    assert servers_of(shared) == [{"url": "/"}]
    for prefix in ("/a", "/b/c"):
        assert servers_of(told, X_Forwarded_Prefix=prefix) == [{"url": prefix}]


def test_a_trusted_proxy_tells_the_path(told: Server) -> None:
    visitor = Visitor(told, key=None)
    for prefix, path in (("/pgo", "/pgo"), ("/pgo/", "/pgo"), ("/", ""), ("", "/otherwise")):
        for kept in ("", path):
            answer = visitor.get(f"{kept}/ui", {"X-Forwarded-Prefix": prefix})
            assert answer.headers["Location"] == f"{path}/ui/"
    assert visitor.get("/ui").headers["Location"] == "/otherwise/ui/"


def test_from_others_the_header_is_ignored(below: Server, shared: Server) -> None:
    for server, home in ((below, "/tools/pgo/ui/"), (shared, "/ui/")):
        for prefix in ("/evil", "//evil.example"):
            answer = Visitor(server, key=None).get("/ui", {"X-Forwarded-Prefix": prefix})
            assert answer.headers["Location"] == home


@pytest.mark.parametrize("prefix", [*HOSTILE, *(f"/{part}/x" for part in sorted(OWN_PARTS))])
def test_no_other_path_is_taken(told: Server, prefix: str) -> None:
    for path in ("/ui/", "/v1/openapi.json"):
        refused = told.client.get(path, headers={b"X-Forwarded-Prefix": prefix.encode()})
        assert refused.status_code == 400
        assert refused.json()["detail"].startswith("X-Forwarded-Prefix: ")
        assert len(refused.content) < 500


def test_two_headers_are_not_one_path(told: Server) -> None:
    refused = told.client.get("/ui/", headers=[("X-Forwarded-Prefix", "/a"), ("X-Forwarded-Prefix", "/b")])
    assert refused.status_code == 400


@pytest.mark.parametrize("path", [*HOSTILE, "/ui", "/v1/pgo", "/p\r\nSet-Cookie: a=b"])
def test_a_setting_that_is_no_such_path_is_refused_by_its_name(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGOF_ROOT_PATH", path)
    with pytest.raises(SettingsInvalid, match="PGOF_ROOT_PATH"):
        read_settings()


@pytest.mark.parametrize("text", ["proxy.example", "10.0.0.1/8", "10.0.0.0/33", "*", "10.0.0.1:80"])
def test_proxies_are_addresses_and_networks(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOF_TRUSTED_PROXIES", text)
    with pytest.raises(SettingsInvalid, match="PGOF_TRUSTED_PROXIES"):
        read_settings()


def test_addresses_are_found_in_networks() -> None:
    networks = parse_proxies("10.0.0.0/8,2001:db8::/32, ::1")
    for host in ("10.1.2.3", "::ffff:10.1.2.3", "2001:db8::5", "::1"):
        assert is_in(networks, host)
    for host in ("11.0.0.1", "::ffff:11.0.0.1", "2001:db9::5", "", "unix:"):
        assert not is_in(networks, host)
    assert not is_in((), "127.0.0.1")


def test_no_own_path_can_be_mistaken_for_the_proxys(shared: Server) -> None:
    paths = [*shared.client.get("/v1/openapi.json").json()["paths"], "/ui/", "/healthz", "/metrics"]
    paths += [path for protocol in PROTOCOLS for path in protocol.paths]
    # Grafana asks for settings, and is told that there are none.
    paths.append("/settings.v1.SettingsService/Get")
    assert {path.lstrip("/").split("/")[0] for path in paths} == OWN_PARTS
    for prefix in (prefix for protocol in PROTOCOLS for prefix in protocol.prefixes):
        assert any(f"/{part}/".startswith(prefix) or prefix.startswith(f"/{part}/") for part in OWN_PARTS)


def test_while_it_starts_its_paths_are_known(tmp_path: Path) -> None:
    server = Server(tmp_path, {"PGOF_ROOT_PATH": "/pgo"})
    server.listen()
    try:
        assert server.client.get("/pgo/healthz").status_code == 200
        assert server.client.get("/pgo/readyz").status_code in {200, 503}
    finally:
        server.kill()
