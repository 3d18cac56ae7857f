"""Programs that tell what the real ones would, so that tests need no kernel that lets itself be traced."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import pytest

needs_btf = pytest.mark.skipif(
    not Path("/sys/kernel/btf/vmlinux").exists(), reason="the kernel has no /sys/kernel/btf/vmlinux"
)
_FOLDER = Path(__file__).parent


def use_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have perf, bpftrace and LLVM's tools found in this folder first."""
    monkeypatch.setenv("PATH", f"{_FOLDER}:{os.environ['PATH']}")


class StandInKernel:
    """The kernel that the stand-in for bcc reads."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._happens, self._tracing, self._python = folder / "happens", folder / "tracing", folder / "python"
        self._happens.touch()
        monkeypatch.setenv("BCC_HAPPENS", str(self._happens))

    def python(self, **constants: float) -> str:
        """Return the path of a Python that has the stand-in for bcc, for a program with other constants."""
        start = f'"{sys.executable}" "{_FOLDER}/start.py" "{self._tracing}"'
        self._python.write_text(f"#!/bin/sh\nexec {start} '{json.dumps(constants)}' \"$@\"\n")
        self._python.chmod(0o755)
        return str(self._python)

    def has(self, tracepoints: Iterable[str]) -> Self:
        """Give the kernel these tracepoints."""
        for name in tracepoints:
            (self._tracing / "events" / name.replace(":", "/")).mkdir(parents=True)
        return self

    def happens(self, *what: dict[str, Any]) -> None:
        """Have this happen, as stand_ins/bcc.py describes it."""
        with self._happens.open("a") as file:
            file.write("".join(f"{json.dumps(one)}\n" for one in what))
