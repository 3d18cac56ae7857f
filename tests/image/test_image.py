"""The collector's image, built and run: not as root, on a read-only root file system, with one volume."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.builder import Builder
from tests.image.image import ROOT, USER, Container, Image
from tests.interop.curl import total
from tests.server import descendants

# One worker builds, since the builds share layers.
pytestmark = pytest.mark.exhaustive
PROFILES = sorted((ROOT / "tests" / "testdata" / "profiles").glob("apisvc-v1-*.pb.gz"))[:3]


@pytest.fixture(scope="module")
def image(builder: Builder) -> Iterator[Image]:
    with builder.built("Dockerfile") as image:
        yield image


@pytest.fixture(scope="module")
def container(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    with Container(image, tmp_path_factory.mktemp("container")) as container:
        yield container


def test_it_stores_merges_and_combines(container: Container) -> None:
    for profile in PROFILES:
        assert container.submit(profile.read_bytes()).status_code == 204
    merged = container.merge()
    expected = tuple(map(sum, zip(*(total(profile.read_bytes()) for profile in PROFILES), strict=True)))
    assert total(merged.content) == expected
    assert container.combine().status_code == 200
    assert container.merge().content == merged.content
    assert len(container.blobs()) == 1


def test_nothing_of_it_is_root_or_can_write_elsewhere(container: Container) -> None:
    # The first two are `unshare` and the shell that it becomes.
    own = descendants(container.process.pid)
    assert {Path(f"/proc/{pid}").stat().st_uid for pid in own} == {USER}
    command = container.command({}, "sh", "-c", "touch /tmp/x || touch /opt/x || touch /secret/x")
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode != 0
    assert finished.stderr.count("Read-only file system") == 3


def test_its_health_check_tells_a_server_from_none(image: Image, container: Container) -> None:
    kind, *check = image.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    for address, is_healthy in ((container.base_url.removeprefix("http://"), True), ("127.0.0.1:1", False)):
        command = container.command({"PGOF_BIND_ADDRESS": address}, *check)
        finished = subprocess.run(command, capture_output=True, timeout=120, check=False)
        assert (finished.returncode == 0) == is_healthy, finished.stderr


def test_it_says_what_it_is(image: Image) -> None:
    assert image.config["User"] == str(USER)
    assert list(image.config["Volumes"]) == ["/data"]
    assert list(image.config["ExposedPorts"]) == ["8080/tcp"]
    assert image.environment["PGOF_DIRECTORY"] == "/data"
