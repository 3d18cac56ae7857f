"""Turn a pod, as JSON of Kubernetes' API (v1), into the target that its annotations describe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pgo_agent.errors import TargetInvalid
from pgo_agent.scrape.target import (
    APP,
    BASE_PATH,
    PORT,
    SCRAPE,
    Profile,
    Target,
    TargetDefaults,
    absolute_path,
    checked_port,
    checked_scheme,
    marked_profiles,
    profile_at_url,
    profile_under,
)

Pod = Mapping[str, Any]

PROFEFE = "profefe.com"
GRAFANA = "profiles.grafana.com"
_PROFEFE_PORT = "6060"
# Pyroscope's names of types, and ours, which are Go's.
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
_POD_FIELDS = {
    "namespace": ("metadata", "namespace"),
    "pod": ("metadata", "name"),
    "node": ("spec", "nodeName"),
}


class PodLabels:
    """The labels to put on profiles of a pod: each name, and the part of the pod that its value comes from.

    A source is `namespace`, `pod`, `node`, `label:KEY` or `annotation:KEY`. Raises ValueError for any other.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = dict(sources)
        for name, source in sources.items():
            kind, colon, key = source.partition(":")
            if not name or not (source in _POD_FIELDS or (colon and key and kind in {"label", "annotation"})):
                raise ValueError(f"not namespace, pod, node, label:KEY or annotation:KEY: {source!r}")

    def from_pod(self, pod: Pod) -> tuple[tuple[str, str], ...]:
        """Return the labels that the pod has values for, sorted by name."""
        found = ((name, self._value(pod, source)) for name, source in sorted(self._sources.items()))
        return tuple((name, value) for name, value in found if value)

    def _value(self, pod: Pod, source: str) -> str:
        if source in _POD_FIELDS:
            part, key = _POD_FIELDS[source]
            return str(_part(pod, part).get(key, ""))
        kind, _, key = source.partition(":")
        return str(_part(pod, "metadata", f"{kind}s").get(key, ""))


def pod_name(pod: Pod) -> str:
    """Return "NAMESPACE/NAME", which is stable and unique among running pods."""
    metadata = _part(pod, "metadata")
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def pod_target(pod: Pod, defaults: TargetDefaults, labels: PodLabels) -> Target | None:
    """Return a pod as a target, or None if it isn't running, is being deleted, or isn't annotated.

    Raises TargetInvalid if an annotation has a value that can't be used.
    """
    address = _part(pod, "status").get("podIP", "")
    running = _part(pod, "status").get("phase") == "Running"
    if not address or not running or "deletionTimestamp" in _part(pod, "metadata"):
        return None
    name = pod_name(pod)
    host = f"[{address}]" if ":" in address else address
    profiles = {profile.type: profile for profile in _profefe_profiles(pod, name, host, defaults)}
    profiles |= {profile.type: profile for profile in _autopgo_profiles(pod, name, host, defaults)}
    # An annotation for one type overrides one for all types.
    profiles |= {profile.type: profile for profile in _grafana_profiles(pod, name, host, defaults.seconds)}
    if not profiles:
        return None
    return Target(name, _service(pod), labels.from_pod(pod), tuple(profiles.values()), defaults.seconds)


def _profefe_profiles(pod: Pod, name: str, host: str, defaults: TargetDefaults) -> Iterator[Profile]:
    annotations = _part(pod, "metadata", "annotations")
    if annotations.get(f"{PROFEFE}/enable") != "true":
        return
    port = checked_port(name, annotations.get(f"{PROFEFE}/port", _PROFEFE_PORT))
    base = f"http://{host}:{port}{absolute_path(annotations.get(f'{PROFEFE}/path', BASE_PATH))}"
    for type_ in defaults.types:
        yield profile_under(name, type_, base, defaults.seconds)


def _autopgo_profiles(pod: Pod, name: str, host: str, defaults: TargetDefaults) -> Iterator[Profile]:
    """Yield the profiles that autopgo's marks ask for: a label says that, annotations say where."""
    labels, annotations = _part(pod, "metadata", "labels"), _part(pod, "metadata", "annotations")
    if labels.get(SCRAPE) == "true":
        port = checked_port(name, annotations.get(PORT, ""))
        yield from marked_profiles(name, annotations, f"{host}:{port}", defaults)


def _grafana_profiles(pod: Pod, name: str, host: str, seconds: int) -> Iterator[Profile]:
    annotations = _part(pod, "metadata", "annotations")
    for grafana_type, type_ in _GRAFANA_TYPES.items():
        prefix = f"{GRAFANA}/{grafana_type}"
        if annotations.get(f"{prefix}.scrape") != "true":
            continue
        if named := annotations.get(f"{prefix}.port_name"):
            port = _port_named(pod, name, named)
        else:
            port = checked_port(name, annotations.get(f"{prefix}.port", ""))
        scheme = checked_scheme(name, annotations.get(f"{prefix}.scheme", "http"))
        root = f"{scheme}://{host}:{port}"
        if path := annotations.get(f"{prefix}.path"):
            yield profile_at_url(name, type_, root + absolute_path(path), seconds)
        else:
            yield profile_under(name, type_, root + BASE_PATH, seconds)


def _port_named(pod: Pod, name: str, wanted: str) -> int:
    spec = _part(pod, "spec")
    # Kubernetes' sidecar containers are listed among the init containers.
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        for port in container.get("ports") or ():
            if port.get("name") == wanted:
                return checked_port(name, str(port.get("containerPort")))
    raise TargetInvalid(name, f"no container has a port named {wanted!r}")


def _service(pod: Pod) -> str:
    """Return the service of a pod, from its annotations, labels or owner, or else its own name."""
    metadata = _part(pod, "metadata")
    annotations, labels = _part(pod, "metadata", "annotations"), _part(pod, "metadata", "labels")
    return str(
        annotations.get(f"{PROFEFE}/service")
        or annotations.get(f"{GRAFANA}/service_name")
        or labels.get(APP)
        or labels.get("app.kubernetes.io/name")
        or labels.get("app")
        or _owner(pod)
        or metadata.get("name", "")
    )


def _owner(pod: Pod) -> str:
    """Return the name of what created the pod; for a ReplicaSet, the name of its Deployment."""
    labels = _part(pod, "metadata", "labels")
    for owner in _part(pod, "metadata").get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("name", "")).removesuffix(f"-{labels.get('pod-template-hash', '')}")
    return ""


def _part(pod: Pod, *keys: str) -> Mapping[str, Any]:
    """Return a nested mapping; {} if it is missing or null, which Go writes for an empty one."""
    part: Any = pod
    for key in keys:
        part = part.get(key) or {}
    return part  # type: ignore[no-any-return]  # JSON
