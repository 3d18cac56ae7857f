"""The Helm chart, rendered by Helm's own library in helm-python-sdk, as `helm template` renders it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import helm_python

from tests.deploy.manifests import read_all_yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "helm" / "pgo-collector"
Manifest = dict[str, Any]


def rendered(
    values: dict[str, Any] | None = None, name: str = "pgo", namespace: str = "pgo"
) -> list[Manifest]:
    """Return what `helm install NAME` would create. Raises HelmError, also for invalid values."""
    with helm_python.Chart.load(FOLDER) as chart:
        chart.validate_schema(values)
        files = chart.render(values, name=name, namespace=namespace)
    return [
        manifest
        for file, text in files.items()
        if file.endswith(".yaml")
        for manifest in read_all_yaml(text)
        if manifest
    ]


def only(manifests: list[Manifest], kind: str, name: str = "") -> Manifest:
    """Return the only object of this kind whose name ends like this."""
    (found,) = (of for of in manifests if of["kind"] == kind and of["metadata"]["name"].endswith(name))
    return found
