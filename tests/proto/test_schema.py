"""The generated classes are those of the schema, and the schema is Go's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pprof_proto import profile_pb2, records_pb2
from pprof_proto.profile_pb2 import Profile

from tests.oracle.builder import World, seeded
from tests.oracle.oracle import VENDORED, go_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from tests.oracle.oracle import Oracle

PROTO = Path(profile_pb2.__file__).parents[1]
SCHEMAS = ["profile", "records"]

# How Go's decoders name the kinds of the wire; a bool is a number there.
KINDS = {
    "decodeInt64": "int64",
    "decodeInt64s": "repeated int64",
    "decodeUint64": "uint64",
    "decodeUint64s": "repeated uint64",
    "decodeBool": "bool",
    "decodeStrings": "repeated bytes",
    "decodeMessage": "message",
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_generated_files_match_the_schema(schema: str, tmp_path: Path) -> None:
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}"]
    outputs = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([*protoc, *outputs, f"pprof_proto/{schema}.proto"], check=True)
    for name in (f"{schema}_pb2.py", f"{schema}_pb2.pyi"):
        generated = (tmp_path / "pprof_proto" / name).read_bytes()
        assert (PROTO / "pprof_proto" / name).read_bytes() == generated, f"{name}: run `make lock`"
