"""`pgo-collector check`: whether everything is as a server needs it, and how to fix what isn't."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pgo_collector.checks import Finding
from pgo_collector.checks.catalog import check_catalog, stored_bytes
from pgo_collector.checks.configuration import check_configuration
from pgo_collector.checks.data_folder import check_disk, check_folder
from pgo_collector.errors import CatalogUnavailable, SettingsInvalid
from pgo_collector.settings import read_settings
from pgo_collector.store.store import database_of, storage_of

_FAILS = 1


def check(*, as_json: bool) -> int:
    """Print a finding for each part; return the exit code, 1 if any part fails."""
    findings = [*_findings()]
    works = all(finding.state != "fails" for finding in findings)
    if as_json:
        print(json.dumps({"works": works, "findings": [of._asdict() for of in findings]}, indent=2))
    else:
        for finding in findings:
            fix = f"; {finding.fix}" if finding.fix else ""
            print(f"{finding.part:<12} {finding.state:<7}  {finding.detail}{fix}")
    return 0 if works else _FAILS


def _findings() -> Iterator[Finding]:
    try:
        settings = read_settings(takes_unknown=True)
    except SettingsInvalid as error:
        fix = "correct it; the other checks need the settings, so they were skipped"
        yield Finding("settings", "fails", str(error), fix)
        return
    yield from check_configuration(settings)
    yield from check_folder(settings)
    try:
        catalog = database_of(settings)
    except CatalogUnavailable as error:
        yield Finding(
            "catalog", "fails", str(error), "install the package, or use the catalog in the data folder"
        )
        return
    yield check_disk(settings, stored_bytes(catalog))
    yield from check_catalog(catalog, storage_of(settings))
