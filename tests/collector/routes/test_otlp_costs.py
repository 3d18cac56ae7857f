"""Costs of one request of OTLP: what its parts share is worked out once."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pgo_collector.engine.pushes import PushedProfile
from pgo_collector.engine.start_lines import Tables
from pgo_collector.errors import LabelsInvalid
from pgo_collector.readers.json_text import read_json
from pgo_collector.routes.otlp.unpack import ExportOptions, unpack_export
from pgo_collector.routes.push.naming import Sender
from pprof_merge import LimitExceeded, Limits

from tests.collector.exporting import Export
from tests.cpu_meter import cpu_seconds_for

pytestmark = pytest.mark.any_store

OPTIONS = ExportOptions(
    is_json=False,
    most_profiles=1000,
    labels=frozenset({"k8s.*.name"}),
    sample_labels=frozenset(),
    sender=Sender(),
    start_lines=cast("Tables", SimpleNamespace(versions=lambda *_: {})),
)


def test_scopes_share_what_their_resource_says() -> None:
    """A thousand scopes and a thousand attributes of their resource take no longer than each by itself."""
    request = Export()
    request.resource({f"k8s.{number}.name": "a" for number in range(1000)})
    for _ in range(999):
        request.request.resource_profiles[0].scope_profiles.add().profiles.add()
    began = time.process_time()
    profiles = unpack_export(OPTIONS, request.body, Limits())
    assert time.process_time() - began < cpu_seconds_for(0.2)  # seconds, if each scope reads its resource
    assert {str(profile) for profile in profiles} == {
        "1000 attributes of a resource or scope become labels; the limit is 30"
    }
    assert all(isinstance(profile, LabelsInvalid) for profile in profiles)


@pytest.mark.parametrize("where", ["profile", "mapping", "location"])
def test_one_thing_has_few_attributes(where: str) -> None:
    """Seven kilobytes of gzip may have two million."""
    request = Export()
    request.resource({"service.name": "a"})
    profile, tables = request.profile(), request.request.dictionary
    tables.mapping_table.add()
    request.sample([("main.f", "main.go", 1)], values=[1], mapping=1)
    things: dict[str, Any] = {
        "profile": profile,
        "mapping": tables.mapping_table[1],
        "location": tables.location_table[1],
    }
    (taken,) = unpack_export(OPTIONS, request.body, Limits())
    assert isinstance(taken, PushedProfile)
    things[where].attribute_indices.extend([0] * 251)
    (refused,) = unpack_export(OPTIONS, request.body, Limits())
    assert isinstance(refused, LimitExceeded)
    assert refused.limit == "nested_messages"


def test_the_letters_of_a_json_text_count_beside_its_values() -> None:
    """8 KB of gzip with 4 MiB of text and thousands of values took 0.2 s, more than either alone."""
    text = '["' + "a" * 900_000 + '"]'
    assert read_json(text.encode(), 10_000)
    with pytest.raises(ValueError, match="more than 10,000 values"):
        read_json(text.replace("[", "[" + "0," * 1_100).encode(), 10_000)
