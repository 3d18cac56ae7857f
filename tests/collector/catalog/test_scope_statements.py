"""Scopes of keys: SQL finds the services that a key is for, and no others."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.model.facts import Facts
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.series import BlobName, Identity, Scope, Series

# Characters with a meaning in SQL's patterns are among those that names of services can have.
_SERVICES = st.builds(lambda first, rest: first + rest, st.sampled_from("aB0"), st.text("aB0._-", max_size=4))
_PATTERNS = st.text("aB0._-*", min_size=1, max_size=5).filter(lambda text: text[0] not in "._-") | _SERVICES


@settings(deadline=None)
@given(st.sets(_SERVICES, min_size=1, max_size=8), st.lists(_PATTERNS, min_size=1, max_size=4))
def test_the_services_of_a_scope_are_those_that_it_includes(services: set[str], patterns: list[str]) -> None:
    scope = Scope.parse(",".join(patterns))
    with tempfile.TemporaryDirectory() as folder, closing(SQLite(Path(folder) / "catalog")) as database:
        database.open()
        catalog = Catalog(database)
        digest = "0" * 64
        names = [BlobName(Series(service, CPU), Identity(0, digest)) for service in services]
        catalog.add(*((name, Facts(0, 0, digest, 1, 1)) for name in names))
        assert catalog.services(scope=scope) == sorted(filter(scope.includes, services))
