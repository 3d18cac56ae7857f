"""Kustomizations, rendered by kubectl without a cluster."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml


def kustomized(folder: Path) -> list[dict[str, Any]]:
    """Return what `kubectl apply --kustomize` would send; skip the test if there is no kubectl."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl (Debian: kubernetes-client) is not installed")
    finished = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return [*yaml.safe_load_all(finished.stdout)]
