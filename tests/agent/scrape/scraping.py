"""Run `pgo-agent scrape` as a command, with a spool, a key, and a file of targets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.agent.forked import RunningAgent, run_agent
from tests.forked import NO_CONSTANTS, Constants

COMMAND = str(Path(sys.executable).with_name("pgo-agent"))


class Scraping:
    """The command, for the collector at `url`; its files are in `home`."""

    def __init__(self, home: Path, url: str, key: str) -> None:
        self.home = home
        self.spool = home / "spool"
        self.key_file = home / "key"
        self.key_file.write_text(f"{key}\n")
        self.targets = home / "targets.toml"
        self.environment = dict(os.environ)
        self._command = [COMMAND, "scrape", "--url", url, "--key-file", str(self.key_file)]

    def list_targets(self, urls: Iterable[str], **settings: Any) -> None:
        """Write the targets file: each URL with these settings, of a service `shop`."""
        flat = {
            f"{name}.{key}" if key else name: part
            for name, value in settings.items()
            for key, part in (value.items() if isinstance(value, dict) else [("", value)])
        }
        said = "".join(f"{name} = {json.dumps(value)}\n" for name, value in flat.items())
        tables = (f"[[target]]\nservice = 'shop'\nurl = {json.dumps(url)}\n{said}" for url in urls)
        self.targets.write_text("\n".join(tables))

    def arguments(self, *options: str | Path) -> list[str]:
        """Return the whole command line."""
        spooled = ["--spool", self.spool]
        listed = ["--targets", self.targets] if self.targets.exists() else []
        return list(map(str, [*self._command, *spooled, *listed, *options]))

    def once(
        self, *options: str | Path, constants: Constants = NO_CONSTANTS, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it with --once, to its end."""
        return run_agent(self.arguments("--once", *options)[1:], self.environment | environment, constants)

    def start(
        self, *options: str | Path, constants: Constants = NO_CONSTANTS, **environment: str
    ) -> RunningAgent:
        """Start it; it runs until it gets a signal."""
        return RunningAgent(self.arguments(*options)[1:], self.environment | environment, constants)


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true, but not forever."""
    latest = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < latest, "this takes too long"
        time.sleep(0.01)


def peak_memory(pid: int) -> int:
    """Return the peak memory of a process so far, in bytes; 0 if it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def reasons(said: Mapping[str, Any]) -> dict[str, str]:
    """Return why each target failed, by the first part of its path, from the JSON of --once."""
    return {failure["target"].split("/")[3]: failure["reason"] for failure in said["failures"]}
