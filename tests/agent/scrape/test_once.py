"""Test `pgo-agent scrape --once` with a targets file, and a collector that accepts profiles or doesn't."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.agent.forked import run_agent
from tests.agent.scrape.scraping import Scraping, peak_memory, reasons, wait_until
from tests.agent.scrape.target_server import TARGET_KEY, TargetServer, target_server
from tests.agent.scripted_server import KEY, Answer, ScriptedServer, problem
from tests.terminal import on_terminal


def submitted(server: ScriptedServer) -> list[dict[str, list[str]]]:
    """Return the query parameters of each submit."""
    return [parse_qs(urlsplit(seen.path).query) for seen in server.seen]


def test_profiles_arrive_as_what_they_are(
    scraping: Scraping, targets: TargetServer, server: ScriptedServer
) -> None:
    scraping.list_targets([targets.target("good"), targets.target("bare")], types=["cpu", "heap"], seconds=2)
    done = scraping.once("--label", "cluster=a", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "targets": 2,
        "scraped": 4,
        "failed": {},
        "late": 0,
        "sent": 4,
        "waiting": 0,
        "key_refused": 0,
        "dropped": {},
        "failures": [],
    }
    expected = [
        {"service": ["shop"], "labels": ["cluster=a"], "type": [type_]} for type_ in ("cpu", "heap") * 2
    ]
    assert sorted(submitted(server), key=str) == sorted(expected, key=str)
    assert {seen.headers["Authorization"] for seen in server.seen} == {f"Bearer {KEY}"}
    assert all(gzip.decompress(seen.body) for seen in server.seen)
    assert targets.queries["good", "profile"] == {"seconds": ["2"]}
    assert targets.queries["good", "heap"] == {}
    # Targets learn nothing about the collector.
    assert not any(KEY in str(headers) for headers in targets.headers)


def test_each_fault_is_its_targets_alone(
    scraping: Scraping, targets: TargetServer, server: ScriptedServer
) -> None:
    silent = {"hang": "timeout", "drip": "timeout"}
    faults = {
        "reset": "no HTTP answer",
        "cut": "the answer is cut off",
        "half": "not a pprof profile",
        "html": "not a pprof profile",
        "text": "not a pprof profile",
        "page": "status 502",
        "error": "status 500",
        "empty": "not a pprof profile",
        "missing": "status 404",
        "redirect": "status 302",
        "endless": "too large",
        "bomb": "too large",
        "garbage": "no HTTP answer",
        "secret": "status 401",
    }
    with target_server() as other:
        targets.elsewhere = other.url
        good = [f"good-{number}" for number in range(5)]
        # The silent ones are given up soon, and a busy machine has time for the others.
        scraping.list_targets(map(targets.target, silent), seconds=1)
        listed = scraping.targets.read_text()
        scraping.list_targets(map(targets.target, [*faults, *good]), seconds=20)
        scraping.targets.write_text(f"{listed}\n{scraping.targets.read_text()}")
        patience = {"pgo_agent.scrape.scraper._EXTRA_SECONDS": 0.5}
        done = scraping.once("--json", "--concurrency", "6", constants=patience)
        assert not other.asked
    said = json.loads(done.stdout)
    assert reasons(said) == silent | faults
    assert done.returncode == 1
    assert (said["scraped"], said["sent"], len(server.seen)) == (5, 5, 5)
    details = {failure["target"]: failure["detail"] for failure in said["failures"]}
    named = {
        name: detail for name in faults for target, detail in details.items() if f"/{name}/" in f"{target}/"
    }
    assert named["missing"] == "404 page not found"
    assert named["half"] == "gzip: the stream is truncated"
    assert named["html"].startswith("this is HTML or XML, such as a login or error page")
    assert named["text"].startswith("this is a profile in pprof's old text format")
    assert named["text"].endswith("or fetch it without `debug=1`")
    assert named["page"].startswith("HTML or XML, such as a login or error page")
    assert named["error"] == '{"error": "profiling is off"}'
    assert re.fullmatch(r"\d+ bytes came, and not all of it", named["cut"])
    assert named["empty"] == "the answer is empty"


@pytest.mark.exhaustive
def test_gigabytes_from_many_at_once_take_little_memory(scraping: Scraping, targets: TargetServer) -> None:
    """40 bodies of 8 MiB would take 370 MiB if they were held in memory."""
    scraping.list_targets(targets.target(f"endless-{number}") for number in range(40))
    peak = 0
    with scraping.start("--once", "--json") as process:
        while process.poll() is None:
            peak = max(peak, peak_memory(process.pid))
            time.sleep(0.01)
        assert json.loads(process.communicate()[0])["failed"] == {"too large": 40}
    assert 0 < peak < 200 << 20


def test_nobody_there_is_a_failure(scraping: Scraping, targets: TargetServer) -> None:
    """The summary as text, without --json."""
    with target_server() as gone:
        url = gone.target("good")
    scraping.list_targets([url])
    done = scraping.once()
    assert done.returncode == 2
    assert done.stdout == (
        "targets: 1; scraped: 0; failed: 1 no connection; late: 0; sent: 0; waiting: 0; key_refused: 0;"
        " dropped: 0\n"
    )
    assert done.stderr.startswith(f"pgo-agent: {url}: cpu: no connection: ")
    assert not targets.asked


def test_what_the_collector_does_not_take_waits_for_the_next_run(
    scraping: Scraping, targets: TargetServer, server: ScriptedServer
) -> None:
    scraping.list_targets([targets.target("good")])
    server.then = Answer(503, {"Retry-After": "3600"})
    first = scraping.once("--seconds", "1", "--json")
    assert (first.returncode, json.loads(first.stdout)["waiting"]) == (1, 1)
    server.then = Answer(204)
    server.seen.clear()
    second = scraping.once("--seconds", "1", "--json")
    said = json.loads(second.stdout)
    assert (second.returncode, said["waiting"], said["sent"], len(server.seen)) == (0, 0, 2, 2)


def test_what_it_refuses_is_told(scraping: Scraping, targets: TargetServer, server: ScriptedServer) -> None:
    scraping.list_targets([targets.target("good")])
    server.then = problem(413, "this profile is too large")
    done = scraping.once("--seconds", "1", "--json")
    assert (done.returncode, json.loads(done.stdout)["dropped"]) == (1, {"refused": 1})
    assert "this profile is too large" in done.stderr


def test_what_it_refuses_the_key_for_waits_for_the_next_run(
    scraping: Scraping, targets: TargetServer, server: ScriptedServer
) -> None:
    scraping.list_targets([targets.target("good")])
    server.then = problem(403, "this key is for another service")
    done = scraping.once("--seconds", "1", "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, said["waiting"], said["dropped"]) == (1, 1, {})
    assert said["key_refused"] >= 1
    assert "ERROR key refused" in done.stderr
    assert "this key is for another service" in done.stderr
    assert KEY not in done.stderr
    server.then = Answer(204)
    said = json.loads(scraping.once("--seconds", "1", "--json").stdout)
    assert (said["waiting"], said["sent"]) == (0, 2)


def test_each_shard_has_its_part(scraping: Scraping, targets: TargetServer, server: ScriptedServer) -> None:
    names = [f"good-{number}" for number in range(20)]
    scraping.list_targets(map(targets.target, names))
    counts = [
        json.loads(scraping.once("--seconds", "1", "--json", "--shard", f"{index}/3").stdout)["targets"]
        for index in range(3)
    ]
    assert sum(counts) == 20
    assert min(counts) > 0
    assert {*targets.asked.values()} == {1}
    assert len(targets.asked) == len(server.seen) == 20


def test_a_token_is_for_its_target_alone(scraping: Scraping, targets: TargetServer) -> None:
    (scraping.home / "token").write_text(f"{TARGET_KEY}\n")
    scraping.list_targets([targets.target("secret")], token_file="token")  # noqa: S106 - a name of a file
    listed = scraping.targets.read_text()
    scraping.list_targets([targets.target("good")])
    scraping.targets.write_text(f"{listed}\n{scraping.targets.read_text()}")
    assert scraping.once("--seconds", "1").returncode == 0
    assert sorted(str(headers.get("Authorization")) for headers in targets.headers) == [
        f"Bearer {TARGET_KEY}",
        "None",
    ]


@pytest.mark.parametrize("token", [None, "", "two words", "a\nb"])
def test_a_token_that_cannot_be_read_or_sent_is_told_without_it(
    scraping: Scraping, targets: TargetServer, token: str | None
) -> None:
    if token is not None:
        (scraping.home / "token").write_text(token)
    scraping.list_targets([targets.target("secret")], token_file="token")  # noqa: S106 - a name of a file
    done = scraping.once("--seconds", "1", "--json")
    assert done.returncode == 2
    assert reasons(json.loads(done.stdout)) == {"secret": "no token or certificates"}
    assert not token or token not in done.stdout + done.stderr
    assert not targets.asked


@pytest.mark.system("openssl")
def test_tls_is_checked_with_the_authority_that_is_named(scraping: Scraping, tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=target", "-addext", "subjectAltName=IP:127.0.0.1"]
    files: list[str | Path] = ["-keyout", tmp_path / "private.pem", "-out", certificate]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(made, check=True, capture_output=True)
    both = tmp_path / "both.pem"
    both.write_text(certificate.read_text() + (tmp_path / "private.pem").read_text())
    with target_server(both) as targets:
        scraping.list_targets([targets.target("good")], ca_file=str(certificate))
        assert scraping.once("--seconds", "1").returncode == 0
        scraping.list_targets([targets.target("good")])
        done = scraping.once("--seconds", "1")
    assert done.returncode == 2
    assert "certificate verify failed" in done.stderr


def test_a_signal_ends_it_and_what_was_scraped_is_kept(
    scraping: Scraping, targets: TargetServer, server: ScriptedServer
) -> None:
    scraping.list_targets([targets.target("good"), targets.target("slow")])
    with scraping.start("--once", "--seconds", "60", "--json") as process:
        wait_until(lambda: server.seen)
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=50)  # less than the slow target takes
    assert (process.returncode, stderr) == (1, "")
    assert json.loads(stdout)["sent"] == 1


def test_a_person_sees_how_far_it_is(scraping: Scraping, targets: TargetServer) -> None:
    scraping.list_targets([targets.target("good")])
    status, shown = on_terminal(*scraping.arguments("--once", "--seconds", "1"))
    assert status == 0
    assert b"/1 [" in shown


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--every", "30", "--seconds", "30"], "--seconds must be less than --every"),
        (["--types", "cpu,memory"], "unknown type 'memory'"),
        (["--shard", "3/3"], "not INDEX/COUNT"),
        (["--concurrency", "0"], "not a whole number above 0"),
        (["--targets", "missing.toml"], "missing.toml: "),
        (["--kubernetes", "--pod-label", "a=b"], "not namespace, pod, node, label:KEY or annotation:KEY"),
        (["--label", "=b"], "a label has no name"),
        (["--spool", "/proc/none"], "/proc/none"),
        (["--spool", "/proc/version"], "a file is in the way, and the spool is a folder"),
        (["--spool", "/proc/version/spool"], "a file is in the way, and the spool is a folder"),
    ],
)
def test_what_cannot_be_done_is_told_at_once(
    scraping: Scraping, targets: TargetServer, options: list[str], reason: str
) -> None:
    scraping.list_targets([targets.target("good")])
    done = scraping.once(*options)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert not targets.asked


def test_nothing_to_scrape_is_told(scraping: Scraping) -> None:
    done = scraping.once()
    assert done.returncode == 2
    assert "--targets FILE, --kubernetes, " in done.stderr
    scraping.targets.write_text("")
    assert scraping.once().returncode == 2


def test_without_a_spool_it_needs_no_folder(
    scraping: Scraping, targets: TargetServer, server: ScriptedServer
) -> None:
    scraping.list_targets([targets.target("good")])
    files: list[str | Path] = ["--key-file", scraping.key_file, "--targets", scraping.targets]
    done = run_agent(
        ["scrape", "--url", server.url, *files, "--once", "--seconds", "1"],
        scraping.environment | {"TMPDIR": str(scraping.home)},
    )
    assert (done.returncode, len(server.seen)) == (0, 1)
    assert sorted(path.name for path in scraping.home.iterdir()) == ["key", "targets.toml"]
