"""Track where programs wait, by eBPF on the kernel's tracepoints: off-CPU time, system calls, disks and more.

`TRACKERS` lists what can be tracked, and `trackers/` has all that is known about each. A `Session`
(`session`) runs one with `TrackerSettings` (`settings`), in a child process of a `TrackerBackend`
(`backend`): with bcc, `bcc_feed` runs `latency_program`, which compiles the tracker's C program and reads its
tables; where bcc is missing, `bpftrace_feed` runs the tracker's script. `tick` reads what the child process
prints, and `processes` finds the processes that filters name. The session tells each `Listener` what is
counted: a `Recorder` (`recorder`) makes a pprof profile of it (`profile`), `Windows` (`histogram`) keep its
histograms over minutes and hours. A `Monitor` (`monitor`) does all of that for readers that come and go.
`StackNamer` names the functions of stacks. `probe` tries a tracker here.
"""

from pgo_agent.latency.backend import TrackerBackend, choose_tracker_backend, tracker_backends
from pgo_agent.latency.histogram import Histogram, Windows
from pgo_agent.latency.monitor import EventStream, Monitor
from pgo_agent.latency.processes import unmatched
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
    "unmatched",
]
