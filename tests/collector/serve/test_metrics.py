"""/metrics: its values, and who may read them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from pgo_collector.workers.pool import Workers

from tests.collector.bounds import BOUNDS
from tests.collector.visitor import Visitor
from tests.faults.stacks import profile_of
from tests.server import Server, bearer, descendants, fingerprint

METRICS_KEY = "key-for-metrics"
Samples = dict[str, float]


@pytest.fixture
def metered(stopped: Server) -> Server:
    """Start a collector whose metrics are open."""
    stopped.environment["PGOF_METRICS_OPEN"] = "true"
    stopped.start()
    return stopped


def scraped(server: Server) -> Samples:
    """Return the value of each series, by its name, without `pgo_collector_`, and its labels."""
    answer = server.client.get("/metrics")
    assert (answer.status_code, answer.headers["Content-Type"]) == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    lines = re.findall(r"^pgo_collector_(\S.*) (\S+)$", answer.text, re.MULTILINE)
    return {series: float(value) for series, value in lines}


def part(samples: Samples, name: str) -> Samples:
    """Return the series of one name, by their labels."""
    return {
        series.removeprefix(name): value
        for series, value in samples.items()
        if series.partition("{")[0] == name
    }


@pytest.mark.any_store
def test_metrics_are_off_unless_a_setting_says_who_may_ask(server: Server) -> None:
    for key in ("wrong", Server.submit_key, Server.merge_key):
        answer = server.client.get("/metrics", headers=bearer(key))
        assert (answer.status_code, answer.headers["Content-Type"]) == (403, "application/problem+json")
    assert server.client.get("/metrics").status_code == 403


@pytest.mark.any_store
def test_they_have_keys_of_their_own(stopped: Server) -> None:
    keys = stopped.home / "metrics_keys"
    keys.write_text(f"{METRICS_KEY} name=prometheus\n")
    stopped.environment["PGOF_METRICS_AUTH_KEYS_FILE"] = str(keys)
    stopped.start()
    statuses = {
        key: stopped.client.get("/metrics", headers=bearer(key)).status_code
        for key in (METRICS_KEY, Server.submit_key, Server.merge_key, "wrong")
    }
    assert statuses == {METRICS_KEY: 200, Server.submit_key: 403, Server.merge_key: 403, "wrong": 403}
    assert stopped.client.head("/metrics", headers=bearer(METRICS_KEY)).status_code == 200
    assert stopped.merge(key=METRICS_KEY).status_code == 403
    assert stopped.submit(profile_of("a"), METRICS_KEY).status_code == 403
    keys.write_text("another\n")
    stopped.wait_for_log("keys read")
    assert stopped.client.get("/metrics", headers=bearer(METRICS_KEY)).status_code == 403
    assert stopped.client.get("/metrics", headers=bearer("another")).status_code == 200


def test_a_missing_file_of_keys_ends_the_start(stopped: Server) -> None:
    stopped.environment["PGOF_METRICS_AUTH_KEYS_FILE"] = str(stopped.home / "nowhere")
    finished = stopped.run("serve")
    assert finished.returncode == 2
    assert "nowhere" in finished.stderr


@pytest.mark.any_store
def test_requests_are_counted_by_route_method_and_status(metered: Server) -> None:
    metered.submit(profile_of("a"))
    for _ in range(3):
        metered.merge()
    metered.releases("/7")
    metered.releases("/8")
    metered.client.get("/v1/submit")
    metered.client.get("/api/0/profiles/nothing", headers=bearer(Server.merge_key))
    metered.client.delete("/healthz")
    samples = scraped(metered)
    assert part(samples, "requests_total") == {
        '{method="POST",route="/v1/submit",status="204"}': 1,
        '{method="GET",route="/v1/merge",status="200"}': 3,
        '{method="GET",route="/v1/releases/{number}",status="404"}': 2,
        '{method="GET",route="/v1/submit",status="405"}': 1,
        '{method="GET",route="/api/0/profiles/{ids}",status="404"}': 1,
        '{method="DELETE",route="/healthz",status="200"}': 1,
    }
    assert part(samples, "request_seconds_count")['{method="GET",route="/v1/merge"}'] == 3
    assert part(samples, "request_seconds_sum")['{method="GET",route="/v1/merge"}'] > 0


@pytest.mark.any_store
def test_what_clients_make_up_is_no_label(metered: Server) -> None:
    for number in range(40):
        metered.client.get(f"/made/up/{number}")
        metered.client.get(f"/v1/releases/{number}/nothing")
    metered.client.request("PROPFIND", "/healthz")
    assert part(scraped(metered), "requests_total") == {
        '{method="GET",route="other",status="404"}': 80,
        '{method="other",route="/healthz",status="200"}': 1,
    }


@pytest.mark.any_store
def test_pages_are_counted_by_what_they_show(metered: Server) -> None:
    visitor = Visitor(metered)
    for path in (
        "/ui/services/a",
        "/ui/services/b",
        "/ui/made/up",
    ):
        visitor.get(path)
    assert part(scraped(metered), "requests_total") == {
        '{method="POST",route="/ui/sign-in",status="303"}': 1,
        '{method="GET",route="/ui/services/{service}",status="404"}': 2,
        '{method="GET",route="/ui",status="404"}': 1,
    }


def test_submits_are_counted_by_what_became_of_them(metered: Server) -> None:
    profile = profile_of("a")
    for content in (profile, profile, profile_of("b"), b"no profile", b"", profile_of("c", type_="wall")):
        metered.submit(content)
    metered.submit(profile, "a-wrong-key")
    for _ in range(2):
        metered.client.post(
            "/api/0/profiles?service=s&type=cpu", content=profile, headers=bearer(Server.submit_key)
        )
    assert part(scraped(metered), "submits_total") == {
        '{outcome="stored",reason=""}': 3,
        '{outcome="duplicate",reason=""}': 2,
        '{outcome="refused",reason="MalformedProfile"}': 1,
        '{outcome="refused",reason="EmptyBody"}': 1,
        '{outcome="refused",reason="NotACPUProfile"}': 1,
        '{outcome="refused",reason="KeyRefused"}': 1,
    }


@pytest.mark.any_store
def test_bytes_are_those_of_the_bodies(metered: Server) -> None:
    profile = profile_of("a")
    metered.submit(profile)
    merged = metered.merge().content
    metered.merge("HEAD")
    samples = scraped(metered)
    assert part(samples, "received_bytes_total")['{route="/v1/submit"}'] == len(profile)
    assert part(samples, "sent_bytes_total")['{route="/v1/merge"}'] == len(merged)


@pytest.mark.any_store
def test_the_last_use_of_keys_is_told_by_name_or_fingerprint(stopped: Server) -> None:
    stopped.environment["PGOF_METRICS_OPEN"] = "true"
    stopped.submit_keys.write_text("key-of-shop name=shop-ci\nunused name=unused\n")
    stopped.start()
    before = time.time()
    stopped.submit(profile_of("a"), "key-of-shop")
    stopped.submit(profile_of("a"), "a-wrong-key")
    stopped.merge()
    used = part(scraped(stopped), "key_used_timestamp_seconds")
    assert used.keys() == {'{key="shop-ci"}', f'{{key="{fingerprint(Server.merge_key)}"}}'}
    assert all(before <= at <= time.time() for at in used.values())
    said = stopped.client.get("/metrics").text
    assert not [key for key in ("key-of-shop", "a-wrong-key", Server.merge_key) if key in said]


def test_the_store_is_told_by_kind(metered: Server) -> None:
    for name in "abc":
        metered.submit(profile_of(name))
    metered.combine()
    for name in "de":
        metered.submit(profile_of(name))
    samples = scraped(metered)
    assert part(samples, "stored_profiles") == {'{kind="single"}': 2, '{kind="combined"}': 1}
    sizes = part(samples, "stored_bytes")
    assert sizes['{kind="single"}'] + sizes['{kind="combined"}'] == sum(
        path.stat().st_size for path in (*metered.blobs(), *metered.blobs(".inputs"))
    )
    disk = os.statvfs(metered.data)
    assert samples["disk_bytes"] == disk.f_blocks * disk.f_frsize
    assert 0 < samples["disk_free_bytes"] <= samples["disk_bytes"]


def test_the_catalog_is_not_asked_at_each_scrape(metered: Server) -> None:
    scraped(metered)
    metered.submit(profile_of("a"))
    assert part(scraped(metered), "stored_profiles")['{kind="single"}'] == 0


def test_what_has_been_counted_outlives_a_worker(metered: Server) -> None:
    metered.submit(profile_of("a"))
    metered.merge()
    before = scraped(metered)
    assert before["rows_bytes"] > 0
    for child in metered.descendants():
        for pid in descendants(child):
            os.kill(pid, signal.SIGKILL)
    metered.submit(profile_of("b"))
    metered.merge()
    after = scraped(metered)
    merges = 'task_seconds_count{task="merge_blobs"}'
    assert (before[merges], after[merges]) == (1, 2)
    assert after["rows_bytes"] > 0
    assert after["workers"] == 2


def test_rows_are_told_as_long_as_they_are_kept(metered: Server) -> None:
    for name in "abcdef":
        metered.submit(profile_of(name))
    metered.merge()
    all_of_them = scraped(metered)["rows_bytes"]
    metered.combine()  # one blob is left, and the worker drops the rows of the others
    assert 0 <= scraped(metered)["rows_bytes"] < all_of_them


def test_the_last_upkeep_is_told(metered: Server) -> None:
    metered.wait_for_log("upkeep done")
    samples = scraped(metered)
    assert 0 <= time.time() - samples["upkeep_done_timestamp_seconds"] < 60
    assert samples["upkeep_pause_seconds"] == 3600


def test_profiles_that_are_read_ahead_are_told(metered: Server) -> None:
    for name in "abc":
        metered.submit(profile_of(name))
    metered.restart()
    metered.wait_for_log("rows loaded")
    samples = scraped(metered)
    assert (samples["warmed_profiles"], samples["warming_profiles"]) == (3, 3)


def test_tasks_that_run_and_wait_are_told(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()

    async def use() -> None:
        def observe(task: str, seconds: float) -> None:
            seen[task] += 1
            assert seconds > 0

        async with Workers(2, BOUNDS, tmp_path, observe) as workers:
            assert (workers.count, workers.busy, workers.queued) == (2, 0, 0)
            tasks = [asyncio.create_task(workers.run(time.sleep, 0.01)) for _ in range(5)]
            await asyncio.sleep(0)
            assert (workers.busy, workers.queued) == (2, 3)
            await asyncio.gather(*tasks)
            assert (workers.busy, workers.queued) == (0, 0)

    asyncio.run(use())
    assert seen["sleep"] == 5
