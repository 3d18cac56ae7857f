"""The gain of PostgreSQL, built as docs/tutorial-postgres-build.md has it: the page's commands are run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.bench import machine
from tests.bench.measure import progress
from tests.cpu_meter import CpuMeter, children_of
from tests.gains.builds import Toolchain, shared_flags
from tests.gains.costs import at_once, compared, counted, stripped
from tests.gains.debian import needed, sources_of
from tests.gains.page import INSTRUMENTED, LAID_OUT, NONE, WITH_PROGRAM, Gain
from tests.interop.curl import total
from tests.interop.postgres_cluster import AS_POSTGRES, Cluster, only_postgres, running_postgres
from tests.interop.tutorial import Clone, commands
from tests.server import Server

NAME = "postgresql"
PAGE = "tutorial-postgres-build.md"
# The builds of the page, by what docs/gains.md calls their profiles.
BUILDS = {NONE: "none", WITH_PROGRAM: "ours", LAID_OUT: "laid-out", INSTRUMENTED: "instrumented"}
_SECONDS, _SCALE = 2, 10
_TRANSACTIONS = 10_000  # what CPU times are given for: one takes too little to be read
# The loads by pgbench's names, and how many of their transactions Valgrind counts.
_LOADS = {"select-only": ("read-only", 2000), "tpcb-like": ("read-write", 400)}
_AS_POSTGRES = AS_POSTGRES if os.geteuid() == 0 else ()
_STATEMENTS = {
    "select-only": "SELECT abalance FROM pgbench_accounts WHERE aid = {account};\n",
    "tpcb-like": """BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {account};
SELECT abalance FROM pgbench_accounts WHERE aid = {account};
UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {teller};
UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = {branch};
INSERT INTO pgbench_history VALUES ({teller}, {branch}, {account}, {delta}, CURRENT_TIMESTAMP);
END;
""",
}


def postgres_gains(toolchain: Toolchain, folder: Path, rounds: int, command: str) -> list[Gain]:
    """Build PostgreSQL in an empty folder, and return what its builds cost for each load.

    `command` is what the page names for its rows.
    """
    needed("curl", "dpkg-source", "llvm-bolt-19", "llvm-profdata", "make", "perf", "strip", "valgrind")
    stamp = machine.stamp()
    # The user `postgres` can't come into the folders of others.
    work = Path(tempfile.mkdtemp(prefix="postgres-build-"))
    work.chmod(0o755)
    try:
        with only_postgres(), Server(folder / "collector") as server:
            _follow_the_page(Clone(folder / "clone", server), work, toolchain)
        installed = work / "installed" / "bin"
        builds = {profile: installed / f"pg-{name}" for profile, name in BUILDS.items()}
        flags = shared_flags(builds)
        progress(f"{NAME}: all were built by commands such as: {flags}")
        _vacuum(builds[NONE], work)
        # BOLT moves instructions, and leaves hardly any out.
        unmoved = {build: server for build, server in builds.items() if build != LAID_OUT}
        instructions = {load: _instructions(load, unmoved, work) for load in _LOADS}
        seconds = _seconds(builds, rounds)
        samples = total((work / "merged.pb.gz").read_bytes())[0]
    finally:
        shutil.rmtree(work)
    how = (
        f"Debian's source package postgresql-15, built by [these commands]({PAGE}). The profile has\n"
        f"{samples:,} samples of three servers. Instructions are of one transaction, of\n"
        f"{_LOADS['select-only'][1]} and {_LOADS['tpcb-like'][1]}, in single-user mode, after\n"
        f"`VACUUM FREEZE`. CPU times are of {_TRANSACTIONS:,} transactions of `pgbench` by two clients, the\n"
        f"kernel's part included, in {rounds} rounds.\n"
        f"BOLT 19 laid out the build with our profile, by as long a profile of that build.\n\n{stamp}"
    )
    return [
        Gain(
            f"{NAME}, {load}",
            f"clang {toolchain.version}",
            command,
            {build: [count] for build, count in instructions[script].items()},
            compared(seconds[script]),
            how,
        )
        for script, (load, _) in _LOADS.items()
    ]


def _follow_the_page(clone: Clone, work: Path, toolchain: Toolchain) -> None:
    """Run the page's commands, whose clang is the toolchain's.

    The sources are unpacked in another way, since apt may have none.
    """
    first, _, *steps, _ = commands(PAGE)
    sources_of("postgresql-15", work)
    for step in steps:
        progress(f"{NAME}: {step.strip().splitlines()[0]}")
        there = {"/tmp/postgres-build": str(work)}  # noqa: S108 - as the page has it
        clone.paste(first + step, there, toolchain.environment)


def _seconds(builds: dict[str, Path], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return the CPU seconds of a number of transactions, by load and build, of each round."""
    seconds: dict[str, dict[str, list[float]]] = {load: {build: [] for build in builds} for load in _LOADS}
    with ExitStack() as stack:
        clusters = {
            build: stack.enter_context(running_postgres(_SCALE, server.name, server))
            for build, server in builds.items()
        }
        for round_ in range(rounds + 1):
            for load, of_load in seconds.items():
                for build, cluster in clusters.items():
                    taken = transaction_seconds(cluster, load, _SECONDS)
                    if round_:  # the first fills caches
                        of_load[build].append(taken * _TRANSACTIONS)
            progress(f"{NAME}: round {round_} of {rounds}")
    return seconds


