"""Test which bodies are accepted as pprof profiles."""

from __future__ import annotations

import gzip
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.errors import ScrapeFailed
from pgo_agent.scrape.submit_queue import check_pprof
from pprof_merge import MalformedProfile, decode

from tests.agent.scrape.target_server import profile

GOOD = profile(1)
LIMIT = 1 << 20


@pytest.mark.parametrize("body", [GOOD, gzip.decompress(GOOD), gzip.compress(GOOD, mtime=0)])
def test_a_profile_is_one_gzipped_or_bare_or_gzipped_twice(body: bytes) -> None:
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
        gzip.compress(gzip.compress(GOOD, mtime=0), mtime=0),
    ],
)
def test_other_bodies_are_none(body: bytes) -> None:
    with pytest.raises(ScrapeFailed, match="not a pprof profile"):
        check_pprof(body, LIMIT)


OLD = b"heap profile: 2: 96 [3: 160] @ heap/2\n1: 64 [2: 128] @ 0x401000\n"
PAGE = b"<!DOCTYPE html>\n<html><head><title>Log in</title></head></html>"


@pytest.mark.parametrize(
    "body", [OLD, PAGE, b'{"error": "no such profile"}', b"goroutine 1 [running]:\n", b"?"]
)
@pytest.mark.parametrize("is_packed", [False, True], ids=["bare", "gzip"])
def test_what_came_in_place_of_one_is_named_as_the_collector_names_it(body: bytes, is_packed: bool) -> None:
    sent = gzip.compress(body) if is_packed else body
    with pytest.raises(MalformedProfile) as refused:
        decode(sent)
    with pytest.raises(ScrapeFailed) as failed:
        check_pprof(sent, LIMIT)
    assert failed.value.detail == str(refused.value)
    assert failed.value.detail.startswith("this is ")


@pytest.mark.parametrize("packed", [GOOD[:-9], gzip.compress(GOOD)[:-9], gzip.compress(GOOD[:-9])])
def test_a_gzip_that_is_cut_is_named_as_the_collector_names_it(packed: bytes) -> None:
    with pytest.raises(MalformedProfile) as refused:
        decode(packed)
    with pytest.raises(ScrapeFailed) as failed:
        check_pprof(packed, LIMIT)
    assert failed.value.detail == str(refused.value) == "gzip: the stream is truncated"


def test_a_message_that_is_cut_and_an_empty_answer_are_told_apart() -> None:
    for body, word in (gzip.decompress(GOOD)[:-1], "the message is cut off"), (b"", "the answer is empty"):
        with pytest.raises(ScrapeFailed, match=word):
            check_pprof(body, LIMIT)


@given(st.binary(), st.integers(0, len(GOOD)), st.integers(0, len(GOOD)), st.booleans())
def test_whatever_comes_is_a_profile_or_a_failure(noise: bytes, start: int, end: int, zipped: bool) -> None:
    body = GOOD[:start] + noise + GOOD[end:]
    with suppress(ScrapeFailed):
        check_pprof(gzip.compress(body) if zipped else body, LIMIT)
