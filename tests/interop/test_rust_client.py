"""The `pyroscope` crate pushes what a busy program used.

`make setup WITH=clients` builds the program, where Cargo is there. It sends through a server of the test.
"""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest
from pgo_collector.routes.pyroscope.push_pb2 import PushRequest
from pprof_merge import decode, encode, inflate, merge

from tests.collector.pushing import PUSH, stored
from tests.interop.forwarding import forwards
from tests.interop.test_pyroscope import installed, statuses
from tests.oracle.content import content
from tests.server import Server

_PATIENCE_SECONDS = 300.0
_LABELS = {"version": "1.4", "region": "eu", "process.runtime.name": "rust"}


@pytest.mark.system
def test_what_a_rust_program_sends_is_what_the_collector_shows(tmp_path: Path) -> None:
    program = installed("rust-client") / "busy"
    with Server(tmp_path) as server, forwards(server) as receiver:
        finished = subprocess.run(
            [program, f"http://127.0.0.1:{receiver.port}", server.submit_key, "3"],
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        assert statuses(server, PUSH) == {200}
        every = [
            decode(sample.raw_profile)
            for request in receiver.received
            for series in PushRequest.FromString(gzip.decompress(request.body)).series
            for sample in series.samples
        ]
        # At the end one may be without samples, which isn't stored.
        sent = [profile for profile in every if len(profile.samples.values)]
        found = stored(server, "rust.shop")
        assert [type_ for type_, _ in found] == ["process_cpu"] * len(sent)
        assert len(sent) >= 2
        assert all(labels.items() >= _LABELS.items() for _, labels in found)
        query = {"service": "rust.shop", "type": "process_cpu"}
        merged = content(inflate(server.merge(query=query).content)).samples
        assert merged == content(encode(merge(sent))).samples
        # Half of the time it has a tag, which is a label of its samples.
        tags = {
            tag.text
            for stack in merged
            if any(frame.function == b"count_in_rust" for place in stack.places for frame in place.frames)
            for tag in stack.tags
        }
        assert tags == {b"tagged"}
        top = server.ask("/v1/top", **query, by="function", n="1000").json()
        assert top["total"] == sum(int(profile.samples.values.sum()) for profile in sent)
        assert {row["name"]: row["cum"] for row in top["rows"]}["count_in_rust"] >= 0.8 * top["total"]
        # Nothing of it is for a build.
        assert server.merge(query={"service": "rust.shop"}).status_code == 404
