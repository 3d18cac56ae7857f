"""Kustomizations, rendered by kubectl without a cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml


def kustomized(folder: Path) -> list[dict[str, Any]]:
    """Return what `kubectl apply --kustomize` would send."""
    finished = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return [*yaml.safe_load_all(finished.stdout)]
