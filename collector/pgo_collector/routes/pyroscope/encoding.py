"""Profiles as answers to Grafana's calls, as JSON or protobuf. Workers write them."""

from __future__ import annotations

import json

from google.protobuf import json_format
from pprof_merge import Budget
from pprof_proto.profile_pb2 import Profile

from pgo_collector.routes.pyroscope.querier_pb2 import SelectMergeStacktracesResponse

# Bytes of a budget that a byte of a profile takes if it is written as JSON: the memory is up to 90 times the
# protobuf, and may be three times the budget.
_BYTES_AS_JSON = 30


def profile_message(as_json: bool, protobuf: bytes, budget: Budget) -> bytes:
    """Return a profile, which is a message itself. Raises OutputTooLarge."""
    return _profile_as_json(protobuf, budget) if as_json else protobuf


def pprof_message(as_json: bool, protobuf: bytes, budget: Budget) -> bytes:
    """Return the answer to a call for stack traces that asks for a profile. Raises OutputTooLarge."""
    if as_json:
        return b'{"pprof":{"profile":' + _profile_as_json(protobuf, budget) + b"}}"
    answer = SelectMergeStacktracesResponse()
    answer.pprof.profile = protobuf
    return answer.SerializeToString()


def _profile_as_json(protobuf: bytes, budget: Budget) -> bytes:
    """Return a profile as JSON. Its strings are text there, which our class has as bytes."""
    budget.check_rows(len(protobuf), _BYTES_AS_JSON, "ask for application/proto, which takes less")
    profile = Profile.FromString(protobuf)
    strings = [text.decode(errors="backslashreplace") for text in profile.string_table]
    profile.ClearField("string_table")
    return json.dumps({**json_format.MessageToDict(profile), "stringTable": strings}).encode()
