"""The Helm chart, rendered by Helm: checked against Kubernetes' schemas and the kustomizations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import pgo_agent.cli
import pytest
import yaml
from kubernetes_validate import utils as schemas  # type: ignore[import-untyped]  # it has no types
from pgo_collector.settings import PREFIX, Settings

from tests.deploy.chart import FOLDER, Manifest, only, rendered
from tests.deploy.container import command_line

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
ALL: dict[str, Any] = {
    "imagePullSecrets": [{"name": "registry"}],
    "catalog": {"secret": "pgo-catalog"},
    "storage": {"className": "fast"},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "8m"},
        "host": "pgo.example.net",
        "tlsSecret": "pgo-tls",
    },
    "networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}]}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "profiles", "operator": "Exists"}],
    "scraper": {
        "enabled": True,
        "replicas": 3,
        "arguments": ["--types=cpu,heap"],
        "storage": {"className": "fast"},
        "nodeSelector": {"pool": "small"},
    },
    "profiler": {
        "enabled": True,
        "namespace": "pgo-profiler",
        "executables": ["postgres", "redis-server"],
        "arguments": ["--every=600"],
        "tolerations": [{"operator": "Exists"}],
    },
}
OPTIONS = {
    "scraper": {"enabled": True, "replicas": 2},
    "profiler": {"enabled": True, "namespace": "pgo-profiler"},
}


def pod_of(manifest: Manifest) -> dict[str, Any]:
    pod: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("values", [{}, ALL], ids=["default", "all"])
def test_helm_finds_nothing_to_say(values: dict[str, Any]) -> None:
    said = helm_python.lint(FOLDER, values, strict=True)
    assert said["errors"] == []
    assert [of["error"] for of in said["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("values", [{}, ALL], ids=["default", "all"])
def test_each_is_as_kubernetes_has_it(values: dict[str, Any]) -> None:
    manifests = rendered(values)
    kinds = [of["kind"] for of in manifests]
    assert ("Ingress" in kinds, "DaemonSet" in kinds) == (bool(values),) * 2
    assert kinds.count("StatefulSet") == (2 if values else 1)
    for manifest in manifests:
        if manifest["kind"] != "ServiceMonitor":  # the operator's, not Kubernetes'
            for version in ("1.30", schemas.latest_version()):
                schemas.validate(manifest, version, strict=True)


def plain(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod without the names and images that the chart's values, or a kustomization, give it."""
    (container,) = pod["containers"]
    kept = {key: value for key, value in container.items() if key not in {"image", "imagePullPolicy"}}
    kept["args"] = [each for each in container.get("args", ()) if not each.startswith("--url=")]
    return {key: value for key, value in pod.items() if key != "serviceAccountName"} | {"containers": [kept]}


@pytest.mark.parametrize(
    ("kind", "name", "file"),
    [
        ("StatefulSet", "collector", "collector/statefulset.yaml"),
        ("StatefulSet", "scraper", "scraper/statefulset.yaml"),
        ("DaemonSet", "profiler", "profiler/daemonset.yaml"),
    ],
)
def test_pods_are_those_of_the_kustomizations(kind: str, name: str, file: str) -> None:
    made, expected = only(rendered(OPTIONS), kind, name), yaml.safe_load((KUBERNETES / file).read_text())
    assert plain(pod_of(made)) == plain(pod_of(expected))
    assert made["metadata"]["namespace"] == expected["metadata"]["namespace"]
    kept = {"replicas", "podManagementPolicy", "volumeClaimTemplates"}
    assert {key: value for key, value in made["spec"].items() if key in kept} == {
        key: value for key, value in expected["spec"].items() if key in kept
    }


