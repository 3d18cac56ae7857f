"""Test `pgo-agent scrape --nomad` and `--consul` against servers that answer as the documented APIs do."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pgo_agent.errors import CatalogUnavailable, TargetInvalid
from pgo_agent.scrape.catalog import CatalogTargets
from pgo_agent.scrape.nomad_consul import Consul, Instance, Nomad
from pgo_agent.scrape.target import TargetDefaults

from tests.agent.forked import RunningAgent, of_round
from tests.agent.scrape.scraping import Scraping, wait_until
from tests.agent.scrape.service_catalog import TOKEN, ServiceCatalog
from tests.agent.scrape.target_server import TargetServer
from tests.agent.scripted_server import ScriptedServer
from tests.loopback import running

OPTIONS = ("--every", "2", "--seconds", "1")
# A test has no time for long waits between attempts, nor for rounds of whole seconds.
SHORT = {
    "pgo_agent.retry.LONGEST_BACKOFF": 0.2,
    "pgo_agent.scrape.catalog._PAUSE_SECONDS": 0.2,
}
MARK = "autopgo.scrape=true"
DEFAULTS = TargetDefaults(("cpu", "heap"), 30)
PORTS = {"nomad": "Port", "consul": "ServicePort"}
ADDRESSES = {"nomad": "Address", "consul": "ServiceAddress"}


@pytest.fixture(params=["nomad", "consul"])
def catalog(request: pytest.FixtureRequest) -> Iterator[ServiceCatalog]:
    with running(ServiceCatalog(request.param)) as served:
        yield served


# What the two have in common is tried with both only in `make test-all`.
one_suffices = pytest.mark.parametrize(
    "catalog", ["nomad", pytest.param("consul", marks=pytest.mark.exhaustive)], indirect=True
)


class Shop:
    """Add instances to a catalog, each scraped at a path of its own: `/good-NAME`."""

    def __init__(self, catalog: ServiceCatalog, targets: TargetServer) -> None:
        self._catalog = catalog
        self._targets = targets

    def put(self, name: str, *tags: str, service: str = "web", **fields: Any) -> None:
        """Add an instance with autopgo's marks."""
        path = f"autopgo.scrape.path=/good-{name}/debug/pprof/profile"
        port = {PORTS[self._catalog.kind]: self._targets.server_port}
        self._catalog.put(name, service, [MARK, path, *tags], **(port | fields))

    def count(self, name: str) -> int:
        """Return how often an instance was scraped."""
        return self._targets.asked[f"good-{name}", "profile"]

    def names(self) -> set[str]:
        """Return the instances that were scraped so far."""
        return {name.removeprefix("good-") for name, _ in self._targets.asked}


@pytest.fixture
def shop(catalog: ServiceCatalog, targets: TargetServer) -> Shop:
    return Shop(catalog, targets)


def at(catalog: ServiceCatalog, path: str = "") -> tuple[str, str]:
    """Return the option for the catalog, with a path that its URL has."""
    return f"--{catalog.kind}", f"http://127.0.0.1:{catalog.server_port}{path}"


@contextmanager
def scraped(scraping: Scraping, *options: str) -> Iterator[RunningAgent]:
    """Run the command until the end of the block."""
    with scraping.start(*OPTIONS, *options, constants=SHORT, **of_round(0.5)) as process:
        try:
            yield process
        finally:
            process.kill()


def test_marked_services_are_scraped_with_their_series(
    scraping: Scraping, catalog: ServiceCatalog, shop: Shop, server: ScriptedServer
) -> None:
    shop.put("a", "autopgo.scrape.app=shop")
    shop.put("b", service="till/eu")
    catalog.put("unmarked", "web", ["http"])
    catalog.put("off", "db", ["autopgo.scrape=false"])
    done = scraping.once(*at(catalog, "/base/"), "--json", "--seconds", "1")
    assert (done.returncode, json.loads(done.stdout)["targets"]) == (0, 2), done.stderr
    assert shop.names() == {"a", "b"}
    labels = {"nomad": "datacenter=dc1,namespace=default", "consul": "datacenter=dc1,version=1.7"}
    queries = [parse_qs(urlsplit(seen.path).query) for seen in server.seen]
    assert sorted(queries, key=str) == [
        {"service": [service], "labels": [labels[catalog.kind]], "type": ["cpu"]}
        for service in ("shop", "till/eu")
    ]
    first, *others = [path for path, _ in catalog.asked]
    assert first == {"nomad": "/base/v1/services", "consul": "/base/v1/catalog/services"}[catalog.kind]
    assert {path.rpartition("/")[2] for path in others} == {"web", "till%2Feu"}


