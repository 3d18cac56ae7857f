"""The catalogs of services of Nomad and Consul: where their HTTP APIs list services, and in which JSON.

See developer.hashicorp.com/nomad/api-docs/services and developer.hashicorp.com/consul/api-docs/catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol
from urllib.parse import quote

from pgo_agent.scrape.target import (
    APP,
    SCRAPE,
    Target,
    TargetDefaults,
    checked_host,
    checked_port,
    marked_profiles,
    marks_of_tags,
)


class Question(NamedTuple):
    """The path of a GET, and its query."""

    path: str
    query: dict[str, str]


class Instance(NamedTuple):
    """An instance of a service, as a catalog lists it."""

    name: str
    service: str
    labels: tuple[tuple[str, str], ...]
    address: str
    port: int
    tags: list[str]

    def target(self, defaults: TargetDefaults) -> Target | None:
        """Return the instance as a target, None if it has no mark. Raises TargetInvalid."""
        marks = marks_of_tags(self.tags)
        if marks.get(SCRAPE) != "true":
            return None
        host, port = checked_host(self.name, self.address), checked_port(self.name, str(self.port))
        profiles = tuple(marked_profiles(self.name, marks, f"{host}:{port}", defaults))
        return Target(self.name, marks.get(APP) or self.service, self.labels, profiles, defaults.seconds)


class CatalogApi(Protocol):
    """The API of a catalog. Its methods raise ValueError, TypeError or KeyError for JSON of another shape."""

    name: ClassVar[str]
    token_header: ClassVar[str]
    index_header: ClassVar[str]

    def listing(self) -> Question:
        """Return the question for all services."""

    def marked(self, listed: Any) -> Iterator[Question]:
        """Yield the question for the instances of each listed service that has autopgo's mark."""

    def instances(self, read: Any) -> Iterator[Instance]:
        """Yield the instances in the answer to such a question."""


@dataclass(frozen=True, slots=True)
class Nomad:
    """Nomad's own services, in one namespace, or in all that the token may read (`*`)."""

    namespace: str
    name: ClassVar[str] = "Nomad"
    token_header: ClassVar[str] = "X-Nomad-Token"  # noqa: S105 - the name of a header
    index_header: ClassVar[str] = "X-Nomad-Index"

    def listing(self) -> Question:
        """Return the question for all services."""
        return Question("/v1/services", {"namespace": self.namespace})

    def marked(self, listed: Any) -> Iterator[Question]:
        """Yield the question for the registrations of each marked service."""
        for of_namespace in _list(listed):
            namespace = _text(of_namespace, "Namespace")
            for service in _list(of_namespace["Services"]):
                if _is_marked(_tags(service, "Tags")):
                    path = f"/v1/service/{quote(_text(service, 'ServiceName'), safe='')}"
                    yield Question(path, {"namespace": namespace})

    def instances(self, read: Any) -> Iterator[Instance]:
        """Yield the registrations of a service."""
        for registration in _list(read):
            namespace, center = _text(registration, "Namespace"), _text(registration, "Datacenter")
            yield Instance(
                f"nomad/{namespace}/{_text(registration, 'ID')}",
                _text(registration, "ServiceName"),
                (("datacenter", center), ("namespace", namespace)),
                _text(registration, "Address"),
                registration["Port"],
                _tags(registration, "Tags"),
            )


@dataclass(frozen=True, slots=True)
class Consul:
    """Consul's catalog, of one datacenter, or of the agent's own if it is empty."""

    datacenter: str
    name: ClassVar[str] = "Consul"
    token_header: ClassVar[str] = "X-Consul-Token"  # noqa: S105 - the name of a header
    index_header: ClassVar[str] = "X-Consul-Index"

    def listing(self) -> Question:
        """Return the question for all services."""
        return Question("/v1/catalog/services", self._query())

    def marked(self, listed: Any) -> Iterator[Question]:
        """Yield the question for the instances of each marked service."""
        for name, tags in listed.items():
            if _is_marked(tags or []):
                yield Question(f"/v1/catalog/service/{quote(name, safe='')}", self._query())

    def instances(self, read: Any) -> Iterator[Instance]:
        """Yield the instances of a service. One without an address has that of its node."""
        for entry in _list(read):
            center, node = _text(entry, "Datacenter"), _text(entry, "Node")
            version = (entry.get("ServiceMeta") or {}).get("version")
            yield Instance(
                f"consul/{center}/{node}/{_text(entry, 'ServiceID')}",
                _text(entry, "ServiceName"),
                (("datacenter", center), *((("version", str(version)),) if version else ())),
                entry.get("ServiceAddress") or _text(entry, "Address"),
                entry["ServicePort"],
                _tags(entry, "ServiceTags"),
            )

    def _query(self) -> dict[str, str]:
        return {"dc": self.datacenter} if self.datacenter else {}


def _is_marked(tags: list[str]) -> bool:
    return marks_of_tags(tags).get(SCRAPE) == "true"


def _list(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise TypeError(f"not a list: {type(found).__name__}")
    return found


def _text(entry: Any, key: str) -> str:
    """Return a text of an entry; what can't be printed, such as a line's end, doesn't belong into a name."""
    text = entry[key]
    if not isinstance(text, str) or not text.isprintable():
        raise TypeError(f"{key} is not a text")
    return text


def _tags(entry: Any, key: str) -> list[str]:
    """Return the tags of an entry; Go writes null for none."""
    tags = _list(entry[key] or [])
    if not all(isinstance(tag, str) for tag in tags):
        raise TypeError(f"{key} is not a list of texts")
    return tags
