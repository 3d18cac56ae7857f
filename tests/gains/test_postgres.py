"""The measurement of PostgreSQL: its page's commands are whole, and a transaction costs CPU time."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.gains import postgres
from tests.interop.postgres_cluster import MISSING, running_postgres
from tests.interop.shell import pasted
from tests.interop.tutorial import checked_commands

_INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


def test_each_step_of_the_page_is_a_script_and_all_builds_are_in_it(tmp_path: Path) -> None:
    blocks = checked_commands(postgres.PAGE, tmp_path / "script")
    text = "".join(blocks)
    built = {"none", *re.findall(r"^guided (\S+)", text, re.MULTILINE)}
    built |= {*re.findall(r'-o "\$INSTALLED/pg-([^"]+)"', text)}
    assert built - {"counting"} == {*postgres.BUILDS.values()}
    assert blocks[-1] == f'make gains ARGS="{postgres.NAME}"\n'
    assert "postgresql-15" in blocks[1]


def test_commands_are_run_as_outside_of_make(tmp_path: Path) -> None:
    environment = {**os.environ, "MAKELEVEL": "1", "MAKEFLAGS": "k -- ARGS=postgresql"}
    assert pasted('echo "${MAKELEVEL-none} ${MAKEFLAGS-none}"', tmp_path, environment) == "none none\n"


@pytest.mark.parametrize(("load", "statements"), [("select-only", 1), ("tpcb-like", 7)])
def test_transactions_are_the_same_each_time(load: str, statements: int) -> None:
    text = "".join(postgres.transactions(load, 20))
    assert text == "".join(postgres.transactions(load, 20))
    assert text.count(";\n") == text.count("\n") == 20 * statements
    assert len({*re.findall(r"SELECT abalance .* aid = (\d+)", text)}) == 20


@pytest.mark.system
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_server_of_ones_own_is_measured() -> None:
    with running_postgres(1, "pg-own", _INSTALLED[-1]) as cluster:
        name = Path(f"/proc/{cluster.pid}/comm").read_text().strip()
        assert name == "pg-own"
        assert 0 < postgres.transaction_seconds(cluster, "tpcb-like", 2) < 1