def instance(tags: list[str], address: str = "10.0.0.7", port: Any = 6060) -> Instance:
    return Instance("consul/dc1/n/web-1", "web", (), address, port, tags)


@pytest.mark.parametrize(
    ("found", "urls"),
    [
        (
            instance([MARK]),
            ["http://10.0.0.7:6060/debug/pprof/profile?seconds=30", "http://10.0.0.7:6060/debug/pprof/heap"],
        ),
        (
            instance([MARK, "autopgo.scrape.path=own/cpu", "autopgo.scrape.scheme=https"], "fd00::7"),
            ["https://[fd00::7]:6060/own/cpu?seconds=30"],
        ),
        (
            instance([MARK, "autopgo.scrape.path=@example.test/x"], "web-1.node.consul"),
            ["http://web-1.node.consul:6060/@example.test/x?seconds=30"],
        ),
    ],
    ids=["defaults", "all marks", "a path like a host"],
)
def test_marks_say_where(found: Instance, urls: list[str]) -> None:
    target = found.target(DEFAULTS)
    assert target is not None
    assert (target.service, [profile.url for profile in target.profiles]) == ("web", urls)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (instance([MARK], port=0), "not a port: '0'"),
        (instance([MARK], port="http"), "not a port: 'http'"),
        (instance([MARK], "10.0.0.7/evil"), "not an address"),
        (instance([MARK], "user@host"), "not an address"),
        (instance([MARK], "fd00::7]"), "not an address"),
        (instance([MARK, "autopgo.scrape.scheme=file"]), "not http or https: 'file'"),
    ],
)
def test_marks_that_lead_nowhere_are_refused(wrong: Instance, reason: str) -> None:
    with pytest.raises(TargetInvalid, match=reason):
        wrong.target(DEFAULTS)


def test_an_instance_that_leads_nowhere_is_told_and_the_rest_scraped(
    scraping: Scraping, catalog: ServiceCatalog, shop: Shop
) -> None:
    catalog.put("wrong", "web", [MARK], **{PORTS[catalog.kind]: 0})
    shop.put("right")
    done = scraping.once(*at(catalog), "--seconds", "1")
    assert done.returncode == 0
    assert f"service not scraped: service={catalog.kind}/" in done.stderr
    assert "not a port: '0'" in done.stderr
    assert shop.names() == {"right"}


@one_suffices
def test_instances_come_and_go(scraping: Scraping, catalog: ServiceCatalog, shop: Shop) -> None:
    shop.put("first")
    with scraped(scraping, *at(catalog)):
        wait_until(lambda: shop.count("first") and catalog.waiting)
        shop.put("second", service="other")
        wait_until(lambda: shop.count("second"))
        wait_until(lambda: catalog.waiting)
        shop.put("third", service="more")
        catalog.remove("second")
        wait_until(lambda: shop.count("third"))
        before, rounds = shop.count("second"), shop.count("third")
        wait_until(lambda: shop.count("third") >= rounds + 2)
        assert shop.count("second") <= before + 1
    waits = {query["wait"] for _, query in catalog.asked if "index" in query}
    assert waits == {"30s"}


@pytest.mark.exhaustive
def test_an_instance_of_a_known_service_is_found_without_a_change_of_the_list(
    scraping: Scraping, targets: TargetServer
) -> None:
    """Takes half a minute, as long as a question waits."""
    with running(ServiceCatalog("consul")) as catalog:
        shop = Shop(catalog, targets)
        shop.put("first")
        first = catalog.instances["first"]
        with scraped(scraping, *at(catalog)):
            wait_until(lambda: shop.count("first") and catalog.waiting)
            index = catalog.index
            other = first | {"ServiceID": "second", "ServiceAddress": "localhost"}
            catalog.put("second", "web", first["ServiceTags"], **other)
            assert catalog.index == index
            wait_until(lambda: any(seen["Host"].startswith("localhost:") for seen in targets.headers))


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"rpc error: No cluster leader"),
        (403, b"Permission denied"),
        (404, b"no such page"),
        (200, b"<html>a proxy's page</html>"),
        (200, b"[" * 100_000),
        (200, b'{"web": 7, "x": ["autopgo.scrape=true"]}'),
        (200, b'[{"Namespace": 3, "Services": {}}]'),
        (200, b'"text"'),
        (200, b" " * (17 << 20) + b"[]"),
        (302, b""),
    ],
    ids=["500", "403", "404", "HTML", "nesting", "a table", "a list", "text", "17 MiB", "302"],
)
def test_a_catalog_that_gives_no_services_is_told(
    catalog: ServiceCatalog, shop: Shop, answer: tuple[int, bytes]
) -> None:
    shop.put("a")
    catalog.answer = answer
    api = Nomad("*") if catalog.kind == "nomad" else Consul("")
    targets = CatalogTargets(api, at(catalog)[1], DEFAULTS)
    with pytest.raises(CatalogUnavailable, match=f"{catalog.kind.title()} gave no list of services"):
        asyncio.run(targets.targets())
    catalog.answer = None
    assert len(asyncio.run(targets.targets())) == 1


