"""Track where programs wait, by eBPF on the kernel's tracepoints: off-CPU time, system calls, disks and more.

`TRACKERS` lists what can be tracked. A `Session` runs one with `TrackerSettings`, in a child process of a
`TrackerBackend`: with bcc, it compiles the tracker's C program of `bpf/` and reads its tables
(`latency_program.py`); where bcc is missing, bpftrace runs a script of `bpf/`. The session tells each
`Listener` what is counted: a `Recorder` makes a pprof profile of it, `Windows` keep its histograms over
minutes and hours. A `Monitor` does all of that for readers that come and go. `StackNamer` names the functions
of stacks. `probe` tries a tracker here.
"""

from pgo_agent.latency.backend import TrackerBackend, choose_tracker_backend, tracker_backends
from pgo_agent.latency.histogram import Histogram, Windows
from pgo_agent.latency.monitor import EventStream, Monitor
from pgo_agent.latency.recorder import Recorder, StackNamer
from pgo_agent.latency.session import Listener, Session, probe
from pgo_agent.latency.settings import TrackerSettings, format_ns, parse_ns
from pgo_agent.latency.tick import Counts, Happening, Tick
from pgo_agent.latency.trackers import TRACKERS, Tracker

__all__ = [
    "TRACKERS",
    "Counts",
    "EventStream",
    "Happening",
    "Histogram",
    "Listener",
    "Monitor",
    "Recorder",
    "Session",
    "StackNamer",
    "Tick",
    "Tracker",
    "TrackerBackend",
    "TrackerSettings",
    "Windows",
    "choose_tracker_backend",
    "format_ns",
    "parse_ns",
    "probe",
    "tracker_backends",
]
