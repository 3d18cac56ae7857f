"""The page of all metrics, made from what a collector answers to a scrape."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pgo_collector.serve.app  # noqa: F401 - declares the metrics of all rooms
from pgo_collector.metrics.metrics import METRICS

from tools.site.reference.markdown import code, page, table

_INTRODUCTION = """\
Every metric that `/metrics` serves. [Metrics](../metrics.md) says how to turn them on, and what the
labels mean."""


class Exposed(NamedTuple):
    """A metric that was served: its name, kind and meaning, and its labels but for a histogram's bounds."""

    name: str
    kind: str
    meaning: str
    labels: Sequence[str]


def exposed(exposition: str) -> list[Exposed]:
    """Return the metrics of a text in Prometheus's format 0.0.4.

    Each has the labels of its samples; one without a sample has those that it was declared with.
    """
    declared = {f"pgo_collector_{metric.name}": metric.labels for metric in METRICS}
    meanings = dict(re.findall(r"^# HELP (\w+) (.*)$", exposition, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\w+) (.*)$", exposition, re.MULTILINE))
    samples = re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", exposition, re.MULTILINE)
    labels: dict[str, dict[str, None]] = {name: {} for name in kinds}
    for sample, found in samples:
        name = sample if sample in kinds else sample.rpartition("_")[0]
        labels[name] |= dict.fromkeys(re.findall(r'(\w+)="', found))
    return [
        Exposed(
            name,
            kind,
            meanings[name],
            [label for label in labels[name] if label != "le"]
            or declared.get(name.removesuffix("_total"), ()),
        )
        for name, kind in kinds.items()
    ]


def metrics_page(metrics: Iterable[Exposed]) -> str:
    """Return the page."""
    rows = ([code(of.name), of.kind, ", ".join(map(code, of.labels)), of.meaning] for of in metrics)
    return page("Metrics, one by one", _INTRODUCTION, table(["metric", "type", "labels", "meaning"], rows))
