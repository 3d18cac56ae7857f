"""Metrics of functions: what `submits.function_metrics` has counted, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pgo_collector.model.function_rules import FunctionRule
from pgo_collector.on_first_use import OnFirstUse
from pgo_collector.submits.function_metrics import SHARE_MINUTES, FunctionMetrics

if TYPE_CHECKING:
    from prometheus_client import core
else:
    core = OnFirstUse("prometheus_client.core")


def function_families(functions: FunctionMetrics) -> Iterator[core.Metric]:
    """Yield the metrics of each rule, with a sample for each of its series.

    There is a share only where a profile came within its time.
    """
    for rule, readings in functions.read():
        inside, own, profiled, share = _empty(rule)
        for reading in readings:
            inside.add_metric(reading.labels, reading.inside)
            own.add_metric(reading.labels, reading.own)
            profiled.add_metric(reading.labels, reading.profiled)
            if reading.share is not None:
                share.add_metric(reading.labels, reading.share)
        yield from (inside, own, profiled, share)


def _empty(
    rule: FunctionRule,
) -> tuple[
    core.CounterMetricFamily, core.CounterMetricFamily, core.CounterMetricFamily, core.GaugeMetricFamily
]:
    """Return the metrics of a rule without samples."""
    family, names, labels = core.CounterMetricFamily, rule.metrics, rule.label_names
    what = f"in {rule.type} profiles"
    which = f"a {rule.pattern.of} that matches {rule.pattern.text}"
    return (
        family(names.inside, f"Seconds {what} of stacks with {which}.", labels=labels),
        family(names.own, f"Seconds {what} of stacks whose leaf is in {which}.", labels=labels),
        family(names.profiled, f"Seconds {what} of all stacks.", labels=labels),
        core.GaugeMetricFamily(
            names.share,
            f"Share {what} of stacks with {which}, of those that came in the last {SHARE_MINUTES} minutes.",
            labels=labels,
        ),
    )
