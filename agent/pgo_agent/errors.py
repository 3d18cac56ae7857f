"""Define every error of the agent, as one tree. `Collector.submit` raises the first two and no others.

    AgentError
    ├── SubmitRefused           the collector refused the profile, and would refuse it again
    │   └── KeyRefused          it refused the key, so the profile may be sent again with another one
    ├── CollectorUnavailable    the collector gave no answer; the same bytes may be sent again later
    ├── ToolFailed              a program that the agent runs is missing, or failed
    ├── NotSupported            the program that runs a latency tracker can't do what is asked
    ├── NoBackend               none of the profilers of native programs works on this machine
    ├── NoSamples               no process of these names runs, or none took any CPU time
    ├── NothingMatches          nothing that a latency tracker was told to track was there
    ├── Stopped                 a capture was stopped before it began
    ├── AddressUnusable         the address can't be listened on, or needs a key
    ├── NotInstalled            an optional part of the agent isn't installed
    ├── NotReadable             a file is missing, damaged or of another format
    ├── TargetInvalid           the description of a scrape target is wrong
    ├── ScrapeFailed            a target gave no profile
    ├── ClusterUnavailable      Kubernetes gave no list of pods
    └── CatalogUnavailable      Nomad or Consul gave no list of services

No error contains the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


class AgentError(Exception):
    """A profile was not taken, or not submitted."""


class SubmitRefused(AgentError):
    """The collector refused the profile: `status` is the HTTP status, `detail` its reason in words."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail

    def __str__(self) -> str:
        return f"the collector refused the profile: {self.status} {self.detail}"


class KeyRefused(SubmitRefused):
    """The collector, or a proxy before it, refused the key: 401, 403 or 407. It says nothing of the profile.

    A key that was rotated on one side only gives this, and passes.
    """

    def __str__(self) -> str:
        return f"the collector refused the key: {self.status} {self.detail}"


class CollectorUnavailable(AgentError):
    """The collector couldn't be reached in `attempts` attempts; `cause` says how the last one failed.

    `retry_after` is the number of seconds that the collector asked to wait, 0 if it didn't ask.
    """

    def __init__(self, attempts: int, cause: str, retry_after: float = 0.0) -> None:
        super().__init__(attempts, cause, retry_after)
        self.attempts = attempts
        self.cause = cause
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"the collector could not be reached, attempts: {self.attempts}, the last: {self.cause}"


class ToolFailed(AgentError):
    """The program `tool` couldn't be run, or failed; `reason` says why."""

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(tool, reason)
        self.tool = tool
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.tool}: {self.reason}"


class NotSupported(AgentError):
    """The program `tool` runs latency trackers, but can't do `what`. bcc can, without these `obstacles`."""

    def __init__(self, tool: str, what: str, obstacles: Sequence[str] = ()) -> None:
        super().__init__(tool, what, obstacles)
        self.tool = tool
        self.what = what
        self.obstacles = obstacles

    def __str__(self) -> str:
        but = f", but {'; '.join(self.obstacles)}" if self.obstacles else ""
        return f"{self.tool} can't {self.what}; bcc can{but}"


class NoBackend(AgentError):
    """No profiler works here; `reasons` maps each one's name to why not, and what to do about it."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(reasons)
        self.reasons = reasons

    def __str__(self) -> str:
        return "no profiler works here: " + "; ".join(
            f"{name}: {reason}" for name, reason in self.reasons.items()
        )


class NoSamples(AgentError):
    """No process with one of these `names` used CPU time."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.names = names

    def __str__(self) -> str:
        return f"no samples: no process named {' or '.join(self.names)} runs, or none took any CPU time"


class NothingMatches(AgentError):
    """Nothing was tracked, since the filters name what isn't there; `reasons` say what that is."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(reasons)
        self.reasons = reasons

    def __str__(self) -> str:
        return f"nothing was tracked: {'; '.join(self.reasons)}"


class Stopped(AgentError):
    """The capture was stopped before it had a sample."""

    def __str__(self) -> str:
        return "stopped before it had a sample"


class AddressUnusable(AgentError):
    """The agent can't listen at `address`; `reason` says why."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        return f"address {self.address}: {self.reason}"


class NotInstalled(AgentError):
    """The Python module `module` is missing; `pgo-agent[extra]` installs it."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(module, extra)
        self.module = module
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.module} is not installed: pip install 'pgo-agent[{self.extra}]'"


class NotReadable(AgentError):
    """The file at `path` can't be read or isn't in the expected format; `reason` says why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class TargetInvalid(AgentError):
    """The settings or annotations of the target `name` are wrong; `reason` says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class ScrapeFailed(AgentError):
    """A target gave no profile: `reason` is one of a few words to count by, `detail` has the specifics."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class ClusterUnavailable(AgentError):
    """Kubernetes' API server gave no list of pods; `cause` says why."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause

    def __str__(self) -> str:
        return f"Kubernetes' API server gave no list of pods: {self.cause}"


class CatalogUnavailable(AgentError):
    """The catalog of services `catalog` (Nomad or Consul) gave no list of services; `cause` says why."""

    def __init__(self, catalog: str, cause: str) -> None:
        super().__init__(catalog, cause)
        self.catalog = catalog
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.catalog} gave no list of services: {self.cause}"
