"""The client of a collector, small enough to live in other people's programs."""

from pgo_agent.collector import Collector
from pgo_agent.errors import AgentError, CollectorUnavailable, SubmitRefused
from pgo_agent.outbox import Outbox
from pgo_agent.profiler import ContinuousProfiler
from pgo_agent.sampler import Sampler
from pgo_agent.spool import DiskSpool, Dropped, NoSpool, Spool
from pgo_agent.stack_sampler import StackSampler

__all__ = [
    "AgentError",
    "Collector",
    "CollectorUnavailable",
    "ContinuousProfiler",
    "DiskSpool",
    "Dropped",
    "NoSpool",
    "Outbox",
    "Sampler",
    "Spool",
    "StackSampler",
    "SubmitRefused",
]
