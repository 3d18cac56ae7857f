"""The cost of scraping a large fleet: `pgo-agent scrape`, with a round of ten minutes in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from tests.bench.measure import progress
from tests.bench.report import Section, table
from tests.bench.rig import ROOT, Rig

TITLE = "Scraping a fleet"
TARGETS = 5000
# A fifth of --every 600 --seconds 30: as many are in progress at once, but five times as many start a second.
EVERY, SECONDS = 120, 6
_ROUNDS = 2


def sections(rig: Rig) -> list[Section]:
    """Measure two rounds, then stop the agent."""
    sizes = {len(source.read_bytes()): source for source in rig.sources}
    size = sorted(sizes)[len(sizes) // 2]
    every, seconds = max(4, EVERY // rig.scale), max(1, SECONDS // rig.scale)
    head = ("targets", "scraped a round", "late", "failed", "at once", "CPU of a scrape", "memory")
    row = _measured(rig, sizes[size], every, seconds)
    return [
        Section(
            TITLE,
            f"""{table(head, [row])}

`pgo-agent scrape` asks targets on loopback, each once in {every} s, for a profile of {seconds} s and
{size / 1000:.0f} KB. It submits the profiles, by way of the spool, to a server that accepts all of them.
With the defaults of ten minutes and 30 seconds, as many scrapes run at once, and each second has a fifth of
the work. Scrapes that run at the end of the first round count for the next one.""",
        )
    ]


def _measured(rig: Rig, source: Path, every: int, seconds: int) -> list[str]:
    command: list[str | Path] = [sys.executable, "-m", "tests.bench.targets", source]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as fleet:
        url = f"http://127.0.0.1:{_line(fleet)}"
        agent = _started(rig.scratch, url, rig.count(TARGETS), every, seconds)
        rounds = [json.loads(_line(agent)) for _ in range(_ROUNDS)]
        agent.terminate()
        _, _, usage = os.wait4(agent.pid, 0)
        seen = json.loads(fleet.communicate()[0])
    scraped = sum(said["scraped"] for said in rounds)
    row = [
        f"{seen['targets']:,}",
        f"{median(said['scraped'] for said in rounds):,.0f}",
        str(sum(said["late"] for said in rounds)),
        str(sum(sum(said["failed"].values()) for said in rounds)),
        str(seen["most"]),
        f"{(usage.ru_utime + usage.ru_stime) / scraped * 1000:.1f} ms",
        f"{usage.ru_maxrss / 1024:.0f} MiB",
    ]
    progress(" | ".join(row))
    return row


def _started(scratch: Path, url: str, targets: int, every: int, seconds: int) -> subprocess.Popen[str]:
    listed, key = scratch / "targets.toml", scratch / "key"
    key.write_text("key")
    listed.write_text(
        "\n".join(
            f'[[target]]\nservice = "shop"\nurl = "{url}/{number}/debug/pprof"' for number in range(targets)
        )
    )
    command: list[str | Path] = [Path(sys.executable).with_name("pgo-agent"), "scrape", "--json"]
    where: list[str | Path] = ["--url", url, "--key-file", key, "--targets", listed]
    how: list[str | Path] = ["--spool", scratch / "spool", "--every", str(every), "--seconds", str(seconds)]
    return subprocess.Popen(
        [*command, *where, *how], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None, "it is a pipe"
    return process.stdout.readline().strip()
