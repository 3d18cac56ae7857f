"""Write the counts and histograms of latency trackers as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pgo_agent.latency import Counts, Histogram, Monitor

# Up to 2^36 ns, 69 s. Each bucket is twice as wide as the one before, as a native histogram's of schema 0.
_BUCKETS = range(37)
_LATENCY = "pgo_agent_latency_seconds"
_EVENTS = "pgo_agent_latency_events_total"


def latency_metrics(monitors: Mapping[str, Monitor]) -> str:
    """Return the metrics of trackers by name, in the text format of Prometheus."""
    found = {name: monitor.totals() for name, monitor in [*monitors.items()]}
    lines = [
        f"# HELP {_LATENCY} Latencies of all events.",
        f"# TYPE {_LATENCY} histogram",
        *(line for name, (_, histogram) in found.items() for line in _histogram_lines(name, histogram)),
        f"# HELP {_EVENTS} Events by what became of them.",
        f"# TYPE {_EVENTS} counter",
        *(
            f'{_EVENTS}{{tracker="{name}",outcome="{outcome}"}} {counts[outcome]}'
            for name, (counts, _) in found.items()
            for outcome in Counts.NAMES
        ),
    ]
    return "\n".join(lines) + "\n"


def _histogram_lines(name: str, histogram: Histogram) -> Iterator[str]:
    count = 0
    for bucket in _BUCKETS:
        count += histogram.counts.get(bucket, 0)
        yield f'{_LATENCY}_bucket{{tracker="{name}",le="{(1 << bucket) / 1e9!r}"}} {count}'
    yield f'{_LATENCY}_bucket{{tracker="{name}",le="+Inf"}} {histogram.count}'
    yield f'{_LATENCY}_sum{{tracker="{name}"}} {histogram.total / 1e9!r}'
    yield f'{_LATENCY}_count{{tracker="{name}"}} {histogram.count}'
