"""Sample native processes with an installed profiler, each behind `Backend` (`backend`).

The profilers are `bcc`, which runs `bcc_program` by a Python that has bcc, `perf` and `bpftrace`.
`KeptBcc` keeps bcc running between profiles. A `ProfilerProcess` (`profiler_process`) is the child process of
bcc or bpftrace; latency trackers run in one, too. A `ProcessSampler` (`process_sampler`) takes profiles of
the processes that a `SamplingRequest` names. `backends` lists the profilers in order of preference, `probe`
tries one here, and `choose` returns the first that works. `lacking` (`rights`) names missing capabilities.
Latency trackers, too, learn from the kernel which process forked which: by `forks_program` (`bcc_parts`) or,
with bpftrace, `PARENT`. What `copies_program` (`bcc_parts`) copies of stacks in the kernel, `read_copy` reads
and `unwind` (`whole_stacks`) unwinds, in a block of `unwinding`.
"""

from pgo_agent.backends.backend import Backend, SamplingRequest
from pgo_agent.backends.bcc import Bcc, KeptBcc
from pgo_agent.backends.bcc_parts import copies_program, forks_program, read_copy
from pgo_agent.backends.bpftrace import ONLY_FRAME_POINTERS, PARENT, Bpftrace
from pgo_agent.backends.perf import Perf
from pgo_agent.backends.process_sampler import ProcessSampler, backends, choose, probe
from pgo_agent.backends.profiler_process import ProfilerProcess
from pgo_agent.backends.rights import lacking
from pgo_agent.backends.whole_stacks import continued, how_followed, unwind, unwinding

__all__ = [
    "ONLY_FRAME_POINTERS",
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
    "continued",
    "copies_program",
    "forks_program",
    "how_followed",
    "lacking",
    "probe",
    "read_copy",
    "unwind",
    "unwinding",
]
