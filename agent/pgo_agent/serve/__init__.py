"""Serve CPU profiles of this machine over HTTP, and take them on a schedule: `pgo-agent serve`.

`create_app` builds the HTTP interface from `CaptureRoutes`; `listen` and `serve` run it. A `CaptureLock` lets
one capture run at a time, whether a request or the `ScheduledSampler` asks for it. Needs `pgo-agent[serve]`.
"""

from pgo_agent.serve.app import PATH, CaptureRoutes, create_app
from pgo_agent.serve.capture_request import CaptureRequest, RequestRefused
from pgo_agent.serve.captures import CaptureLock, ScheduledSampler
from pgo_agent.serve.server import listen, serve

__all__ = [
    "PATH",
    "CaptureLock",
    "CaptureRequest",
    "CaptureRoutes",
    "RequestRefused",
    "ScheduledSampler",
    "create_app",
    "listen",
    "serve",
]
