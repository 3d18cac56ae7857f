"""The images and `make serve` install what is tested: their locks are parts of the workspace's."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def locked(file: str) -> dict[str, set[str]]:
    """The hashes of each `name==version` of a lock; where each is needed differs between them."""
    lines = re.sub(r" *\\\n *", " ", (ROOT / file).read_text()).splitlines()
    pins = (re.split(r" (?=--hash)", line) for line in lines if "==" in line and not line.startswith(" "))
    return {pin.partition(";")[0].strip(): set(hashes) for pin, *hashes in pins}


PARTS = [f"requirements/{part}.txt" for part in ("serve", "collector", "agent", "build", "uv")]


def needed_by(*packages: str) -> set[str]:
    """These packages, and all that they need in turn."""
    found, waiting = set[str](), [*packages]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            lines = metadata.requires(name) or ()
            required = (line for line in lines if "extra ==" not in line and "win32" not in line)
            waiting += [re.split(r"[^\w.-]", line)[0].lower().replace("_", "-") for line in required]
    return found


@pytest.mark.parametrize("file", PARTS)
def test_what_is_installed_is_what_is_tested(file: str) -> None:
    workspace, part = locked("requirements/dev.txt"), locked(file)
    assert part
    assert {pin: hashes for pin, hashes in part.items() if workspace.get(pin) != hashes} == {}


def test_serving_needs_the_collectors_packages_and_what_installs_it_editable() -> None:
    needed = locked("requirements/collector.txt") | locked("requirements/build.txt")
    serve = locked("requirements/serve.txt")
    # The extras are in the image, and not in what `make serve` installs.
    more = {pin.partition("==")[0] for pin in needed.keys() - serve.keys()}
    of_binary = {"capstone", "cffi", "highspy", "milksnake", "pycparser", "pyelftools", "symbolic"}
    of_traces = "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"
    of_catalog = "psycopg", "psycopg-binary"
    of_windows = {"tzdata"}  # which psycopg needs there only
    needs = needed_by("distributed", "grpcio", "obstore", *of_traces, *of_catalog)
    assert more <= needs | of_binary | of_windows
    assert {pin.partition("==")[0] for pin in serve.keys() - needed.keys()} == {"editables"}


@pytest.mark.parametrize(
    "file",
    [
        "requirements/dev.txt",
        *PARTS,
        *(f"tests/interop/toolchains/go{version}.txt" for version in ("1.21", "1.22", "1.24")),
        *(f"tests/interop/clients/pyroscope/pyroscope-io-{version}.txt" for version in ("0.8.7", "1.4.0")),
        *(
            f"tests/interop/clients/otlp/opentelemetry-proto-{version}.txt"
            for version in ("1.42.1", "1.45.2")
        ),
        "tests/interop/clients/datadog/ddtrace-4.16.0.txt",
    ],
)
def test_every_package_has_hashes_and_no_registry(file: str) -> None:
    assert locked(file)
    assert all(locked(file).values())
    assert "://" not in (ROOT / file).read_text()


@pytest.mark.parametrize(
    "folder",
    ["collector/speedscope", "tests/interop/clients/pyroscope", "tests/interop/clients/datadog"],
)
def test_every_npm_package_has_a_hash_and_no_registry(folder: str) -> None:
    packages = json.loads((ROOT / folder / "package-lock.json").read_text())["packages"]
    _own, *installed = packages.values()
    assert installed
    assert all(package["integrity"] for package in installed)
    assert not any("resolved" in package for package in installed)


def test_every_go_module_has_a_hash_and_no_registry() -> None:
    module, sums = ((ROOT / "tests/interop/clients/go" / name).read_text() for name in ("go.mod", "go.sum"))
    needed = re.findall(r"^\t(\S+ v\S+)", module, flags=re.MULTILINE)
    assert needed
    assert all(f"{each} h1:" in sums for each in needed)
    assert "://" not in module + sums


def test_every_crate_has_a_hash_and_no_registry() -> None:
    lock = (ROOT / "tests/interop/clients/rust/packages.lock").read_text()
    crates = [crate for crate in tomllib.loads(lock)["package"] if crate["name"] != "busy"]
    assert crates
    assert all(crate["checksum"] for crate in crates)
    assert not any("source" in crate for crate in crates)


def test_every_jar_has_a_hash() -> None:
    (jars,) = re.findall(r"^JARS := (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    sums = (ROOT / "tests/interop/clients/java/jars.sha256").read_text()
    named = (re.sub(r".*:(.*):(.*)", r"\1-\2.jar", jar) for jar in jars.split())
    assert all(re.search(rf"^[0-9a-f]{{64}}  {re.escape(jar)}$", sums, flags=re.MULTILINE) for jar in named)
