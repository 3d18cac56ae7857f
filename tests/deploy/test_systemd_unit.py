"""The systemd units: systemd accepts them, and rates their exposure as low."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.server import COMMAND

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "pgo-collector.service"
SOCKET = UNIT.with_suffix(".socket")
INSTALLED = "/opt/pgo-collector/bin/pgo-collector"


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.system("systemd-analyze")
@pytest.mark.parametrize("units", [[UNIT], [UNIT, SOCKET]], ids=["alone", "with its socket"])
def test_systemd_takes_them(tmp_path: Path, units: list[Path]) -> None:
    # It looks whether the command is there.
    for unit in units:
        (tmp_path / unit.name).write_text(unit.read_text().replace(INSTALLED, COMMAND))
    finished = analyze("verify", "--man=no", "--recursive-errors=no", *tmp_path.iterdir())
    assert (finished.returncode, finished.stdout + finished.stderr) == (0, "")


@pytest.mark.system("systemd-analyze")
def test_it_exposes_little() -> None:
    finished = analyze("security", "--offline=yes", "--threshold=15", "--no-pager", UNIT)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", finished.stdout)
    assert found is not None, finished.stderr
    assert finished.returncode == 0, finished.stdout
    assert float(found[1]) <= 1.5
