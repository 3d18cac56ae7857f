"""Serve CPU profiles of this machine over HTTP, and take them on a schedule: `pgo-agent serve`.

`create_app` builds the HTTP interface from `CaptureRoutes`; `listen` and `serve` run it (`app`). `captures`
reads a `CaptureRequest`; its `CaptureLock` lets one capture run at a time, whether a request or the
`ScheduledSampler` asks for it. `LatencyRoutes` (`latency_routes`) are the latency trackers'; a
`LatencySchedule` (`latency_schedule`) submits their profiles. `requests` checks what all requests have, and
answers those that are refused. Needs `pgo-agent[serve]`.
"""

from pgo_agent.serve.app import PATH, CaptureRoutes, create_app, listen, serve
from pgo_agent.serve.captures import CaptureLock, CaptureRequest, ScheduledSampler
from pgo_agent.serve.latency_routes import LatencyRoutes
from pgo_agent.serve.latency_schedule import LatencySchedule
from pgo_agent.serve.requests import RequestRefused

__all__ = [
    "PATH",
    "CaptureLock",
    "CaptureRequest",
    "CaptureRoutes",
    "LatencyRoutes",
    "LatencySchedule",
    "RequestRefused",
    "ScheduledSampler",
    "create_app",
    "listen",
    "serve",
]
