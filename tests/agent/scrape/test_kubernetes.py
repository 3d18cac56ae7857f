"""Test `pgo-agent scrape --kubernetes` against an API server that answers like a real one."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pgo_agent.scrape import run
from pgo_agent.scrape.kubernetes import KubernetesTargets
from pgo_agent.scrape.pod import PodLabels
from pgo_agent.scrape.schedule import ScrapeSchedule
from pgo_agent.scrape.scraper import Scraper
from pgo_agent.scrape.target import Shard, TargetDefaults

from tests.agent.forked import RunningAgent, of_round
from tests.agent.scrape.kubernetes_api import CLUSTER_KEY, KubernetesApi, kubernetes_api
from tests.agent.scrape.pods import Pod, pod
from tests.agent.scrape.scraping import Scraping, wait_until
from tests.agent.scrape.target_server import TargetServer
from tests.agent.scripted_server import Answer, ScriptedServer

ROUND_SECONDS = 0.5
OPTIONS = ("--every", "2", "--seconds", "1")
# A test has no time for long waits between attempts, nor for much patience at the end.
SHORT = {
    "pgo_agent.retry.LONGEST_BACKOFF": 0.2,
    "pgo_agent.scrape.run._STOP_SECONDS": 1.0,
    "pgo_agent.scrape.run._LAST_SEND_SECONDS": 0.5,
}


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with kubernetes_api() as api:
        yield api


@pytest.fixture
def cluster(scraping: Scraping, api: KubernetesApi) -> Scraping:
    """Provide the command, with the API server where kubectl would look for it."""
    scraping.environment |= {"KUBECONFIG": str(api.kubeconfig(scraping.home))}
    return scraping


@pytest.fixture
def shop(targets: TargetServer) -> Shop:
    return Shop(targets)


class Shop:
    """Create pods, each scraped at a path of its own: `/good-NAME`."""

    def __init__(self, targets: TargetServer) -> None:
        self._targets = targets

    def pod(self, name: str, *, labels: dict[str, str] | None = None, namespace: str = "default") -> Pod:
        said = {
            "profefe.com/enable": "true",
            "profefe.com/port": str(self._targets.server_port),
            "profefe.com/path": f"/good-{name}/debug/pprof",
        }
        return pod(name, annotations=said, labels={"app": "shop", **(labels or {})}, namespace=namespace)

    def count(self, name: str) -> int:
        """Return how often a pod was scraped."""
        return self._targets.asked[f"good-{name}", "profile"]

    def names(self) -> set[str]:
        """Return the pods that were scraped so far."""
        return {name.removeprefix("good-") for name, _ in self._targets.asked}


@contextmanager
def running(cluster: Scraping, *options: str) -> Iterator[RunningAgent]:
    """Run the command with --kubernetes until the end of the block."""
    with cluster.start(
        "--kubernetes", *OPTIONS, *options, constants=SHORT, **of_round(ROUND_SECONDS)
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_pods_are_listed_page_by_page(
    cluster: Scraping, api: KubernetesApi, shop: Shop, server: ScriptedServer
) -> None:
    api.page = 3
    for number in range(10):
        api.put(shop.pod(f"shop-{number}", labels={"app.kubernetes.io/version": "1.7"}))
    api.put(pod("not-asked-for"))
    api.put(shop.pod("pending") | {"status": {"phase": "Pending"}})
    done = cluster.once("--kubernetes", "--json", "--seconds", "1")
    assert (done.returncode, json.loads(done.stdout)["targets"]) == (0, 10)
    assert shop.names() == {f"shop-{number}" for number in range(10)}
    queries = {urlsplit(seen.path).query for seen in server.seen}
    assert [parse_qs(query) for query in queries] == [
        {"service": ["shop"], "labels": ["namespace=default,version=1.7"], "type": ["cpu"]}
    ]
    assert [query.get("continue") is None for _, query in api.asked] == [True, False, False, False]
    assert {query["fieldSelector"] for _, query in api.asked} == {"status.phase=Running"}
    assert {query["limit"] for _, query in api.asked} == {"500"}


def test_namespaces_and_labels_select(cluster: Scraping, api: KubernetesApi, shop: Shop) -> None:
    for namespace in ("a", "b", "c"):
        api.put(shop.pod(f"{namespace}-1", namespace=namespace))
        api.put(shop.pod(f"{namespace}-2", namespace=namespace, labels={"tier": "test"}))
    selected = ["--namespace", "a", "--namespace", "b", "--selector", "app=shop,tier!=test"]
    done = cluster.once("--kubernetes", "--seconds", "1", *selected)
    assert done.returncode == 0
    assert shop.names() == {"a-1", "b-1"}
    assert [path for path, _ in api.asked] == ["/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods"]


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        ((403, 'pods is forbidden: User "a" cannot list resource "pods"'), "cannot list resource"),
        ((500, "etcdserver: leader changed"), "leader changed"),
    ],
)
def test_a_refused_list_is_told(
    cluster: Scraping, api: KubernetesApi, refusal: tuple[int, str], reason: str
) -> None:
    api.refusal = refusal
    done = cluster.once("--kubernetes")
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_a_namespace_that_cannot_be_read_leaves_the_others(
    cluster: Scraping, api: KubernetesApi, shop: Shop
) -> None:
    for namespace in ("a", "b"):
        api.put(shop.pod(f"{namespace}-1", namespace=namespace))
    api.refusal = 403, "pods is forbidden"
    api.refused = "LIST /api/v1/namespaces/b/"
    done = cluster.once("--kubernetes", "--seconds", "1", "--namespace", "b", "--namespace", "a")
    assert done.returncode == 1
    assert shop.names() == {"a-1"}
    assert "pods unreadable: namespace=b" in done.stderr
    assert "the agent needs the rights to list and to watch pods" in done.stderr


def test_a_namespace_without_pods_is_named(cluster: Scraping, api: KubernetesApi, shop: Shop) -> None:
    api.put(shop.pod("a-1", namespace="a"))
    done = cluster.once("--kubernetes", "--seconds", "1", "--namespace", "a", "--namespace", "aa")
    assert done.returncode == 0
    assert "no pods: namespace=aa" in done.stderr
    assert "namespace=a\n" not in done.stderr


def test_a_token_that_may_not_watch_is_told_in_a_line(
    cluster: Scraping, api: KubernetesApi, shop: Shop
) -> None:
    api.put(shop.pod("a-1"))
    api.refusal = 403, 'User "a" cannot watch resource "pods"'
    api.refused = "WATCH "
    with running(cluster) as process:
        wait_until(lambda: len([query for _, query in api.asked if "watch" in query]) > 1)
        process.terminate()
        _, written = process.communicate(60)
    (line, *_) = (line for line in written.splitlines() if "pods unreadable" in line)
    assert "403" in line
    assert "the agent needs the rights to list and to watch pods" in line
    assert "mozilla" not in written


def test_an_api_server_that_is_away_is_told(cluster: Scraping, api: KubernetesApi) -> None:
    api.server_close()
    done = cluster.once("--kubernetes")
    assert done.returncode == 2
    assert "Kubernetes' API server gave no list of pods" in done.stderr
    done = cluster.once("--kubernetes", KUBECONFIG=str(cluster.home / "missing"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert CLUSTER_KEY not in done.stderr


def test_annotations_that_lead_nowhere_are_told_and_the_rest_goes_on(
    cluster: Scraping, api: KubernetesApi, shop: Shop
) -> None:
    api.put(pod("wrong", annotations={"profefe.com/enable": "true", "profefe.com/port": "http"}))
    api.put(shop.pod("right"))
    done = cluster.once("--kubernetes", "--seconds", "1")
    assert done.returncode == 0
    assert "pod not scraped: pod=default/wrong reason=\"not a port: 'http'\"" in done.stderr
    assert shop.names() == {"right"}


def wait_until_left_out(shop: Shop, gone: str, while_: str) -> None:
    """Return when a pod was skipped in three rounds in which another was scraped. The time varies."""

    def is_left_out_of_three_rounds() -> bool:
        before, rounds = shop.count(gone), shop.count(while_)
        wait_until(lambda: shop.count(while_) >= rounds + 3)
        return shop.count(gone) == before

    wait_until(is_left_out_of_three_rounds)


def test_pods_come_and_go(cluster: Scraping, api: KubernetesApi, shop: Shop) -> None:
    api.put(shop.pod("first"))
    with running(cluster):
        wait_until(lambda: shop.count("first") and api.watches)
        lists = len([query for _, query in api.asked if "watch" not in query])
        api.put(shop.pod("second"))
        wait_until(lambda: shop.count("second"))
        api.delete(shop.pod("first"))
        wait_until_left_out(shop, "first", while_="second")
        ended = shop.pod("second") | {"status": {"phase": "Succeeded"}}
        api.put(ended)
        api.put(shop.pod("third"))
        wait_until_left_out(shop, "second", while_="third")
        assert len([query for _, query in api.asked if "watch" not in query]) == lists


def test_what_went_while_nobody_watched_is_gone(cluster: Scraping, api: KubernetesApi, shop: Shop) -> None:
    gone = shop.pod("gone")
    api.put(shop.pod("stays"))
    api.put(gone)
    with running(cluster):
        wait_until(lambda: shop.count("stays") and shop.count("gone") and api.watches)
        api.refusal = (503, "apiserver is shutting down")
        api.cut()
        wait_until(lambda: api.watches == 0)
        api.delete(gone)
        api.put(shop.pod("new"))
        api.refusal = None
        wait_until(lambda: shop.count("new"))
        before, stays = shop.count("gone"), shop.count("stays")
        wait_until(lambda: shop.count("stays") >= stays + 2)
        assert shop.count("gone") <= before + 1


def test_a_version_that_expired_is_a_reason_to_list_anew(
    cluster: Scraping, api: KubernetesApi, shop: Shop
) -> None:
    """A watch ends, and the server refuses to continue from its version, in either way."""
    api.put(shop.pod("stays"))
    with running(cluster):
        for number, in_stream in enumerate((True, False)):
            wait_until(lambda: api.watches)
            api.expires_in_stream = in_stream
            api.forget()
            api.put(shop.pod(f"new-{number}"))
            wait_until(partial(shop.count, f"new-{number}"))
            assert api.expired == number + 1


def test_silence_is_a_reason_to_list_anew(
    api: KubernetesApi, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgo_agent.scrape.kubernetes._LONGEST_SILENCE", 0.3)
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
    api.put(shop.pod("first"))
    nothing: Any = None  # a round takes years, so nothing is scraped

    async def follow() -> None:
        rounds = ScrapeSchedule(Scraper(nothing, slots=1, limit=1, labels={}), Shard(0, 1), every=1e9)
        cluster = KubernetesTargets((), None, TargetDefaults(("cpu",), 1), PodLabels({}))
        following = asyncio.create_task(cluster.follow(rounds))
        await asyncio.to_thread(wait_until, lambda: len(rounds) == 1 and api.watches)
        api.put(shop.pod("second"), is_told=False)
        await asyncio.to_thread(wait_until, lambda: len(rounds) == 2)
        following.cancel()
        await asyncio.wait([following])
        await rounds.stop(0)

    asyncio.run(follow())


def test_in_an_outage_of_the_api_server_all_that_was_known_is_scraped(
    cluster: Scraping, api: KubernetesApi, shop: Shop
) -> None:
    api.put(shop.pod("first"))
    with running(cluster):
        wait_until(lambda: shop.count("first") and api.watches)
        api.refusal = (503, "apiserver is shutting down")
        api.cut()
        before = shop.count("first")
        wait_until(lambda: shop.count("first") >= before + 3)
        api.put(shop.pod("second"))
        api.refusal = None
        wait_until(lambda: shop.count("second"))


def test_no_target_is_scraped_twice_at_once_and_all_in_each_round(
    cluster: Scraping, api: KubernetesApi, shop: Shop, targets: TargetServer, server: ScriptedServer
) -> None:
    names = [f"shop-{number}" for number in range(30)]
    for name in names:
        api.put(shop.pod(name))
    began = time.monotonic()
    with running(cluster, "--json") as process:
        wait_until(lambda: api.watches)
        for name in names:  # changed, so the watch reports it again
            api.put(shop.pod(name, labels={"changed": "true"}))
        wait_until(lambda: min(shop.count(name) for name in names) >= 3)
        most, rounds = max(shop.count(name) for name in names), (time.monotonic() - began) / ROUND_SECONDS
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0
    assert most <= rounds + 1
    assert {*targets.most.values()} == {1}
    reports = [json.loads(line) for line in stdout.splitlines()]
    known = [said["targets"] for said in reports[:-1]]
    assert {*known[known.index(30) :]} == {30}  # before that, the agent may be waiting for the list
    assert reports[-1]["sent"] == len(server.seen)
    assert reports[-1]["waiting"] == 0
    assert "scraped=" in stderr


def test_a_signal_ends_it_though_targets_and_collector_hang(
    cluster: Scraping, api: KubernetesApi, shop: Shop, targets: TargetServer, server: ScriptedServer
) -> None:
    hangs = shop.pod("hangs")
    hangs["metadata"]["annotations"]["profefe.com/path"] = "/hang/debug/pprof"
    api.put(hangs)
    api.put(shop.pod("good"))
    server.then = Answer(204, after=50.0)
    with running(cluster) as process:
        wait_until(lambda: targets.asked["hang", "profile"] and server.seen)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=45)  # less than the targets hang
    # With its own patience, it ends before Kubernetes would kill it.
    assert run._STOP_SECONDS + run._LAST_SEND_SECONDS < 30  # noqa: SLF001
    assert process.returncode == 0
    assert "scrapes dropped: count=1" in stderr
    assert [*cluster.spool.rglob("*.profile")]


def test_without_the_extra_it_says_what_to_install(cluster: Scraping) -> None:
    """The command fails if lightkube can't be imported."""
    program = "import sys; sys.modules['lightkube'] = None; from pgo_agent.cli import main; sys.exit(main())"
    arguments = cluster.arguments("--kubernetes", "--once")[1:]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "pgo-agent: lightkube is not installed: pip install 'pgo-agent[kubernetes]'\n"
