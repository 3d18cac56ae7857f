"""Kustomizations, rendered by kubectl without a cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.deploy.manifests import read_all_yaml


def kustomized(folder: Path) -> list[dict[str, Any]]:
    """Return what `kubectl apply --kustomize` would send."""
    finished = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return [*read_all_yaml(finished.stdout)]
