"""Why there is no profile, or it wasn't taken: one tree. Nothing else comes out of `Collector.submit`.

    AgentError
    ├── SubmitRefused           the collector said no; the same bytes would be refused again
    ├── CollectorUnavailable    nobody said yes or no; the same bytes may be sent again later
    ├── ToolFailed              a program that the agent runs is missing, or failed
    ├── NoBackend               none of the profilers of native programs works on this machine
    ├── NoSamples               the processes to be profiled took no CPU time, or there are none
    ├── Stopped                 it was ended before it began
    ├── AddressUnusable         nothing can listen there, or not without a key
    ├── NotInstalled            a part of the agent that is installed only if one asks for it
    ├── NotReadable             a file isn't what it is to be
    ├── TargetInvalid           what is said of a target leads to no URL
    ├── ScrapeFailed            a target gave no profile
    └── ClusterUnavailable      Kubernetes doesn't say which pods there are

No error holds the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


class AgentError(Exception):
    """A profile was not made, or not submitted."""


class SubmitRefused(AgentError):
    """The collector answered `status`; `detail` is its reason in words."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail

    def __str__(self) -> str:
        return f"the collector refused the profile: {self.status} {self.detail}"


class CollectorUnavailable(AgentError):
    """None of `attempts` had an answer to rely on; `cause` says what became of the last.

    `retry_after` are the seconds for which the collector asked to be left alone then.
    """

    def __init__(self, attempts: int, cause: str, retry_after: float = 0.0) -> None:
        super().__init__(attempts, cause, retry_after)
        self.attempts = attempts
        self.cause = cause
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"the collector could not be reached, attempts: {self.attempts}, the last: {self.cause}"


class ToolFailed(AgentError):
    """The program `tool` could not be run or gave up; `reason` says why."""

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(tool, reason)
        self.tool = tool
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.tool}: {self.reason}"


class NoBackend(AgentError):
    """`reasons` say of each profiler, by its name, why it doesn't work and what to do about it."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(reasons)
        self.reasons = reasons

    def __str__(self) -> str:
        return "no profiler works here: " + "; ".join(
            f"{name}: {reason}" for name, reason in self.reasons.items()
        )


class NoSamples(AgentError):
    """No process of these `names` was seen at work."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.names = names

    def __str__(self) -> str:
        return f"no sample: no process named {' or '.join(self.names)} runs, or none took any CPU time"


class Stopped(AgentError):
    """Whoever wanted a profile doesn't any more."""

    def __str__(self) -> str:
        return "ended before it began"


class AddressUnusable(AgentError):
    """Nothing listens at `address`; `reason` says why."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        return f"address {self.address}: {self.reason}"


class NotInstalled(AgentError):
    """The module `module` is missing; it comes with `extra` of the agent."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(module, extra)
        self.module = module
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.module} is not installed: pip install 'pgo-agent[{self.extra}]'"


class NotReadable(AgentError):
    """The file at `path` can't be read, or not as what it is to be; `reason` says why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class TargetInvalid(AgentError):
    """What is said of the target `name` can't be followed; `reason` says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class ScrapeFailed(AgentError):
    """A target gave no profile: `reason` is one of few, to count by, and `detail` all that is known."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class ClusterUnavailable(AgentError):
    """The API server gave no list of pods; `cause` says why."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause

    def __str__(self) -> str:
        return f"Kubernetes' API server gave no list of pods: {self.cause}"
