"""Test the body of a POST: any body is a valid request or refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.backends import Bcc, Bpftrace, Perf
from pgo_agent.serve import CaptureRequest, RequestRefused

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
FIELDS = st.fixed_dictionaries(
    {"profiler": st.dictionaries(st.sampled_from(["BccProfile", "Perf", "Bpftrace", "x"]), JSON) | JSON},
    optional={
        "sampling_frequency": JSON | st.integers(-1, 1002),
        "timeout_seconds": JSON | st.integers(-1, 62),
        "archive": JSON,
        "other": JSON,
    },
)


@given(st.binary() | (JSON | FIELDS).map(lambda said: json.dumps(said).encode()))
def test_every_body_is_an_order_within_bounds_or_refused(body: bytes) -> None:
    outcome = outcome_of(body)
    if isinstance(outcome, RequestRefused):
        assert outcome.status in {400, 422}
        assert outcome.reason
    else:
        assert 1 <= outcome.frequency <= 1000
        assert 1 <= outcome.duration <= 60
        # Only the agent's own programs.
        assert outcome.backend in {Bcc(), Perf(), Bpftrace()}


def outcome_of(body: bytes) -> CaptureRequest | RequestRefused:
    try:
        return CaptureRequest.parse(body, ())
    except RequestRefused as refusal:
        return refusal


@given(
    st.sampled_from(["BccProfile", "Perf", "Bpftrace"]),
    st.integers(1, 1000),
    st.integers(1, 60),
    st.booleans(),
)
def test_what_is_within_bounds_is_taken(name: str, frequency: int, seconds: int, archive: bool) -> None:
    body = {"sampling_frequency": frequency, "timeout_seconds": seconds, "archive": archive}
    order = CaptureRequest.parse(json.dumps({"profiler": {name: "/a"}, **body}).encode(), ["/a"])
    assert (order.frequency, order.duration, order.archive) == (frequency, seconds, archive)
    with pytest.raises(RequestRefused, match="'/a' is not a program"):
        CaptureRequest.parse(json.dumps({"profiler": {name: "/a"}}).encode(), ["/b"])
