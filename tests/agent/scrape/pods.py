"""Make pods as a real API server writes them (v1, JSON), with all their other fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

Pod = dict[str, Any]


def pod(
    name: str = "shop-5d8f7c9b6-x2x7p",
    *,
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    phase: str = "Running",
    address: str = "127.0.0.1",
) -> Pod:
    """Return a pod of a Deployment `shop` with a sidecar; `labels` are added to its controllers' labels."""
    made = "2026-11-21T09:14:03Z"
    ports = [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    metadata: dict[str, Any] = {
        "name": name,
        "generateName": "shop-5d8f7c9b6-",
        "namespace": namespace,
        "uid": str(uuid5(NAMESPACE_DNS, f"{name}.{namespace}")),
        "resourceVersion": "1",
        "creationTimestamp": made,
        "labels": {"pod-template-hash": "5d8f7c9b6", **(labels or {})},
        "annotations": {"kubectl.kubernetes.io/restartedAt": made, **(annotations or {})},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "shop-5d8f7c9b6",
                "uid": "f6f3b1f0-6f3b-4a0e-9d4e-0a4b8c1a7f10",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": [
            {
                "manager": "kubelet",
                "operation": "Update",
                "apiVersion": "v1",
                "time": made,
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:status": {"f:podIP": {}, "f:phase": {}}},
                "subresource": "status",
            }
        ],
    }
    spec: dict[str, Any] = {
        "volumes": [{"name": "kube-api-access-8q4vs", "projected": {"sources": None, "defaultMode": 420}}],
        "initContainers": [
            {
                "name": "proxy",
                "image": "example.test/proxy:1",
                "restartPolicy": "Always",
                "ports": [{"name": "admin", "containerPort": 15000, "protocol": "TCP"}],
                "resources": {},
            }
        ],
        "containers": [
            {"name": "shop", "image": "example.test/shop:1.7", "ports": ports, "resources": {}},
            {"name": "logs", "image": "example.test/logs:2", "resources": {}, "env": None},
        ],
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "nodeName": "node-a-1",
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    running = phase == "Running"
    status = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": str(running), "lastTransitionTime": made}],
        "hostIP": "10.0.0.4",
        "hostIPs": [{"ip": "10.0.0.4"}],
        **({"podIP": address, "podIPs": [{"ip": address}]} if running else {}),
        "startTime": made,
        "qosClass": "BestEffort",
    }
    return {"metadata": metadata, "spec": spec, "status": status}


def port_of(made: Pod, name: str, number: int) -> Pod:
    """Return the pod with another port on its first container."""
    made["spec"]["containers"][0]["ports"].append({"name": name, "containerPort": number, "protocol": "TCP"})
    return made
