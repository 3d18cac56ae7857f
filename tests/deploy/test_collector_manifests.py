"""The manifests of the collector: valid by Kubernetes' schemas, with settings and routes that exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes_validate import utils as schemas  # type: ignore[import-untyped]  # it has no types
from pgo_collector.settings import PREFIX, Settings

from tests.collector.exporting import speaks_grpc
from tests.deploy.kustomize import kustomized
from tests.deploy.manifests import read_yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes" / "collector"
KUSTOMIZATION = read_yaml((FOLDER / "kustomization.yaml").read_text())
MANIFESTS: dict[str, dict[str, Any]] = {
    name: read_yaml((FOLDER / name).read_text()) for name in KUSTOMIZATION["resources"]
}
STATEFUL_SET = MANIFESTS["statefulset.yaml"]
POD = STATEFUL_SET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


@pytest.mark.system("kubectl")
def test_kustomize_takes_every_file() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {"kustomization.yaml", *KUSTOMIZATION["resources"]}
    made = {manifest["kind"]: manifest for manifest in kustomized(FOLDER)}
    assert {*made} == {manifest["kind"] for manifest in MANIFESTS.values()}
    (container,) = made["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.net/pgo-collector:latest"


@pytest.mark.parametrize("name", MANIFESTS)
def test_each_is_as_kubernetes_has_it(name: str) -> None:
    for version in ("1.28", schemas.latest_version()):
        schemas.validate(MANIFESTS[name], version, strict=True)


def test_they_belong_together() -> None:
    labels = STATEFUL_SET["spec"]["template"]["metadata"]["labels"]
    service, policy = MANIFESTS["service.yaml"], MANIFESTS["network-policy.yaml"]
    assert service["spec"]["selector"] == labels
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    assert STATEFUL_SET["spec"]["serviceName"] == service["metadata"]["name"]
    namespaced = [manifest for manifest in MANIFESTS.values() if manifest["kind"] != "Namespace"]
    assert {manifest["metadata"]["namespace"] for manifest in namespaced} == {KUSTOMIZATION["namespace"]}


def test_its_settings_are_settings_and_its_probes_are_answered(tmp_path: Path) -> None:
    environment = {variable["name"]: variable["value"] for variable in CONTAINER["env"]}
    assert {name.removeprefix(PREFIX).lower() for name in environment} <= set(Settings.fields)
    assert environment["PGOF_GRPC_ADDRESS"] == ":4317"
    with speaks_grpc(tmp_path, environment | {"PGOF_GRPC_ADDRESS": "127.0.0.1:0"}) as server:
        for probe in ("startupProbe", "livenessProbe"):
            assert server.client.get(CONTAINER[probe]["httpGet"]["path"]).status_code == 200


def test_it_runs_with_few_rights() -> None:
    assert POD["securityContext"]["runAsNonRoot"]
    assert not POD["automountServiceAccountToken"]
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = [mount["mountPath"] for mount in CONTAINER["volumeMounts"] if not mount.get("readOnly")]
    assert writable == ["/data"]
