"""Sample CPU profiles and submit them to a collector, from inside any Python program.

The names in `__all__` are the public interface. `Collector` (`collector`) submits finished profiles:
`endpoint` makes its requests, `retry` decides whether to send again, `trace` reports where the time goes.
`ContinuousProfiler` (`profiler`) takes profiles on a schedule with a `StackSampler` (`stack_sampler`), for
which a process `beside` this one runs the program `stack_reader`, and an `Outbox` (`outbox`) keeps them in a
`DiskSpool` (`spool`) while the collector is away. `track` (`tracking`) measures how long parts of the program
take. `profile_builder` builds all pprof messages, `programs` sends those that were profiled, and `errors` has
the tree of errors.

Inside: `native/` turns samples of native programs into pprof, `backends/` takes those samples with bcc, perf
or bpftrace, `latency/` tracks where programs wait, `scrape/` pulls profiles from /debug/pprof, `serve/`
serves profiles over HTTP, and `commands/` with `cli` is the command line. Importing `pgo_agent` loads none of
these folders.
"""

from pgo_agent.collector import Collector
from pgo_agent.errors import AgentError, CollectorUnavailable, KeyRefused, SubmitRefused
from pgo_agent.outbox import Outbox
from pgo_agent.profiler import ContinuousProfiler, Sampler
from pgo_agent.spool import DiskSpool, Dropped, NoSpool, Spool
from pgo_agent.stack_sampler import StackSampler
from pgo_agent.tracking import track, tracked_in_flight, tracked_profile

__all__ = [
    "AgentError",
    "Collector",
    "CollectorUnavailable",
    "ContinuousProfiler",
    "DiskSpool",
    "Dropped",
    "KeyRefused",
    "NoSpool",
    "Outbox",
    "Sampler",
    "Spool",
    "StackSampler",
    "SubmitRefused",
    "track",
    "tracked_in_flight",
    "tracked_profile",
]
