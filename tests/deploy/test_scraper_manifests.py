"""The manifests of the scraper: valid by Kubernetes' schemas, with arguments that the command takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pgo_agent.cli
import pytest
from kubernetes_validate import utils as schemas  # type: ignore[import-untyped]  # it has no types

from tests.deploy.container import command_line
from tests.deploy.manifests import read_all_yaml, read_yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes" / "scraper"
# The label with a StatefulSet's index came in 1.28.
VERSIONS = [version for version in schemas.all_versions() if version.split(".") >= ["1", "28"]]


MANIFESTS: list[tuple[str, dict[str, Any]]] = [
    (f"{file.stem}-{content['kind']}", content)
    for file in sorted(FOLDER.glob("*.yaml"))
    for content in read_all_yaml(file.read_text())
]


def pod_of(content: dict[str, Any]) -> dict[str, Any]:
    """Return the pods' spec in an object, empty if it has none."""
    spec = content.get("spec", {})
    if "jobTemplate" in spec:
        spec = spec["jobTemplate"]["spec"]
    found: dict[str, Any] = spec.get("template", {}).get("spec", {})
    return found


RUNNING = [pytest.param(content, id=id_) for id_, content in MANIFESTS if pod_of(content)]


@pytest.mark.parametrize("content", [pytest.param(content, id=id_) for id_, content in MANIFESTS])
def test_each_is_as_kubernetes_has_it(content: dict[str, Any]) -> None:
    assert len(VERSIONS) > 5
    for version in (VERSIONS[0], VERSIONS[-1]):
        schemas.validate(content, version, strict=True)


def test_the_schemas_notice_a_mistake() -> None:
    content = read_yaml((FOLDER / "deployment.yaml").read_text())
    content["spec"]["template"]["spec"]["containers"][0]["volumes"] = []
    with pytest.raises(schemas.ValidationError):
        schemas.validate(content, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("content", RUNNING)
def test_the_command_takes_its_arguments(content: dict[str, Any]) -> None:
    (container,) = pod_of(content)["containers"]
    options = pgo_agent.cli.parser().parse_args(command_line(container)[1:])
    assert options.kubernetes
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(options.key_file.parent), str(options.spool.parent)} <= mounted
    if content["kind"] == "StatefulSet":
        assert options.shard.count == content["spec"]["replicas"]


@pytest.mark.parametrize("content", RUNNING)
def test_it_runs_with_few_rights(content: dict[str, Any]) -> None:
    pod = pod_of(content)
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    (role,) = (other for _, other in MANIFESTS if other["kind"] == "ClusterRole")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    (account,) = (other for _, other in MANIFESTS if other["kind"] == "ServiceAccount")
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert content["metadata"]["namespace"] == account["metadata"]["namespace"]
