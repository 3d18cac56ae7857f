"""Serve CPU profiles of this machine over HTTP, and take them on a schedule: `pgo-agent serve`.

`create_app` builds the HTTP interface from `CaptureRoutes`; `listen` and `serve` run it. A `CaptureLock` lets
one capture run at a time, whether a request or the `ScheduledSampler` asks for it. `LatencyRoutes` are the
latency trackers'; a `LatencySchedule` submits their profiles. Needs `pgo-agent[serve]`.
"""

from pgo_agent.serve.app import PATH, CaptureRoutes, create_app
from pgo_agent.serve.capture_request import CaptureRequest
from pgo_agent.serve.captures import CaptureLock, ScheduledSampler
from pgo_agent.serve.latency_routes import LatencyRoutes
from pgo_agent.serve.latency_schedule import LatencySchedule
from pgo_agent.serve.requests import RequestRefused
from pgo_agent.serve.server import listen, serve

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
