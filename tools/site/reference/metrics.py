"""The page of all metrics, made from what a collector answers to a scrape."""

from __future__ import annotations

import re

from tools.site.reference.markdown import code, page, table

_INTRODUCTION = """\
Every metric that `/metrics` serves. [Metrics](../metrics.md) says how to turn them on, and what the
labels mean."""


def metrics_page(exposition: str) -> str:
    """Return the page for a text in Prometheus's format 0.0.4 in which every metric has a sample."""
    meanings = dict(re.findall(r"^# HELP (\w+) (.*)$", exposition, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\w+) (.*)$", exposition, re.MULTILINE))
    samples = re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", exposition, re.MULTILINE)
    labels: dict[str, dict[str, None]] = {name: {} for name in kinds}
    for sample, found in samples:
        name = sample if sample in kinds else sample.rpartition("_")[0]
        labels[name] |= dict.fromkeys(re.findall(r'(\w+)="', found))
    rows = (
        [code(name), kind, ", ".join(code(label) for label in labels[name] if label != "le"), meanings[name]]
        for name, kind in kinds.items()
    )
    return page("Metrics, one by one", _INTRODUCTION, table(["metric", "type", "labels", "meaning"], rows))