def test_what_may_be_called_and_seen_is_as_in_the_kustomizations() -> None:
    made = rendered(OPTIONS)
    (collector, profiler) = (
        yaml.safe_load((KUBERNETES / part / "network-policy.yaml").read_text())["spec"]
        for part in ("collector", "profiler")
    )
    for found, expected in (
        (only(made, "NetworkPolicy", "collector")["spec"], collector),
        (only(made, "NetworkPolicy", "profiler")["spec"], profiler),
    ):
        released = json.loads(json.dumps(found).replace(', "app.kubernetes.io/instance": "pgo"', ""))
        assert released == expected
    *_, role, _ = yaml.safe_load_all((KUBERNETES / "scraper" / "rbac.yaml").read_text())
    assert only(made, "ClusterRole")["rules"] == role["rules"]
    (subject,) = only(made, "ClusterRoleBinding")["subjects"]
    account = only(made, "ServiceAccount")["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    assert pod_of(only(made, "StatefulSet", "scraper"))["serviceAccountName"] == account["name"]


def test_commands_take_their_arguments_and_call_the_service() -> None:
    for name in ("pgo", "my-pgo-collector", "a" * 53):
        made = rendered(ALL | {"service": {"port": 80}}, name, "profiles")
        service = only(made, "Service")
        (profiler,) = pod_of(only(made, "DaemonSet"))["containers"]
        (scraper,) = pod_of(only(made, "StatefulSet", "scraper"))["containers"]
        command = pgo_agent.cli.parser()
        profiling, scraping = (command.parse_args(command_line(of)[1:]) for of in (profiler, scraper))
        url = f"http://{service['metadata']['name']}.profiles:80"
        assert profiling.url == scraping.url == url
        assert (profiling.executable, profiling.every) == (["postgres", "redis-server"], 600)
        assert (scraping.types, scraping.shard.count) == (("cpu", "heap"), 3)


def test_two_releases_keep_to_themselves() -> None:
    one, two = rendered(ALL, "one"), rendered(ALL, "two")
    named = [{(of["kind"], of["metadata"]["name"]) for of in each} for each in (one, two)]
    assert len(named[0]) == len(one)
    assert not named[0] & named[1]
    selector = only(one, "Service")["spec"]["selector"].items()
    labels = {
        of["metadata"]["name"]: of["spec"]["template"]["metadata"]["labels"].items()
        for of in [*one, *two]
        if of["kind"] in {"StatefulSet", "DaemonSet"}
    }
    assert len(labels) == 6
    assert [name for name in labels if selector <= labels[name]] == ["one-pgo-collector"]


def test_the_ingress_leads_to_what_people_and_programs_ask_for() -> None:
    (rule,) = only(rendered(ALL), "Ingress")["spec"]["rules"]
    assert {path["path"] for path in rule["http"]["paths"]} == {"/api/0", "/ui", "/v1", "/healthz"}


def test_the_url_of_the_catalog_comes_from_its_secret() -> None:
    for values, expected in ({}, []), ({"catalog": {"secret": "pgo-catalog"}}, [("pgo-catalog", "url")]):
        (container,) = pod_of(only(rendered(values), "StatefulSet", "collector"))["containers"]
        found = [of["valueFrom"]["secretKeyRef"] for of in container["env"] if of["name"] == "PGOF_CATALOG"]
        assert [(of["name"], of["key"]) for of in found] == expected


def test_the_service_monitor_asks_the_service() -> None:
    made = rendered(ALL)
    monitor, service = only(made, "ServiceMonitor"), only(made, "Service")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    (port,) = service["spec"]["ports"]
    assert endpoint == {"port": port["name"], "path": "/metrics", "interval": "30s"}
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert "annotations" not in only(made, "StatefulSet", "collector")["spec"]["template"]["metadata"]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"imagee": {}}, "imagee"),
        ({"settings": {"PGOF_KEEP_DAY": "3"}}, "PGOF_KEEP_DAY"),
        ({"settings": {"PGOF_KEEP_DAYS": 3}}, "PGOF_KEEP_DAYS"),
        ({"settings": {"PGOF_DIRECTORY": "/elsewhere"}}, "PGOF_DIRECTORY"),
        ({"storage": {"size": "much"}}, "size"),
        ({"ingress": {"enabled": True, "host": "pgo.example.net"}}, "tlsSecret"),
        ({"profiler": {"executables": []}}, "executables"),
        ({"scraper": {"arguments": ["cpu"]}}, "arguments"),
        ({"scraper": {"replicas": 0}}, "replicas"),
    ],
)
def test_a_mistake_in_a_value_is_told(values: dict[str, Any], named: str) -> None:
    with pytest.raises(helm_python.HelmError, match=named):
        rendered(values)


def test_the_schema_knows_the_settings() -> None:
    schema = json.loads((FOLDER / "values.schema.json").read_text())
    known = {*schema["properties"]["settings"]["propertyNames"]["enum"]}
    settings = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    # These two are the image's: the probes and the volume go by them.
    assert known == settings - {"PGOF_BIND_ADDRESS", "PGOF_DIRECTORY"}


def test_the_appversion_is_that_of_the_collector() -> None:
    chart = yaml.safe_load((FOLDER / "Chart.yaml").read_text())
    project = (ROOT / "collector" / "pyproject.toml").read_text()
    assert f'version = "{chart["appVersion"]}"' in project


def flat(values: dict[str, Any], of: str = "") -> Iterator[tuple[str, Any]]:
    """Return each value and its default; settings and Kubernetes' own structures are one value each."""
    for name, value in values.items():
        if isinstance(value, dict) and value and name not in {"resources", "settings"}:
            yield from flat(value, f"{of}{name}.")
        else:
            yield f"{of}{name}", value


def test_every_value_is_in_the_docs_with_its_default() -> None:
    values = yaml.safe_load((FOLDER / "values.yaml").read_text())
    page = (ROOT / "docs" / "helm.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| (?:`(.*?)`)? ?\| .*\|$", page, flags=re.MULTILINE)
    documented = [(name, yaml.safe_load(default) if default else "") for name, default in rows]
    assert documented == [*flat(values)]
