"""Seals: a combined blob ends with the list of its inputs, which every reader of gzip ignores."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_collector.blobs.blobs import is_sealed, read_seal, seal, seal_size
from pprof_merge import inflate

from tests.faults.stacks import profile_of, tally
from tests.oracle.oracle import go_environment, go_tool
from tests.server import Server

PROFILE = profile_of("a")
# More than the header of one gzip member can hold.
MANY = b"".join(b"%d %064x\n" % (number, number**7) for number in range(5000))


def test_every_reader_of_gzip_reads_the_profile_alone(tmp_path: Path) -> None:
    blob, plain = tmp_path / "blob.pb.gz", tmp_path / "plain.pb.gz"
    plain.write_bytes(PROFILE)
    for inputs in (b"", b"one", MANY):
        blob.write_bytes(PROFILE + seal(inputs))
        assert inflate(blob.read_bytes()) == gzip.decompress(blob.read_bytes()) == gzip.decompress(PROFILE)
        zcat = subprocess.run(["zcat", blob], capture_output=True, check=True)
        assert zcat.stdout == gzip.decompress(PROFILE)
    raw = [
        subprocess.run(
            [go_tool("pprof"), "-raw", file], env=go_environment(), capture_output=True, check=True
        )
        for file in (plain, blob)  # the latter with the longest seal
    ]
    assert raw[0].stdout == raw[1].stdout != b""


@given(st.binary(max_size=200_000))
def test_the_content_of_a_seal_reads_back(tmp_path_factory: pytest.TempPathFactory, inputs: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "sealed"
    path.write_bytes(PROFILE + seal(inputs))
    assert is_sealed(path.read_bytes())
    assert seal_size(path.read_bytes()) == path.stat().st_size - len(PROFILE)
    assert read_seal(path.read_bytes()) == inputs


@given(st.integers(0, len(seal(MANY)) - 1), st.integers(1, 255))
def test_a_damaged_seal_is_ignored(
    tmp_path_factory: pytest.TempPathFactory, place: int, flipped: int
) -> None:
    content = bytearray(PROFILE + seal(MANY))
    content[len(PROFILE) + place] ^= flipped
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(content)
    assert read_seal(path.read_bytes()) in {None, MANY}
    path.write_bytes(content[: len(PROFILE) + place])
    assert read_seal(path.read_bytes()) is None


def test_a_combined_blob_is_sealed_and_a_submitted_one_never(server: Server) -> None:
    for name in ("a", "b"):
        assert server.submit(profile_of(name)).status_code == 204
    server.combine()
    (blob,) = server.blobs()
    assert is_sealed(blob.read_bytes())
    merge = server.merge().content
    assert tally(merge) == {"a": 1, "b": 1}
    assert not is_sealed(merge)
    assert server.submit(blob.read_bytes(), query={"labels": "from=elsewhere"}).status_code == 204
    sent = [path for path in server.blobs() if path != blob]
    assert [is_sealed(path.read_bytes()) for path in sent] == [False]
