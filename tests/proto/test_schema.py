"""The generated classes are those of the schema, and the schema is Go's, field by field."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from google.protobuf.descriptor import FieldDescriptor
from pprof_proto import profile_pb2
from pprof_proto.profile_pb2 import Profile

from tests.oracle.oracle import VENDORED, go_root

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from tests.oracle.oracle import Oracle

PROTO = Path(profile_pb2.__file__).parents[1]
BULKY = {FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_BYTES}
MESSAGES = ["Profile", "ValueType", "Sample", "Label", "Mapping", "Location", "Line", "Function"]

# What each of Go's decoders reads. A single string is an index to Go's decoders, as in the schema.
GO_KINDS = {
    "decodeBool": (FieldDescriptor.TYPE_BOOL, False),
    "decodeInt64": (FieldDescriptor.TYPE_INT64, False),
    "decodeInt64s": (FieldDescriptor.TYPE_INT64, True),
    "decodeUint64": (FieldDescriptor.TYPE_UINT64, False),
    "decodeUint64s": (FieldDescriptor.TYPE_UINT64, True),
    "decodeStrings": (FieldDescriptor.TYPE_BYTES, True),
}


@pytest.mark.parametrize(
    ("root", "schema"),
    [
        (PROTO, "pprof_proto/profile"),
        (PROTO.parent / "collector", "pgo_collector/routes/pyroscope/push"),
        (PROTO.parent / "collector", "pgo_collector/routes/pyroscope/querier"),
        (PROTO.parent / "collector", "pgo_collector/routes/otlp/export"),
    ],
)
def test_generated_files_match_the_schema(root: Path, schema: str, tmp_path: Path) -> None:
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}"]
    outputs = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([*protoc, *outputs, f"{schema}.proto"], check=True)
    for name in (f"{schema}_pb2.py", f"{schema}_pb2.pyi"):
        generated = (tmp_path / name).read_bytes()
        assert (root / name).read_bytes() == generated, f"{name} is old: run `make lock`"


@pytest.mark.parametrize("message", MESSAGES)
def test_numbers_and_types_are_those_that_go_decodes(message: str) -> None:
    source = (go_root() / VENDORED / "encode.go").read_text()
    table = message[0].lower() + message[1:]
    found = re.search(rf"^var {table}Decoder = \[\]decoder\{{\n(.*?)^\}}", source, re.MULTILINE | re.DOTALL)
    assert found
    entries = re.split(r"^\tfunc\(", found[1], flags=re.MULTILINE)[1:]
    fields = Profile.DESCRIPTOR.file.message_types_by_name[message].fields_by_number
    assert sorted(fields) == list(range(1, len(entries) + 1))
    for number, entry in enumerate(entries, 1):
        field = fields[number]
        decoders = set(re.findall(r"decode\w+", entry))
        if decoders == {"decodeMessage"}:
            assert field.type == FieldDescriptor.TYPE_MESSAGE
            assert field.is_repeated == ("append(" in entry)
        else:
            assert [(field.type, field.is_repeated)] == [GO_KINDS[decoder] for decoder in decoders]


def test_all_messages_of_the_schema_are_compared() -> None:
    assert sorted(Profile.DESCRIPTOR.file.message_types_by_name) == sorted(MESSAGES)


def test_go_reads_and_writes_every_field(oracle: Oracle) -> None:
    strings = (
        b" samples count key text size bytes /bin/a 5eed main.f _main.f /src/a.go drop keep cpu ns note doc"
    )
    table = strings.split(b" ")
    index = table.index
    profile = Profile(
        string_table=table, time_nanos=-1, duration_nanos=2, period=-3, comment=[index(b"note")]
    )
    profile.sample_type.add(type=index(b"samples"), unit=index(b"count"))
    sample = profile.sample.add(location_id=[(1 << 64) - 1], value=[-5])
    sample.label.add(key=index(b"key"), str=index(b"text"))
    sample.label.add(key=index(b"size"), num=-7, num_unit=index(b"bytes"))
    profile.mapping.add(
        id=7,
        memory_start=(1 << 64) - 2,
        memory_limit=(1 << 64) - 1,
        file_offset=3,
        filename=index(b"/bin/a"),
        build_id=index(b"5eed"),
        has_functions=True,
        has_filenames=True,
        has_line_numbers=True,
        has_inline_frames=True,
    )
    location = profile.location.add(id=(1 << 64) - 1, mapping_id=7, address=1 << 63, is_folded=True)
    location.line.add(function_id=9, line=-11, column=12)
    profile.function.add(
        id=9,
        name=index(b"main.f"),
        system_name=index(b"_main.f"),
        filename=index(b"/src/a.go"),
        start_line=-13,
    )
    profile.drop_frames, profile.keep_frames = index(b"drop"), index(b"keep")
    profile.period_type.type, profile.period_type.unit = index(b"cpu"), index(b"ns")
    profile.default_sample_type, profile.doc_url = index(b"samples"), index(b"doc")

    assert unset(profile) == set()
    assert Profile.FromString(oracle.rewrite(profile.SerializeToString())) == profile


def unset(message: Message) -> set[str]:
    """The fields that are set in no message of their type."""
    every: set[str] = set()
    some: set[str] = set()

    def visit(message: Message) -> None:
        every.update(field.full_name for field in message.DESCRIPTOR.fields)
        for field, value in message.ListFields():
            some.add(field.full_name)
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                for entry in value if field.is_repeated else [value]:
                    visit(entry)

    visit(message)
    return every - some
