"""Metrics are documented, and what the dashboard and the alerts ask for is there."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.stacks import profile_of
from tests.server import Server

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "pgo-collector.json"


@pytest.fixture(scope="module")
def exposition(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the metrics of a collector after some requests."""
    with Server(tmp_path_factory.mktemp("metrics"), {"PGOF_METRICS_OPEN": "true"}) as server:
        for content in (profile_of("a"), profile_of("a"), b"no profile"):
            server.submit(content)
        server.merge()
        return server.client.get("/metrics").text


def documented() -> dict[str, tuple[str, set[str], str]]:
    """Type, labels and meaning of each metric of the table."""
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (.*?) ?\| (.*) \|$",
        (ROOT / "docs/reference/metrics.md").read_text(),
        re.MULTILINE,
    )
    return {name: (kind, {*re.findall(r"\w+", labels)}, text) for name, kind, labels, text in rows}


def expressions_of_the_dashboard() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]


def expressions_of_the_alerts() -> Iterator[str]:
    """Each is on the line of its `expr:`, or on the deeper ones that follow."""
    for found in re.finditer(r"^( +)expr: (.*\n(?:\1  .*\n)*)", ALERTS.read_text(), re.MULTILINE):
        yield found[2]


def test_the_dashboard_and_the_alerts_ask_for_what_is_there() -> None:
    series = set()
    for name, (kind, _, _) in documented().items():
        series |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    for expressions in ([*expressions_of_the_dashboard()], [*expressions_of_the_alerts()]):
        asked = {
            name for each in expressions for name in re.findall(r"\b(?:pgo_collector|process)_\w+", each)
        }
        assert len(asked) > 5
        assert asked <= series


def test_every_metric_of_ours_is_on_the_dashboard() -> None:
    shown = " ".join(expressions_of_the_dashboard())
    ours = {name for name in documented() if name.startswith("pgo_collector_")}
    assert {name for name in ours if name not in shown} <= {
        "pgo_collector_disk_bytes",
        "pgo_collector_upkeep_pause_seconds",
    }


@pytest.mark.system("promtool")
def test_prometheus_takes_what_the_collector_says(exposition: str) -> None:
    finished = subprocess.run(
        ["promtool", "check", "metrics"], input=exposition, capture_output=True, text=True, check=False
    )
    assert (finished.returncode, finished.stdout + finished.stderr) == (0, "")


@pytest.mark.system("promtool")
def test_prometheus_takes_the_alerts() -> None:
    finished = subprocess.run(
        ["promtool", "check", "rules", ALERTS], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    (count,) = re.findall(r"SUCCESS: (\d+) rules found", finished.stdout)
    assert int(count) == len([*expressions_of_the_alerts()])


@pytest.mark.system("promtool")
def test_prometheus_takes_the_questions_of_the_dashboard(tmp_path: Path) -> None:
    plain = [
        each.replace("$__rate_interval", "5m").replace("$instance", ".*")
        for each in expressions_of_the_dashboard()
    ]
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(plain)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    finished = subprocess.run(
        ["promtool", "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
