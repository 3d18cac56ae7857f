"""The manifests of the profiler: valid by Kubernetes' schemas, with arguments that the command takes.

tests/image tests that the profiler works with these rights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pgo_agent.cli
import pytest
from kubernetes_validate import utils as schemas  # type: ignore[import-untyped]  # it has no types

from tests.deploy.kustomize import kustomized
from tests.deploy.manifests import read_yaml

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
FOLDER = KUBERNETES / "profiler"
KUSTOMIZATION = read_yaml((FOLDER / "kustomization.yaml").read_text())
MANIFESTS: dict[str, dict[str, Any]] = {
    name: read_yaml((FOLDER / name).read_text()) for name in KUSTOMIZATION["resources"]
}
DAEMON_SET = MANIFESTS["daemonset.yaml"]
POD = DAEMON_SET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
OPTIONS = pgo_agent.cli.parser().parse_args([*CONTAINER["command"][1:], *CONTAINER["args"]])


@pytest.mark.system("kubectl")
def test_kustomize_takes_every_file() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {"kustomization.yaml", *KUSTOMIZATION["resources"]}
    made = {manifest["kind"]: manifest for manifest in kustomized(FOLDER)}
    assert {*made} == {manifest["kind"] for manifest in MANIFESTS.values()}
    (container,) = made["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.net/pgo-profiler:latest"


@pytest.mark.parametrize("name", MANIFESTS)
def test_each_is_as_kubernetes_has_it(name: str) -> None:
    for version in ("1.30", schemas.latest_version()):  # that of AppArmor came in 1.30
        schemas.validate(MANIFESTS[name], version, strict=True)


def test_they_belong_together() -> None:
    labels = DAEMON_SET["spec"]["template"]["metadata"]["labels"]
    assert DAEMON_SET["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["network-policy.yaml"]["spec"]["podSelector"]["matchLabels"] == labels
    namespaced = [manifest for manifest in MANIFESTS.values() if manifest["kind"] != "Namespace"]
    namespaces = {manifest["metadata"]["namespace"] for manifest in namespaced}
    assert namespaces == {KUSTOMIZATION["namespace"], MANIFESTS["namespace.yaml"]["metadata"]["name"]}
    mounted = {mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    assert {str(OPTIONS.submit_key_file.parent), str(OPTIONS.spool.parent), "/tmp"} <= mounted  # noqa: S108


def test_it_may_call_the_collector_that_it_is_told_of() -> None:
    service = read_yaml((KUBERNETES / "collector" / "service.yaml").read_text())
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    (port,) = (port["port"] for port in service["spec"]["ports"] if port["name"] == "http")
    assert f"http://{name}.{namespace}:{port}" == OPTIONS.url
    spec = MANIFESTS["network-policy.yaml"]["spec"]
    assert (spec["policyTypes"], spec["ingress"]) == (["Ingress", "Egress"], [])
    to_collector = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "podSelector": {"matchLabels": service["spec"]["selector"]},
    }
    assert {"to": [to_collector], "ports": [{"protocol": "TCP", "port": port}]} in spec["egress"]


def test_it_runs_with_few_rights() -> None:
    rights = CONTAINER["securityContext"]
    assert not rights["allowPrivilegeEscalation"]
    assert "privileged" not in rights
    assert rights["readOnlyRootFilesystem"]
    assert rights["capabilities"] == {"drop": ["ALL"], "add": ["BPF", "PERFMON", "SYS_PTRACE", "SYSLOG"]}
    assert not POD["automountServiceAccountToken"]
    assert POD["hostPID"]
    assert "hostNetwork" not in POD
    of_the_node = {volume["name"] for volume in POD["volumes"] if "hostPath" in volume}
    writable = {mount["name"] for mount in CONTAINER["volumeMounts"] if not mount.get("readOnly")}
    assert not of_the_node & writable
