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
    return [
        manifest
        for file, text in _files(values, name, namespace).items()
        if file.endswith(".yaml")
        for manifest in read_all_yaml(text)
        if manifest
    ]


def notes(values: dict[str, Any] | None = None) -> str:
    """Return what `helm install pgo` prints."""
    (text,) = (text for file, text in _files(values, "pgo", "pgo").items() if file.endswith("NOTES.txt"))
    return text


def _files(values: dict[str, Any] | None, name: str, namespace: str) -> dict[str, str]:
    with helm_python.Chart.load(FOLDER) as chart:
        chart.validate_schema(values)
        files: dict[str, str] = chart.render(values, name=name, namespace=namespace)
    return files


def only(manifests: list[Manifest], kind: str, name: str = "") -> Manifest:
    """Return the only object of this kind whose name ends like this."""
    (found,) = (of for of in manifests if of["kind"] == kind and of["metadata"]["name"].endswith(name))
    return found
