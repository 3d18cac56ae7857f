"""The processes of a Dask cluster: Dask's own commands, with this package loaded and on loopback."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from pgo_collector.errors import SettingsInvalid
from pgo_collector.settings import dask_address, split_address
from pgo_collector.workers.bulk import require_dask

# How much Dask watches its worker. By itself it samples the stack of the thread that works a hundred times a
# second, and more, which takes a twentieth of the time. A variable that is set already stays.
_WATCHES_LITTLE = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
}


def run_scheduler(address: str, dashboard: str) -> NoReturn:
    """Become a scheduler. Anyone who can connect to it can run code on its workers.

    Raises DaskUnavailable and SettingsInvalid.
    """
    host, port = _split("--bind", address)
    _split("--dashboard", dashboard)
    _become("dask_scheduler", "--host", host, "--port", str(port), "--dashboard-address", dashboard)


def run_worker(scheduler: str, host: str, megabytes: int) -> NoReturn:
    """Become a worker with one thread. Raises DaskUnavailable and SettingsInvalid."""
    try:
        address = dask_address(scheduler)
    except ValueError as error:
        raise SettingsInvalid(f"{scheduler}: {error}") from None
    for name, value in _WATCHES_LITTLE.items():
        os.environ.setdefault(name, value)
    _become(
        "dask_worker",
        address,
        "--host",
        host,
        "--nthreads",
        "1",
        "--memory-limit",
        f"{megabytes}MiB",
        "--no-dashboard",
        "--preload",
        "pgo_collector.workers.bulk_parts",
    )


def _split(option: str, address: str) -> tuple[str, int]:
    try:
        return split_address(address)
    except ValueError as error:
        raise SettingsInvalid(f"{option} {address}: {error}") from None


def _become(command: str, *arguments: str) -> NoReturn:
    require_dask()
    program = [sys.executable, "-m", f"distributed.cli.{command}", *arguments]
    os.execv(sys.executable, program)  # noqa: S606 - no shell is needed
