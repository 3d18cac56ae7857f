"""Test which bodies are accepted as pprof profiles."""

from __future__ import annotations

import gzip
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.errors import ScrapeFailed
from pgo_agent.scrape.submit_queue import check_pprof

from tests.agent.scrape.target_server import profile

GOOD = profile(1)
LIMIT = 1 << 20


@pytest.mark.parametrize("body", [GOOD, gzip.decompress(GOOD)])
def test_a_profile_is_one_gzipped_or_bare(body: bytes) -> None:
    check_pprof(body, LIMIT)


def test_one_that_inflates_to_more_than_the_limit_is_too_large() -> None:
    size = len(gzip.decompress(GOOD))
    check_pprof(GOOD, size)
    with pytest.raises(ScrapeFailed, match="too large"):
        check_pprof(GOOD, size - 1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        gzip.compress(b"", mtime=0),
        gzip.compress(b"<html>", mtime=0),
        GOOD[:-1],
        GOOD + GOOD,
        gzip.compress(GOOD, mtime=0),
    ],
)
def test_other_bodies_are_none(body: bytes) -> None:
    with pytest.raises(ScrapeFailed, match="not a pprof profile"):
        check_pprof(body, LIMIT)


@given(st.binary(), st.integers(0, len(GOOD)), st.integers(0, len(GOOD)), st.booleans())
def test_whatever_comes_is_a_profile_or_a_failure(noise: bytes, start: int, end: int, zipped: bool) -> None:
    body = GOOD[:start] + noise + GOOD[end:]
    with suppress(ScrapeFailed):
        check_pprof(gzip.compress(body) if zipped else body, LIMIT)
