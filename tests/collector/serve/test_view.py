"""`pprof-merge view`: pages of files, on a collector that leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from tests.merge.command.installed import PPROF_MERGE

pytestmark = pytest.mark.any_store

PROFILES = Path(__file__).parents[2] / "testdata" / "profiles"
BEFORE, AFTER = (next(iter(sorted(PROFILES.glob(f"apisvc-v{n}-*.pb.gz")))) for n in (1, 2))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for temporary files with a short path: sockets are in there, too."""
    with TemporaryDirectory(prefix="view-") as folder:
        yield Path(folder)


def environment(folder: Path) -> Mapping[str, str]:
    """Return the variables for a command whose temporary files are in a folder."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PGOF_")}
    return own | {"TMPDIR": str(folder), "PGOF_MERGE_AUTH_KEYS_FILE": "/nowhere"}


@contextmanager
def viewed(folder: Path, *files: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command; yield its process and the link that it prints."""
    with subprocess.Popen(
        [PPROF_MERGE, "view", *files],
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        try:
            assert command.stdout is not None
            yield command, command.stdout.readline().strip()
        finally:
            command.kill()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_link_leads_to_the_difference_and_nothing_stays(folder: Path, stop: signal.Signals) -> None:
    with viewed(folder, BEFORE, AFTER) as (command, link), httpx.Client(timeout=120) as client:
        assert re.match(r"http://127\.0\.0\.1:\d+/ui/sign-in\?session=", link)
        page = client.get(link, follow_redirects=True)
        assert page.status_code == 200
        assert AFTER.name in page.text
        assert "Total in the base" in page.text
        assert str(page.url).endswith(f"base_service={BEFORE.name}.opened-" + str(page.url)[-17:])
        assert client.get(page.url.join(page.url.path.removesuffix("/diff"))).status_code == 200
        again = httpx.get(link, timeout=120)
        assert "was used" in again.text
        (own,) = folder.glob("pprof-view-*")
        assert own.stat().st_mode & 0o77 == 0
        command.send_signal(stop)
        assert command.wait(120) == 0
    assert not [*folder.iterdir()]


def test_a_file_may_be_larger_than_what_a_fleet_sends(tmp_path: Path, folder: Path) -> None:
    file = tmp_path / "stacks.folded"
    file.write_text("".join(f"main;f{number % 100};{'x' * 1000} 1\n" for number in range(12_000)))
    with viewed(folder, file) as (_, link):
        page = httpx.get(link, timeout=120, follow_redirects=True)
    assert page.status_code == 200
    assert "f99" in page.text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, r"gone: No such file or directory"),
        (b"hello", r"gone: this is text, in no format"),
        (b"\x1f\x8b\x08\x00broken", r"gone: not a profile: .*gzip"),
    ],
)
def test_a_file_that_cannot_be_read_ends_the_command(
    tmp_path: Path, folder: Path, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "gone"
    if content is not None:
        file.write_bytes(content)
    ended = subprocess.run(
        [PPROF_MERGE, "view", file], env=environment(folder), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert re.fullmatch(rf"pprof-merge view: {reason}.*\n", ended.stderr)
    assert not ended.stdout
    assert not [*folder.iterdir()]
