"""Rights that a process lacks, by what the kernel tells of it, are named with their fix."""

from __future__ import annotations

from pathlib import Path

import pytest
from pgo_agent.backends.rights import lacking, missing_rights

BPF, PERFMON, ADMIN, PTRACE = 1 << 39, 1 << 38, 1 << 21, 1 << 19


def proc(folder: Path, effective: int, uids: str = "         0          0 4294967295") -> Path:
    (folder / "status").write_text(
        f"Name:\tpython\nCapPrm:\t{1:016x}\nCapEff:\t{effective:016x}\nCapBnd:\t0\n"
    )
    (folder / "uid_map").write_text(f"{uids}\n")
    return folder


@pytest.mark.parametrize(
    ("effective", "missing"),
    [
        *((BPF | PERFMON, []), (ADMIN, []), (BPF, ["CAP_PERFMON"]), (0, ["CAP_BPF", "CAP_PERFMON"])),
        (PTRACE, ["CAP_BPF", "CAP_PERFMON"]),
    ],
)
def test_each_missing_right_is_named_with_its_fix(tmp_path: Path, effective: int, missing: list[str]) -> None:
    here = proc(tmp_path, effective)
    assert lacking("CAP_BPF", "CAP_PERFMON", proc=here) == missing
    said = " ".join(missing_rights("CAP_BPF", "CAP_PERFMON", proc=here))
    assert all(f"--cap-add {name}" in said for name in missing)
    assert bool(said) == bool(missing)
    assert lacking("CAP_SYS_PTRACE", proc=here) == ([] if effective & PTRACE else ["CAP_SYS_PTRACE"])


def test_root_of_a_user_namespace_has_no_rights_whatever_it_is_told(tmp_path: Path) -> None:
    (said,) = missing_rights("CAP_BPF", proc=proc(tmp_path, (1 << 41) - 1, "0 1000 1"))
    assert said.startswith("it runs in a user namespace")
