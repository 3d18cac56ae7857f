"""The Helm chart, rendered by Helm: checked against Kubernetes' schemas and the kustomizations."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import pgo_agent.cli
import pytest
from kubernetes_validate import utils as schemas  # type: ignore[import-untyped]  # it has no types
from pgo_collector.command.cli import build_parser
from pgo_collector.routes.protocols import PROTOCOLS

from tests.deploy.chart import FOLDER, Manifest, notes, only, rendered
from tests.deploy.container import command_line
from tests.deploy.manifests import read_all_yaml, read_yaml

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
# Grafana asks for settings, and is told that there are none.
_ASKED_BY_GRAFANA = "/settings.v1.SettingsService"
SHARED: dict[str, Any] = {
    "replicas": 3,
    "catalog": {"secret": "pgo-catalog"},
    "bucket": {
        "url": "s3://profiles/collector",
        "secret": "pgo-bucket",
        "environment": {"AWS_REGION": "eu-central-1"},
    },
    "serviceAccount": "pgo-collector",
    "dask": {"enabled": True, "workers": 4},
    "ingress": ALL["ingress"],
    "networkPolicy": ALL["networkPolicy"],
}
OPTIONS = {
    "scraper": {"enabled": True, "replicas": 2},
    "profiler": {"enabled": True, "namespace": "pgo-profiler"},
}


def pod_of(manifest: Manifest) -> dict[str, Any]:
    pod: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("values", [{}, ALL, SHARED], ids=["default", "all", "shared"])
def test_helm_finds_nothing_to_say(values: dict[str, Any]) -> None:
    said = helm_python.lint(FOLDER, values, strict=True)
    assert said["errors"] == []
    assert [of["error"] for of in said["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize(
    ("values", "sets"),
    [({}, {"StatefulSet": 1}), (ALL, {"StatefulSet": 2, "DaemonSet": 1}), (SHARED, {"Deployment": 3})],
    ids=["default", "all", "shared"],
)
def test_each_is_as_kubernetes_has_it(values: dict[str, Any], sets: dict[str, int]) -> None:
    manifests = rendered(values)
    kinds = Counter(of["kind"] for of in manifests)
    assert kinds["Ingress"] == bool(values)
    assert {kind: kinds[kind] for kind in ("StatefulSet", "DaemonSet", "Deployment") if kinds[kind]} == sets
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
    made, expected = only(rendered(OPTIONS), kind, name), read_yaml((KUBERNETES / file).read_text())
    assert plain(pod_of(made)) == plain(pod_of(expected))
    assert made["metadata"]["namespace"] == expected["metadata"]["namespace"]
    kept = {"replicas", "podManagementPolicy", "volumeClaimTemplates"}
    assert {key: value for key, value in made["spec"].items() if key in kept} == {
        key: value for key, value in expected["spec"].items() if key in kept
    }


def test_what_may_be_called_and_seen_is_as_in_the_kustomizations() -> None:
    made = rendered(OPTIONS)
    (collector, profiler) = (
        read_yaml((KUBERNETES / part / "network-policy.yaml").read_text())["spec"]
        for part in ("collector", "profiler")
    )
    for found, expected in (
        (only(made, "NetworkPolicy", "collector")["spec"], collector),
        (only(made, "NetworkPolicy", "profiler")["spec"], profiler),
    ):
        released = json.loads(json.dumps(found).replace(', "app.kubernetes.io/instance": "pgo"', ""))
        assert released == expected
    *_, role, _ = read_all_yaml((KUBERNETES / "scraper" / "rbac.yaml").read_text())
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
    """Paths are compared by their elements: `/v1` leads to /v1/submit, and not to /v1development."""
    (rule,) = only(rendered(ALL), "Ingress")["spec"]["rules"]
    kinds = {each["path"]: each["pathType"] for each in rule["http"]["paths"]}
    text = (ROOT / "docs/reference/routes.md").read_text()
    routes = {*re.findall(r"^## (/\S+)$", text, re.MULTILINE), "/healthz", "/ui/", "/"}
    routes |= {prefix for protocol in PROTOCOLS for prefix in protocol.prefixes if prefix.endswith("/")}
    assert len(routes) > 50
    led = {
        route: [
            path
            for path, kind in kinds.items()
            if route == path or (kind == "Prefix" and route.startswith(f"{path}/"))
        ]
        for route in routes
    }
    assert {route for route, paths in led.items() if not paths} == {"/metrics", "/readyz", "/ready"}
    assert {path for paths in led.values() for path in paths} == kinds.keys() - {_ASKED_BY_GRAFANA}


def test_the_ingress_can_be_below_a_path_of_the_host() -> None:
    values = ALL | {"ingress": ALL["ingress"] | {"path": "/tools/pgo"}}
    made = rendered(values)
    paths, of_all = (
        {each["path"] for each in only(manifests, "Ingress")["spec"]["rules"][0]["http"]["paths"]}
        for manifests in (made, rendered(ALL))
    )
    assert paths == {f"/tools/pgo{path}" for path in of_all} | {"/tools/pgo"}
    assert environment_of(collector_of(made, "StatefulSet"))["PGOF_ROOT_PATH"] == "/tools/pgo"
    assert "PGOF_ROOT_PATH" not in environment_of(collector_of(rendered(ALL), "StatefulSet"))
    assert "https://pgo.example.net/tools/pgo/ui/" in notes(values)
    for path in ("/tools/", "tools", "//tools", "/a b"):
        with pytest.raises(helm_python.HelmError, match="path"):
            rendered(ALL | {"ingress": ALL["ingress"] | {"path": path}})


def test_the_port_of_grpc_is_reached_and_can_be_left_out() -> None:
    for values, expected in ({}, 4317), ({"service": {"grpcPort": 0}}, None):
        manifests = rendered(values)
        ports = {of["name"]: of for of in only(manifests, "Service", "collector")["spec"]["ports"]}
        container = collector_of(manifests, "StatefulSet")
        allowed = only(manifests, "NetworkPolicy", "collector")["spec"]["ingress"][0]["ports"]
        assert ports.get("grpc", {}).get("port") == expected
        assert [of["containerPort"] for of in container["ports"] if of["name"] == "grpc"] == [4317] * bool(
            expected
        )
        assert environment_of(container).get("PGOF_GRPC_ADDRESS") == (":4317" if expected else None)
        assert (4317 in {of["port"] for of in allowed}) == bool(expected)


def test_the_notes_say_where_the_collector_is_and_what_to_do_next() -> None:
    inside, outside = notes(), notes(ALL)
    assert "port-forward service/pgo-pgo-collector 8080:8080" in inside
    assert "http://pgo-pgo-collector.pgo.svc:8080/v1/submit?service=NAME" in inside
    assert "pgo-pgo-collector.pgo.svc:4317" in inside
    assert "https://pgo.example.net/ui/" in outside
    assert "port-forward" not in outside


def test_the_url_of_the_catalog_comes_from_its_secret() -> None:
    for values, expected in ({}, []), ({"catalog": {"secret": "pgo-catalog"}}, [("pgo-catalog", "url")]):
        (container,) = pod_of(only(rendered(values), "StatefulSet", "collector"))["containers"]
        found = [of["valueFrom"]["secretKeyRef"] for of in container["env"] if of["name"] == "PGOF_CATALOG"]
        assert [(of["name"], of["key"]) for of in found] == expected


def collector_of(manifests: list[Manifest], kind: str = "Deployment") -> dict[str, Any]:
    """Return the one container of the collector's pods."""
    (container,) = pod_of(only(manifests, kind, "collector"))["containers"]
    assert isinstance(container, dict)
    return container


