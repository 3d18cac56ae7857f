"""Sample native processes with an installed profiler, each behind `Backend` (`backend`).

The profilers are `bcc`, which runs `bcc_program` by a Python that has bcc, `perf` and `bpftrace`.
`KeptBcc` keeps bcc running between profiles. A `ProfilerProcess` (`profiler_process`) is the child process of
bcc or bpftrace; latency trackers run in one, too. A `ProcessSampler` (`process_sampler`) takes profiles of
the processes that a `SamplingRequest` names. `backends` lists the profilers in order of preference, `probe`
tries one here, and `choose` returns the first that works. `lacking` (`rights`) names missing capabilities.
Latency trackers, too, learn from the kernel which process forked which: by `forks_program` (`forks`) or, with
bpftrace, `PARENT`.
"""

from pgo_agent.backends.backend import Backend, SamplingRequest
from pgo_agent.backends.bcc import Bcc, KeptBcc
from pgo_agent.backends.bpftrace import PARENT, Bpftrace
from pgo_agent.backends.forks import forks_program
from pgo_agent.backends.perf import Perf
from pgo_agent.backends.process_sampler import ProcessSampler, backends, choose, probe
from pgo_agent.backends.profiler_process import ProfilerProcess
from pgo_agent.backends.rights import lacking

__all__ = [
    "PARENT",
    "Backend",
    "Bcc",
    "Bpftrace",
    "KeptBcc",
    "Perf",
    "ProcessSampler",
    "ProfilerProcess",
    "SamplingRequest",
    "backends",
    "choose",
    "forks_program",
    "lacking",
    "probe",
]
