"""Metrics are documented, and what the dashboard and the alerts ask for is there."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_collector.model.function_rules import parse_function_rules

from tests.faults.stacks import profile_of
from tests.server import Server
from tools.site.reference.deployment import with_panels
from tools.site.reference.metrics import Exposed

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


def test_a_metric_that_no_panel_shows_gets_one() -> None:
    """tests/docs/test_site.py holds the committed dashboard to this."""
    bare = with_panels(DASHBOARD.read_text(), [])
    new = [
        Exposed("pgo_collector_echoes_total", "counter", "Echoes.", ["outcome"]),
        Exposed("pgo_collector_echo_seconds", "histogram", "Time to an echo.", []),
        Exposed("pgo_collector_echoing", "gauge", "Echoes now.", []),
        Exposed("process_echoes", "gauge", "Another's.", []),
    ]
    made = with_panels(bare, new)
    panels, above = (json.loads(each)["panels"] for each in (made, bare))
    added = panels[len(above) :]
    rated = '{instance=~"$instance"}[$__rate_interval]'
    assert [panel["title"] for panel in added] == ["More", "Echoes", "Time to an echo", "Echoes now"]
    assert [panel["targets"][0]["expr"] for panel in added[1:]] == [
        f"sum by (outcome) (rate(pgo_collector_echoes_total{rated}))",
        f"histogram_quantile(0.95, sum by (le) (rate(pgo_collector_echo_seconds_bucket{rated})))",
        'sum(pgo_collector_echoing{instance=~"$instance"})',
    ]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len({panel["id"] for panel in panels}) == len(panels)
    assert with_panels(made, new) == made
    assert with_panels(made, []) == bare


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


@pytest.mark.system("promtool")
def test_the_alert_on_a_function_fires_beyond_its_share(tmp_path: Path) -> None:
    """The example of the docs: its rule is one, and its alert fires at 15 % and not at 5 %."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    (rules,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (rule,) = parse_function_rules(rules.encode())
    (alert,) = re.findall(r"^```yaml\n(groups:.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert {*re.findall(r"pgo_function_\w+", alert)} == {rule.metrics.inside, rule.metrics.profiled}
    (tmp_path / "alert.yml").write_text(alert)
    fires = {
        "exp_labels": {"service": "api"},
        "exp_annotations": {"summary": "api spends 15% of its CPU time in json.Marshal."},
    }
    tests = [
        {
            "interval": "1m",
            "input_series": [
                # Two collectors, which have stored different parts.
                {"series": f'{name}{{service="api",instance="{each}"}}', "values": f"0+{step * each}x180"}
                for each in (1, 2)
                for name, step in ((rule.metrics.inside, inside), (rule.metrics.profiled, 100))
            ],
            "alert_rule_test": [
                {"eval_time": "2h", "alertname": "JsonMarshalTakesTooMuch", "exp_alerts": expected}
            ],
        }
        for inside, expected in ((5, []), (15, [fires]))
    ]
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": ["alert.yml"], "tests": tests}))
    finished = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
