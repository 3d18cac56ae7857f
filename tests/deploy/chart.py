"""The Helm chart, rendered by Helm's own library: helm-python-sdk has it, as `helm template` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import helm_python
import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "helm" / "pgo-collector"
Manifest = dict[str, Any]


def rendered(
    values: dict[str, Any] | None = None, name: str = "pgo", namespace: str = "pgo"
) -> list[Manifest]:
    """What `helm install NAME` would make. Raises HelmError, also for values that aren't allowed."""
    with helm_python.Chart.load(FOLDER) as chart:
        chart.validate_schema(values)
        files = chart.render(values, name=name, namespace=namespace)
    return [
        manifest
        for file, text in files.items()
        if file.endswith(".yaml")
        for manifest in yaml.safe_load_all(text)
        if manifest
    ]


def only(manifests: list[Manifest], kind: str, name: str = "") -> Manifest:
    """The one of this kind whose name ends so."""
    (found,) = (of for of in manifests if of["kind"] == kind and of["metadata"]["name"].endswith(name))
    return found
