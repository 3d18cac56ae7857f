"""Parts of files in deploy/ that are made from the code: the settings that the chart takes, and the panels of
metrics that no other panel of the dashboard shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from pgo_collector.settings import PREFIX, Settings

from tools.site.reference.metrics import Exposed

_DEPLOY = Path(__file__).parents[3] / "deploy"
SCHEMA = _DEPLOY / "helm" / "pgo-collector" / "values.schema.json"
DASHBOARD = _DEPLOY / "grafana" / "pgo-collector.json"

# Settings that aren't among the chart's: the image's, which the probes and the volume go by; and those with
# a value of their own, since a URL of PostgreSQL has a password in it, and several collectors go by the rest.
_SET_BY_THE_CHART = {"bind_address", "directory", "catalog", "storage", "bulk", "session_secret_file"}
# Metrics that alerts compare others with.
_NOT_SHOWN = {"pgo_collector_disk_bytes", "pgo_collector_upkeep_pause_seconds"}
_ROW = "More"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3


def with_settings(schema: str) -> str:
    """Return the schema of the chart's values with the names of all settings that the chart takes."""
    made = json.loads(schema)
    names = sorted(f"{PREFIX}{name.upper()}" for name in Settings.fields.keys() - _SET_BY_THE_CHART)
    made["properties"]["settings"]["propertyNames"]["enum"] = names
    return _written(made)


def with_panels(dashboard: str, metrics: Iterable[Exposed]) -> str:
    """Return the dashboard with a last row, of a panel for each metric of ours that no other row shows."""
    made = json.loads(dashboard)
    panels = made["panels"]
    for number, panel in enumerate(panels):
        if (panel["type"], panel["title"]) == ("row", _ROW):
            del panels[number:]
            break
    shown = {*re.findall(r"pgo_collector_\w+", json.dumps(panels))} | _NOT_SHOWN
    missing = [
        metric
        for metric in metrics
        if metric.name.startswith("pgo_collector_")
        if not shown & {metric.name, f"{metric.name}_bucket"}
    ]
    if missing:
        panels += _more(missing, panels)
    return _written(made)


def _more(metrics: Iterable[Exposed], above: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a row below these panels, and a panel for each of the metrics."""
    top = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in above)
    ids = count(max(each["id"] for each in above) + 1)
    place = {"h": 1, "w": 24, "x": 0, "y": top}
    yield {"type": "row", "title": _ROW, "collapsed": False, "gridPos": place, "id": next(ids), "panels": []}
    for number, metric in enumerate(metrics):
        down, right = divmod(number, _COLUMNS)
        expression, unit = _question(metric)
        yield {
            "type": "timeseries",
            "title": metric.meaning.rstrip("."),
            "id": next(ids),
            "datasource": _SOURCE,
            "gridPos": {
                "h": _HEIGHT,
                "w": _WIDTH,
                "x": right * _WIDTH,
                "y": top + 1 + down * _HEIGHT,
            },
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [
                {
                    "datasource": _SOURCE,
                    "expr": expression,
                    "legendFormat": " ".join(f"{{{{{label}}}}}" for label in metric.labels) or metric.name,
                    "refId": "A",
                }
            ],
        }


def _question(metric: Exposed) -> tuple[str, str]:
    """Return what to ask Prometheus for a metric, and the unit of the answer."""
    is_histogram = metric.kind == "histogram"
    by = ", ".join([*(["le"] if is_histogram else []), *metric.labels])
    added = f"sum by ({by}) " if by else "sum"
    series = f'{metric.name}{"_bucket" if is_histogram else ""}{{instance=~"$instance"}}'
    rate = f"{added}(rate({series}[$__rate_interval]))"
    if is_histogram:
        return f"histogram_quantile(0.95, {rate})", "s"
    if metric.kind == "counter":
        return rate, "ops"
    return f"{added}({series})", "short"


def _written(made: object) -> str:
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"
