"""Naming: who sends a pushed profile, and which service, type and labels it gets.

The names are those of Pyroscope's clients; other protocols translate theirs into them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from pprof_merge import Header
from pprof_merge.merging import kind_of
from starlette.requests import Request

from pgo_collector.engine.validation import is_cpu
from pgo_collector.http.auth import context_of
from pgo_collector.model.profile_types import (
    CPU,
    DELTAS_BY_NAME,
    OTHER,
    PROCESS_CPU,
    TYPES_BY_NAME,
)
from pgo_collector.model.series import (
    PRIVATE_PREFIX,
    PROFILE_NAME,
    SERVICE_NAME,
    Labels,
    Series,
    labels_of_pairs,
    sent_labels,
    service_called,
)

UNKNOWN_SERVICE = "unknown_service"
# As many as Pyroscope takes by default.
_MOST_LABELS = 30
# More of a name makes no difference: no service and no label is so long.
_LONGEST_CALLED = 300
_GODELTAPROF = "godeltaprof_"
# The tenant of clients that name none.
_ANONYMOUS = "anonymous"
# What Pyroscope calls sample types, unless a form says otherwise.
_DISPLAY_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "samples": "cpu",
        "itimer": "cpu",
        "ctimer": "cpu",
        "goroutine": "goroutines",
        "contentions": "mutex_count",
        "delay": "mutex_duration",
    }
)
_MEMORY = re.compile(r"alloc_|inuse_|(?:space|objects)$")


class Sender(NamedTuple):
    """Names from a request's headers and key: the service of profiles that name none, and the tenant."""

    service: str = UNKNOWN_SERVICE
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The service and labels of a profile, its name in Pyroscope's words, and whether it is a delta.

    A delta has what came since the profile before; others count from the start of the program.
    """

    service: str
    labels: Labels
    name: str
    is_delta: bool

    @classmethod
    def of(cls, labels: Iterable[tuple[str, str]], sender: Sender) -> Target:
        """Return the target of a profile that came with these labels. Raises LabelsInvalid.

        `__name__` is the profile's name, `service_name` the service, and `__delta__=false` marks what the
        client has made a delta. Other labels with a name that begins with `__` are left out, and those that
        `model.series` reserves are refused.
        """
        pairs = [*labels]
        given = dict(pairs)
        called = given.get(SERVICE_NAME, "").strip()
        # What OpenTelemetry's SDKs call a program that names no service; it is no label.
        is_unknown = called.startswith(f"{UNKNOWN_SERVICE}:")
        meant = service_called(called[:_LONGEST_CALLED])
        name = given.get("__name__", "").strip()
        plain = name.removeprefix(_GODELTAPROF)
        kept = [pair for pair in pairs if pair[0] != SERVICE_NAME and not pair[0].startswith(PRIVATE_PREFIX)]
        if called != meant != "" and not is_unknown:
            kept.append((SERVICE_NAME, called))
        if sender.tenant:
            kept.append(("tenant", sender.tenant))
        is_delta = plain != name or given.get("__delta__") == "false"
        service = (
            sender.service if is_unknown and sender.service != UNKNOWN_SERVICE else meant or sender.service
        )
        own = sent_labels(service, "", labels_of_pairs(kept, _MOST_LABELS))
        return cls(service, own, plain, is_delta)

    def series(self, header: Header, has_start_lines: bool) -> Series:
        """Return the series of a profile with this header.

        A CPU profile is of the type that builds use only if Go's compiler can use it: it is in Go's form, and
        its functions have start lines.
        """
        if self.name == PROCESS_CPU:
            type_ = CPU if has_start_lines and is_cpu(header) else PROCESS_CPU
            return Series(self.service, type_, self.labels)
        is_delta = self.is_delta and not _is_state(header)
        type_ = (DELTAS_BY_NAME if is_delta else TYPES_BY_NAME).get(self.name, OTHER)
        labels = self.labels
        if type_ == OTHER:
            labels = labels_of_pairs([*labels, (PROFILE_NAME, self.name)], _MOST_LABELS + 1)
        return Series(self.service, type_, labels)


def sender_of(request: Request) -> Sender:
    """Return what a request's headers and key say of its profiles. Raises KeyRefused if there is no key."""
    tenant = request.headers.get("X-Scope-OrgID", "")
    service = context_of(request).caller.scope.only_service or UNKNOWN_SERVICE
    return Sender(service, "" if tenant == _ANONYMOUS else tenant)


def profile_name(header: Header, display_names: Mapping[str, str]) -> str:
    """Return the name that Pyroscope gives a profile, by what its sample types are called."""
    types = [sample_type.type.decode(errors="replace") for sample_type in header.sample_types]
    names = [display_names.get(name) or _DISPLAY_NAMES.get(name, name) for name in types]
    if "wall" in names:
        return "wall"
    if any("cpu" in name for name in names):
        return "process_cpu"
    if any(_MEMORY.match(name) for name in names):
        return "memory"
    for name in ("mutex", "block"):
        if any(each.startswith(f"{name}_") for each in names):
            return name
    if "goroutines" in names:
        return "goroutines"
    return names[-1] if names else "unknown"


def _is_state(header: Header) -> bool:
    """Return whether a profile says what is in use, and nothing else: no client can make that a delta."""
    return all(kind_of(sample_type.type) == "state" for sample_type in header.sample_types)
