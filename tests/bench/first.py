"""The first merge of a service over HTTP: as soon as its profiles were submitted, and when they were read."""

from __future__ import annotations

from pathlib import Path

from tests.bench.fleet import Fleet
from tests.bench.measure import Cost, progress
from tests.bench.report import Section, ratio, seconds, table
from tests.bench.rig import LARGE, Rig
from tests.bench.serving import Request, ours, pgo_fleets_way
from tests.server import Server

# How many profiles the merge has; what is asked of its CPU time beside pgo-fleet's way if it is asked for at
# once, and of its CPU time if they were read ahead.
_CASES = (
    (10, "≥ 1", "≤ 30 ms"),
    (200, "≥ 10", "≤ 60 ms"),
    (2_000, "≥ 10", "≤ 150 ms"),
    (LARGE, "≥ 10", "≤ 0.3 s"),
)


def sections(rig: Rig) -> list[Section]:
    """Measure the table."""
    rows: list[list[str]] = []
    for most, at_once, read_ahead in _CASES:
        files = sorted(rig.real.iterdir())[: rig.count(most)]
        home = rig.scratch / f"first-{most}"
        home.mkdir()
        them = _theirs(rig, home / "files", files)
        for is_read_ahead, asked in ((False, at_once), (True, read_ahead)):
            us, ahead = _ours(home / f"{is_read_ahead}", files, is_read_ahead=is_read_ahead)
            name = f"{len(files):,}, {'read ahead' if is_read_ahead else 'at once'}"
            figures = map(seconds, (*us[:2], *them[:2]))
            rows.append([name, asked, ratio(them.cpu, us.cpu), *figures, seconds(ahead) if ahead else ""])
            progress(f"first: {' | '.join(rows[-1])}")
    head = ("pgo-fleet's way ÷ ours: CPU", "ours: CPU", "clock", "pgo-fleet's way: CPU", "clock")
    return [
        Section(
            "First merges over HTTP",
            f"""{table(("profiles", "asked", *head, "reading ahead: CPU a profile"), rows)}

The first merge of a service's profiles by a collector that has just started: as soon as the last one was
submitted, over four connections, and when the workers have [read them ahead](merging.md#read-ahead). What the
server still does for the submits counts as the merge's, if it is asked for at once. The last
column is what that took after the last submit; some were read between the submits.
[The engine](engine.md#a-first-merge-over-http) says where the time goes.""",
        )
    ]


def _theirs(rig: Rig, folder: Path, files: list[Path]) -> Cost:
    """Return the cost of a merge of files in pgo-fleet's way, which has them in a folder of its own."""
    folder.mkdir()
    for file in files:
        (folder / file.name).symlink_to(file)
    with pgo_fleets_way(rig.gobench, folder) as theirs:
        return theirs.cost([[Request("GET", "/v1/merge")]])


def _ours(home: Path, files: list[Path], *, is_read_ahead: bool) -> tuple[Cost, float]:
    """Return the cost of the first merge, and the CPU time in s of reading each profile ahead."""
    ahead = 0.0
    with Server(home) as server, ours(server) as serving:
        fleet = Fleet(server, files, len(files))
        fleet.load()
        if is_read_ahead:
            before = serving.settled()
            server.wait_until_read_ahead()
            ahead = (serving.settled() - before) / len(files)
        # Without a question for their times, which the server would answer before.
        every = Request("GET", "/v1/merge", key=Server.merge_key)
        return serving.cost([[every]], is_at_once=not is_read_ahead), ahead