def environment_of(container: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of a container by name, each with its value or where that comes from."""
    return {of["name"]: of.get("value", of.get("valueFrom")) for of in container["env"]}


def test_several_collectors_share_the_catalog_and_the_bucket_and_nothing_else() -> None:
    made = rendered(SHARED)
    deployment, container = only(made, "Deployment", "collector"), collector_of(made)
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 1}
    variables = environment_of(container)
    assert variables["PGOF_CATALOG"] == {"secretKeyRef": {"name": "pgo-catalog", "key": "url"}}
    assert variables["PGOF_STORAGE"] == "s3://profiles/collector"
    assert variables["AWS_REGION"] == "eu-central-1"
    assert Path(variables["PGOF_SESSION_SECRET_FILE"]).parent == Path("/secret")
    assert container["envFrom"] == [{"secretRef": {"name": "pgo-bucket"}}]
    pod = pod_of(deployment)
    assert pod["serviceAccountName"] == "pgo-collector"
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["data"] == {"name": "data", "emptyDir": {"sizeLimit": "50Gi"}}
    assert "persistentVolumeClaim" not in json.dumps(made)


def test_several_collectors_are_spread_and_lost_one_at_a_time() -> None:
    made = rendered(SHARED)
    labels = only(made, "Deployment", "collector")["spec"]["template"]["metadata"]["labels"].items()
    budget = only(made, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= labels
    constraints = pod_of(only(made, "Deployment", "collector"))["topologySpreadConstraints"]
    assert [of["topologyKey"] for of in constraints] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    for constraint in constraints:
        assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"
        assert constraint["labelSelector"]["matchLabels"].items() <= labels


def test_one_collector_over_the_shared_sides_has_no_gap_in_an_update() -> None:
    made = rendered(SHARED | {"replicas": 1})
    assert only(made, "Deployment", "collector")["spec"]["strategy"]["rollingUpdate"] == {
        "maxUnavailable": 0,
        "maxSurge": 1,
    }
    assert not [of for of in made if of["kind"] == "PodDisruptionBudget"]


def test_a_collector_that_others_can_stand_in_for_gets_requests_while_it_is_ready() -> None:
    for values, kind in ({}, "StatefulSet"), (SHARED, "Deployment"):
        container = collector_of(rendered(values), kind)
        paths = {
            name: container[name]["httpGet"]["path"]
            for name in ("startupProbe", "livenessProbe", "readinessProbe")
            if name in container
        }
        of_all = {"startupProbe": "/healthz", "livenessProbe": "/healthz"}
        assert paths == of_all | ({"readinessProbe": "/readyz"} if values else {})


@pytest.mark.parametrize(
    "values",
    [
        {"replicas": 3},
        {"replicas": 3, "catalog": {"secret": "pgo-catalog"}},
        {"replicas": 2, "bucket": {"url": "s3://profiles/collector"}},
    ],
)
def test_several_collectors_over_one_folder_or_file_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(helm_python.HelmError, match=r"set catalog\.secret and bucket\.url, or replicas to 1"):
        rendered(values)


def test_the_charts_dask_runs_the_collectors_own_commands() -> None:
    made = rendered(SHARED)
    service = only(made, "Service", "dask")
    address = f"dask://{service['metadata']['name']}.pgo:8786"
    assert environment_of(collector_of(made))["PGOF_BULK"] == address
    (scheduler,) = pod_of(only(made, "Deployment", "scheduler"))["containers"]
    (worker,) = pod_of(only(made, "Deployment", "worker"))["containers"]
    assert scheduler["image"] == worker["image"] == collector_of(made)["image"]
    command = build_parser()
    scheduling = command.parse_args(scheduler["args"])
    working = command.parse_args(command_line({"command": [], **worker}))
    assert (scheduling.bind, scheduling.dashboard) == ("0.0.0.0:8786", "127.0.0.1:8787")
    assert (working.scheduler, working.megabytes, working.host) == (address, 512, "0")
    assert only(made, "Deployment", "worker")["spec"]["replicas"] == 4
    # It reads the bucket, and has no business in the catalog.
    assert worker["envFrom"] == [{"secretRef": {"name": "pgo-bucket"}}]
    assert "PGOF_CATALOG" not in environment_of(worker)


def test_only_collectors_and_its_own_parts_reach_the_charts_dask() -> None:
    made = rendered(SHARED)
    labels = {
        part: only(made, "Deployment", part)["spec"]["template"]["metadata"]["labels"]
        for part in ("collector", "scheduler", "worker")
    }

    def peers(rules: list[dict[str, Any]], direction: str) -> set[str]:
        selectors = [peer["podSelector"]["matchLabels"] for rule in rules for peer in rule[direction]]
        return {part for part in labels for of in selectors if of.items() <= labels[part].items()}

    scheduler = only(made, "NetworkPolicy", "scheduler")["spec"]
    worker = only(made, "NetworkPolicy", "worker")["spec"]
    assert peers(scheduler["ingress"], "from") == {"collector", "worker"}
    assert peers(worker["ingress"], "from") == {"scheduler", "worker"}
    assert peers(scheduler["egress"], "to") == {"worker"}
    collector = only(made, "NetworkPolicy", "collector")["spec"]
    assert peers(collector["egress"][:1], "to") == {"scheduler"}
    for policy in (worker, collector):
        assert policy["egress"][-1] == SHARED["networkPolicy"]["egress"][0]


def test_a_dask_of_ones_own_is_named_and_nothing_is_added() -> None:
    values = SHARED | {"dask": {"address": "dask+tls://scheduler.dask:8786"}}
    made = rendered(values)
    assert environment_of(collector_of(made))["PGOF_BULK"] == "dask+tls://scheduler.dask:8786"
    assert [of["metadata"]["name"] for of in made if of["kind"] == "Deployment"] == ["pgo-pgo-collector"]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"dask": {"enabled": True}}, "bucket.url"),
        (SHARED | {"dask": {"enabled": True, "address": "dask://other:8786"}}, "dask.address"),
    ],
)
def test_a_dask_that_cannot_work_is_refused(values: dict[str, Any], named: str) -> None:
    with pytest.raises(helm_python.HelmError, match=named):
        rendered(values)


def test_the_ingress_leads_a_service_to_one_of_several_collectors() -> None:
    prefix = "nginx.ingress.kubernetes.io/"
    assert only(rendered(ALL), "Ingress")["metadata"]["annotations"] == ALL["ingress"]["annotations"]
    annotations = only(rendered(SHARED), "Ingress")["metadata"]["annotations"]
    assert annotations[f"{prefix}upstream-hash-by"] == "$arg_service"
    assert annotations[f"{prefix}proxy-next-upstream"] == "error timeout non_idempotent"
    assert annotations[f"{prefix}proxy-body-size"] == "8m"
    own = {"annotations": {f"{prefix}upstream-hash-by": "$service_key"}}
    changed = only(rendered(SHARED | {"ingress": SHARED["ingress"] | own}), "Ingress")
    assert changed["metadata"]["annotations"][f"{prefix}upstream-hash-by"] == "$service_key"


def test_the_service_monitor_asks_the_service() -> None:
    made = rendered(ALL)
    monitor, service = only(made, "ServiceMonitor"), only(made, "Service")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint == {"port": "http", "path": "/metrics", "interval": "30s"}
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
        ({"settings": {"PGOF_CATALOG": "postgresql://db/pgo"}}, "PGOF_CATALOG"),
        ({"bucket": {"url": "profiles"}}, "url"),
        ({"bucket": {"environment": {"AWS_SECRET_ACCESS_KEY": "secret"}}}, "AWS_SECRET_ACCESS_KEY"),
        ({"dask": {"address": "tcp://scheduler:8786"}}, "address"),
    ],
)
def test_a_mistake_in_a_value_is_told(values: dict[str, Any], named: str) -> None:
    with pytest.raises(helm_python.HelmError, match=named):
        rendered(values)


def test_the_appversion_is_that_of_the_collector() -> None:
    chart = read_yaml((FOLDER / "Chart.yaml").read_text())
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
    values = read_yaml((FOLDER / "values.yaml").read_text())
    page = (ROOT / "docs" / "helm.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| (?:`(.*?)`)? ?\| .*\|$", page, flags=re.MULTILINE)
    documented = [(name, read_yaml(default) if default else "") for name, default in rows]
    assert documented == [*flat(values)]
