"""Answers of Connect as bytes: messages as JSON or protobuf. Workers write the large ones themselves."""

from __future__ import annotations

import json

from google.protobuf import json_format
from google.protobuf.message import Message
from pprof_merge import OutputTooLarge
from pprof_proto.profile_pb2 import Profile

from pgo_collector.routes.pyroscope.querier_pb2 import SelectMergeStacktracesResponse

# JSON of a profile takes a hundred times the memory of its protobuf, in bytes, while it is written.
_LARGEST_JSON_PROFILE = 2 << 20


def written(message: Message, as_json: bool) -> bytes:
    """Return a message as JSON, whose numbers of 64 bits are strings, or as protobuf."""
    if not as_json:
        return message.SerializeToString()
    return json_format.MessageToJson(message, indent=None).encode()


def profile_message(as_json: bool, protobuf: bytes) -> bytes:
    """Return a profile, which is a message itself. Raises OutputTooLarge."""
    return _profile_as_json(protobuf) if as_json else protobuf


def pprof_message(as_json: bool, protobuf: bytes) -> bytes:
    """Return the answer to a call for stack traces that asks for a profile. Raises OutputTooLarge."""
    if as_json:
        return b'{"pprof":{"profile":' + _profile_as_json(protobuf) + b"}}"
    answer = SelectMergeStacktracesResponse()
    answer.pprof.profile = protobuf
    return answer.SerializeToString()


def _profile_as_json(protobuf: bytes) -> bytes:
    """Return a profile as JSON. Its strings are text there, which our class has as bytes."""
    if len(protobuf) > _LARGEST_JSON_PROFILE:
        raise OutputTooLarge(
            len(protobuf), _LARGEST_JSON_PROFILE, "ask for application/proto, which has no such bound"
        )
    profile = Profile.FromString(protobuf)
    strings = [text.decode(errors="backslashreplace") for text in profile.string_table]
    profile.ClearField("string_table")
    return json.dumps({**json_format.MessageToDict(profile), "stringTable": strings}).encode()
