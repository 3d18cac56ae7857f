"""A pod, as Kubernetes' API has it (v1, JSON) → the target that its annotations make of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pgo_agent.errors import TargetInvalid
from pgo_agent.scrape.target import BASE_PATH, Profile, Target, Wanted, profile_at, profile_below

Pod = Mapping[str, Any]

PROFEFE = "profefe.com"
GRAFANA = "profiles.grafana.com"
_PROFEFE_PORT = "6060"
# Pyroscope's names of types → ours, which are Go's.
_GRAFANA_TYPES = {
    "cpu": "cpu",
    "memory": "heap",
    "heap": "heap",
    "allocs": "allocs",
    "block": "block",
    "mutex": "mutex",
    "goroutine": "goroutine",
    "threadcreate": "threadcreate",
}
_OWN = {"namespace": ("metadata", "namespace"), "pod": ("metadata", "name"), "node": ("spec", "nodeName")}


class PodLabels:
    """The labels of profiles, by name, and where in the pod each comes from.

    That is `namespace`, `pod`, `node`, `label:KEY` or `annotation:KEY`. Raises ValueError for another.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = dict(sources)
        for name, source in sources.items():
            kind, colon, key = source.partition(":")
            if not name or not (source in _OWN or (colon and key and kind in {"label", "annotation"})):
                raise ValueError(f"not namespace, pod, node, label:KEY or annotation:KEY: {source!r}")

    def of(self, pod: Pod) -> tuple[tuple[str, str], ...]:
        """Those that the pod has, by name."""
        found = ((name, self._value(pod, source)) for name, source in sorted(self._sources.items()))
        return tuple((name, value) for name, value in found if value)

    def _value(self, pod: Pod, source: str) -> str:
        if source in _OWN:
            part, key = _OWN[source]
            return str(_part(pod, part).get(key, ""))
        kind, _, key = source.partition(":")
        return str(_part(pod, "metadata", f"{kind}s").get(key, ""))


def name_of(pod: Pod) -> str:
    """Namespace and name, which a pod keeps, and which no other has at the same time."""
    metadata = _part(pod, "metadata")
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def target_of(pod: Pod, wanted: Wanted, labels: PodLabels) -> Target | None:
    """What to scrape of a pod; None if it isn't running, is about to end, or no annotation asks for it.

    Raises TargetInvalid where annotations ask for what can't be.
    """
    address = _part(pod, "status").get("podIP", "")
    running = _part(pod, "status").get("phase") == "Running"
    if not address or not running or "deletionTimestamp" in _part(pod, "metadata"):
        return None
    name = name_of(pod)
    host = f"[{address}]" if ":" in address else address
    profiles = {profile.type: profile for profile in _of_profefe(pod, name, host, wanted)}
    # What is said of one type goes before what is said of all.
    profiles |= {profile.type: profile for profile in _of_grafana(pod, name, host, wanted.seconds)}
    if not profiles:
        return None
    return Target(name, _service(pod), labels.of(pod), tuple(profiles.values()), wanted.seconds)


def _of_profefe(pod: Pod, name: str, host: str, wanted: Wanted) -> Iterator[Profile]:
    said = _part(pod, "metadata", "annotations")
    if said.get(f"{PROFEFE}/enable") != "true":
        return
    port = _port(name, said.get(f"{PROFEFE}/port", _PROFEFE_PORT))
    base = f"http://{host}:{port}{_path(said.get(f'{PROFEFE}/path', BASE_PATH))}"
    for type_ in wanted.types:
        yield profile_below(name, type_, base, wanted.seconds)


def _of_grafana(pod: Pod, name: str, host: str, seconds: int) -> Iterator[Profile]:
    said = _part(pod, "metadata", "annotations")
    for theirs, type_ in _GRAFANA_TYPES.items():
        prefix = f"{GRAFANA}/{theirs}"
        if said.get(f"{prefix}.scrape") != "true":
            continue
        if named := said.get(f"{prefix}.port_name"):
            port = _port_named(pod, name, named)
        else:
            port = _port(name, said.get(f"{prefix}.port", ""))
        root = f"{said.get(f'{prefix}.scheme', 'http')}://{host}:{port}"
        if path := said.get(f"{prefix}.path"):
            yield profile_at(name, type_, root + _path(path), seconds)
        else:
            yield profile_below(name, type_, root + BASE_PATH, seconds)


def _path(text: str) -> str:
    """With the slash that keeps it from becoming a part of the host."""
    return f"/{text.lstrip('/')}"


def _port(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 1 << 16):
        raise TargetInvalid(name, f"not a port: {text!r}")
    return int(text)


def _port_named(pod: Pod, name: str, wanted: str) -> int:
    spec = _part(pod, "spec")
    # A sidecar of Kubernetes is an init container that goes on.
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        for port in container.get("ports") or ():
            if port.get("name") == wanted:
                return _port(name, str(port.get("containerPort")))
    raise TargetInvalid(name, f"none of its containers has a port of the name {wanted!r}")


def _service(pod: Pod) -> str:
    """The first name that the pod has of what it is a part of; its own is that of one process in a fleet."""
    metadata = _part(pod, "metadata")
    said, labels = _part(pod, "metadata", "annotations"), _part(pod, "metadata", "labels")
    return str(
        said.get(f"{PROFEFE}/service")
        or said.get(f"{GRAFANA}/service_name")
        or labels.get("app.kubernetes.io/name")
        or labels.get("app")
        or _owner(pod)
        or metadata.get("name", "")
    )


def _owner(pod: Pod) -> str:
    """What made the pod; in place of a ReplicaSet, the Deployment whose template's hash both carry."""
    labels = _part(pod, "metadata", "labels")
    for owner in _part(pod, "metadata").get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("name", "")).removesuffix(f"-{labels.get('pod-template-hash', '')}")
    return ""


def _part(pod: Pod, *keys: str) -> Mapping[str, Any]:
    """A mapping within; Go writes an empty one as null, or not at all."""
    part: Any = pod
    for key in keys:
        part = part.get(key) or {}
    return part  # type: ignore[no-any-return]  # JSON
