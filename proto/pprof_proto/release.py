"""Which release this is: what `--version` of the three commands prints."""

from __future__ import annotations

import argparse
from typing import NoReturn

# `git archive` puts the commit's hash here, as .gitattributes says; releases are built from what it writes.
_COMMIT = "$Format:%H$"
_SHOWN = 12


def version_text(distribution: str) -> str:
    """Return a distribution's name, version and commit: `pgo-agent 1.0.0, commit 39a333beb5a2`.

    In a clone it is the commit that is checked out. Without git's knowledge, the commit is missing.
    """
    from importlib.metadata import version  # noqa: PLC0415 - its import takes longer than a short command

    commit = _COMMIT if "$" not in _COMMIT else _checked_out()
    return f"{distribution} {version(distribution)}" + (f", commit {commit[:_SHOWN]}" if commit else "")


def _checked_out() -> str:
    import subprocess  # noqa: PLC0415 - as above
    from pathlib import Path  # noqa: PLC0415 - as above

    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


class ShowVersion(argparse.Action):
    """The option `--version`: prints a distribution's `version_text` and more, and ends the command."""

    def __init__(self, option_strings: list[str], dest: str, *, of: str, more: str = "") -> None:
        none = argparse.SUPPRESS  # it has no value
        super().__init__(option_strings, dest, nargs=0, default=none, help="print the version and the commit")
        self._of, self._more = of, more

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print it."""
        print(version_text(self._of) + self._more)
        parser.exit()