def test_a_catalog_without_services_may_need_a_token(scraping: Scraping, catalog: ServiceCatalog) -> None:
    done = scraping.once(*at(catalog))
    assert f"no services: catalog={catalog.kind}" in done.stderr.lower()


@one_suffices
def test_a_catalog_that_is_away_ends_the_command(scraping: Scraping, catalog: ServiceCatalog) -> None:
    catalog.server_close()
    done = scraping.once(*at(catalog))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{catalog.kind.title()} gave no list of services: ConnectError" in done.stderr
    assert "Traceback" not in done.stderr


@one_suffices
def test_in_an_outage_all_that_was_known_is_scraped(
    scraping: Scraping, catalog: ServiceCatalog, shop: Shop
) -> None:
    shop.put("first")
    with scraped(scraping, *at(catalog)) as process:
        wait_until(lambda: shop.count("first") and catalog.waiting)
        for answer in ((500, b"No cluster leader"), (200, b"nonsense")):
            catalog.answer = answer
            before, asked = shop.count("first"), len(catalog.asked)
            wait_until(lambda before=before: shop.count("first") >= before + 2)  # type: ignore[misc]
            wait_until(lambda asked=asked: len(catalog.asked) > asked)  # type: ignore[misc]
        shop.put("second", service="other")
        catalog.answer = None
        wait_until(lambda: shop.count("second"))
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "status 500: No cluster leader" in stderr


@one_suffices
def test_an_index_that_begins_anew_is_followed(
    scraping: Scraping, catalog: ServiceCatalog, shop: Shop
) -> None:
    shop.put("first")
    with scraped(scraping, *at(catalog)):
        wait_until(lambda: catalog.waiting)
        catalog.restart()
        wait_until(lambda: any(query.get("index") == "1" for _, query in catalog.asked))
        shop.put("second", service="other")
        wait_until(lambda: shop.count("second"))


def test_the_token_is_read_and_never_told(
    scraping: Scraping, catalog: ServiceCatalog, shop: Shop, tmp_path: Path
) -> None:
    shop.put("a")
    catalog.has_token = True
    file = tmp_path / "token"
    option = (f"--{catalog.kind}-token-file", str(file))
    file.write_text(f"{TOKEN}\n")
    assert scraping.once(*at(catalog), *option, "--seconds", "1").returncode == 0
    for wrong in ("other", f"{TOKEN}\nmore", ""):
        file.write_text(wrong)
        done = scraping.once(*at(catalog), *option)
        assert done.returncode == 2
        assert TOKEN not in done.stderr
        assert ("Permission denied" if wrong == "other" else "one word of printable ASCII") in done.stderr
    assert scraping.once(*at(catalog)).returncode == 2


def test_a_namespace_and_a_datacenter_are_asked_for(
    scraping: Scraping, catalog: ServiceCatalog, shop: Shop
) -> None:
    if catalog.kind == "nomad":
        shop.put("a", Namespace="eu")
        shop.put("b", Namespace="us")
        option, query = ("--nomad-namespace", "eu"), {"namespace": "eu"}
    else:
        shop.put("a")
        option, query = ("--consul-datacenter", "dc2"), {"dc": "dc2"}
    assert scraping.once(*at(catalog), *option, "--seconds", "1").returncode == 0
    assert shop.names() == {"a"}
    assert [asked for _, asked in catalog.asked] == [query, query]


@pytest.mark.system("openssl")
@one_suffices
def test_certificates_are_checked_with_those_of_the_file(
    scraping: Scraping, catalog: ServiceCatalog, shop: Shop, tmp_path: Path
) -> None:
    shop.put("a")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    catalog.socket = context.wrap_socket(catalog.socket, server_side=True)
    option, url = at(catalog)
    url = url.replace("http:", "https:")
    done = scraping.once(option, url)
    assert (done.returncode, "CERTIFICATE_VERIFY_FAILED" in done.stderr) == (2, True), done.stderr
    own = (f"--{catalog.kind}-ca-file", str(certificate))
    assert scraping.once(option, url, *own, "--seconds", "1").returncode == 0
    assert shop.names() == {"a"}


def test_a_url_is_needed_and_checked(scraping: Scraping) -> None:
    done = scraping.once("--consul", "127.0.0.1:8500")
    assert (done.returncode, "not an http or https URL" in done.stderr) == (2, True), done.stderr
    done = scraping.once()
    assert "--nomad URL or --consul URL" in done.stderr