def transaction_seconds(cluster: Cluster, script: str, seconds: int) -> float:
    """Return the CPU time of the server's processes for a transaction (s)."""
    meter, idle = CpuMeter(cluster.pid), len(children_of(cluster.pid))
    before = meter.taken()
    with cluster.pgbench(seconds, script=script) as pgbench:
        printed, _ = pgbench.communicate()
    while len(children_of(cluster.pid)) > idle:  # its clients' processes
        time.sleep(0.01)
    processed = re.search(r"transactions actually processed: (\d+)", printed)
    assert processed, printed
    return (meter.taken() - before) / int(processed[1])


def _instructions(load: str, builds: dict[str, Path], work: Path) -> dict[str, int]:
    """Return the instructions of a transaction by build, in the data of the page's first server."""
    few, many = (work / f"{load}-{amount}.sql" for amount in ("few", "many"))
    count = _LOADS[load][1]
    few.write_text("".join(transactions(load, count // 10)))
    many.write_text("".join(transactions(load, count + count // 10)))

    def counted_of(build: str) -> int:
        server = stripped(builds[build], builds[build].with_name(f"{build}-stripped"))
        executed = [_single_user(server, text, work) for text in (few, many)]
        return (executed[1] - executed[0]) // count

    found = dict(zip(builds, at_once(counted_of, builds), strict=True))
    progress(f"{NAME}: {load}: instructions of a transaction: {found}")
    return found


def _vacuum(server: Path, work: Path) -> None:
    """Clean the data of the page's first server up after its transactions.

    Otherwise the first lookup of each page does, which writes the whole page to the log.
    """
    command = [*_AS_POSTGRES, server, *_single_mode(work / "data" / "1")]
    subprocess.run(command, cwd=work, check=True, input=b"VACUUM FREEZE;\n", stdout=subprocess.DEVNULL)


def _single_user(server: Path, text: Path, work: Path) -> int:
    """Return the instructions that a server without clients executes on a text, in a copy of the data."""
    with tempfile.TemporaryDirectory(dir=work / "data") as copied:
        shutil.chown(copied, "postgres", "postgres")
        subprocess.run([*_AS_POSTGRES, "cp", "-r", work / "data" / "1", f"{copied}/1"], check=True)
        return counted(_AS_POSTGRES, server, _single_mode(Path(copied, "1")), Path(copied), text)


def _single_mode(data: Path) -> list[str]:
    """Return the arguments of a server without clients, which reads statements from its input."""
    return ["--single", "-D", str(data), "-c", "fsync=off", "-c", "log_checkpoints=off", "postgres"]


def transactions(load: str, count: int) -> Iterator[str]:
    """Yield the statements of transactions, the same each time, at accounts spread over the table."""
    for number in range(count):
        values = {
            "account": number * 7919 % (100_000 * _SCALE) + 1,
            "teller": number % (10 * _SCALE) + 1,
            "branch": number % _SCALE + 1,
            "delta": number % 9999 - 5000,
        }
        yield _STATEMENTS[load].format(**values)
