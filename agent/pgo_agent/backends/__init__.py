"""Sample native processes with an installed profiler: bcc, perf or bpftrace, each behind `Backend`.

`ProcessSampler` takes profiles of the processes that a `SamplingRequest` names. `backends` lists the
profilers in order of preference, `probe` tries one here, and `choose` returns the first that works.
"""

from pgo_agent.backends.backend import Backend, SamplingRequest
from pgo_agent.backends.bcc import Bcc
from pgo_agent.backends.bpftrace import Bpftrace
from pgo_agent.backends.perf import Perf
from pgo_agent.backends.process_sampler import ProcessSampler, backends, choose, probe

__all__ = [
    "Backend",
    "Bcc",
    "Bpftrace",
    "Perf",
    "ProcessSampler",
    "SamplingRequest",
    "backends",
    "choose",
    "probe",
]
