"""Reserved labels: those that the collector itself gives a meaning to, and what a series says by them.

| label | says | who may send it |
|---|---|---|
| `service_name` | what a sender calls the service, where no service can have that name | with a name that becomes the service's |
| `profile_name` | what a profile of the type `other` measures | with that type, and no name that another type has |
| `start_lines` | where the functions of a joined profile got their start lines from | nobody: the collector sets it |
| `__…` | what Grafana's clients know profile types by, as `__name__` | nobody; pushes leave it out |

A sent label that says otherwise is refused. Stored before that was so, it doesn't count: a series is of the
service and type that it is stored as.
"""  # noqa: E501 - a table

from __future__ import annotations

import re

from pgo_collector.errors import LabelsInvalid
from pgo_collector.model.profile_types import OTHER, START_LINES, TYPES_BY_NAME
from pgo_collector.model.series import Labels

SERVICE_NAME, PROFILE_NAME = "service_name", "profile_name"
PRIVATE_PREFIX = "__"
_LONGEST_SERVICE = 200
_NOT_IN_SERVICES = re.compile(r"[^A-Za-z0-9._-]")


def service_called(name: str) -> str:
    """Return the service that a sender means by a name: with `-` for each character that names can't have.

    Empty if nothing is left.
    """
    return _NOT_IN_SERVICES.sub("-", name).lstrip("._-")[:_LONGEST_SERVICE]


def check_sent(service: str, type_: str, labels: Labels) -> None:
    """Raise LabelsInvalid if a sent label says other than what the profile is stored as."""
    for key, value in labels:
        if key == SERVICE_NAME and service_called(value) != service:
            raise LabelsInvalid(
                f"the label {SERVICE_NAME}={value[:50]} says another service than {service!r}; leave it out"
            )
        if key == PROFILE_NAME and type_ != OTHER:
            raise LabelsInvalid(
                f"the label {PROFILE_NAME} is for profiles of the type {OTHER!r} alone; leave it out"
            )
        if key == PROFILE_NAME and value in TYPES_BY_NAME:
            raise LabelsInvalid(
                f"the label {PROFILE_NAME}={value} says another type than {OTHER!r}; send it as that type"
            )
        if key == START_LINES:
            raise LabelsInvalid(f"the label {START_LINES} is the collector's own; leave it out")
        if key.startswith(PRIVATE_PREFIX):
            raise LabelsInvalid(
                f"the label {key[:50]!r}: keys that begin with {PRIVATE_PREFIX} are for types; leave it out"
            )


def name_of_service(service: str, stored: str) -> str:
    """Return what clients know a service as, given the stored `service_name` of a series or ""."""
    return stored if service_called(stored) == service else service


def name_of_profile(type_: str, stored: str) -> str:
    """Return the name of a series' profiles, given its stored `profile_name` or ""; "" for its type's."""
    return stored if type_ == OTHER and stored not in TYPES_BY_NAME else ""


def is_hidden(key: str) -> bool:
    """Return whether Grafana's clients don't see a stored label: profile types say what it would say."""
    return key == PROFILE_NAME or key.startswith(PRIVATE_PREFIX)
