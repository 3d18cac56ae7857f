"""The images install what is tested: their locks are parts of the workspace's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def locked(file: str) -> dict[str, set[str]]:
    """The hashes of each `name==version` of a lock; where each is needed differs between them."""
    lines = re.sub(r" *\\\n *", " ", (ROOT / file).read_text()).splitlines()
    pins = (re.split(r" (?=--hash)", line) for line in lines if "==" in line and not line.startswith(" "))
    return {pin.partition(";")[0].strip(): set(hashes) for pin, *hashes in pins}


IMAGES = [f"deploy/requirements{part}.txt" for part in ("", "-agent", "-build")]


@pytest.mark.parametrize("file", IMAGES)
def test_the_image_installs_what_is_tested(file: str) -> None:
    workspace, image = locked("requirements.txt"), locked(file)
    assert len(image) > 3
    assert {pin: hashes for pin, hashes in image.items() if workspace.get(pin) != hashes} == {}


@pytest.mark.parametrize(
    "file",
    [
        "requirements.txt",
        *IMAGES,
        *(f"tests/interop/toolchains/go{version}.txt" for version in ("1.21", "1.22", "1.24")),
    ],
)
def test_every_package_has_hashes_and_no_registry(file: str) -> None:
    assert locked(file)
    assert all(locked(file).values())
    assert "://" not in (ROOT / file).read_text()


def test_every_npm_package_has_a_hash_and_no_registry() -> None:
    packages = json.loads((ROOT / "collector/speedscope/package-lock.json").read_text())["packages"]
    _own, *installed = packages.values()
    assert installed
    assert all(package["integrity"] for package in installed)
    assert not any("resolved" in package for package in installed)
