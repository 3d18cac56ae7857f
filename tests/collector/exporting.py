"""OTLP as its senders export profiles: requests made from the schema, in the wire of 1.10 or of 1.9."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pgo_collector.routes.otlp.export_pb2 import (
    DESCRIPTOR,
    ExportRequest,
    ExportResponse,
    KeyValue,
    Profile,
    Status,
)

from tests.faults.stacks import EPOCH, SECOND
from tests.server import Server, bearer

EXPORT = "/v1development/profiles"
PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
# 20 samples a second, as the eBPF profiler takes them.
PERIOD = 50_000_000

# A frame: the function, its file and the line.
Frame = tuple[str, str, int]
Attributes = Mapping[str, str | int | bool]


_BEFORE = "attribute_indices_before"


def _request_of_1_9() -> type[Any]:
    """Return the class of requests whose samples have their attributes where they have a link since 1.10."""
    file = FileDescriptorProto()
    DESCRIPTOR.CopyToProto(file)
    (sample,) = (each for each in file.message_type if each.name == "Sample")
    (field,) = (each for each in sample.field if each.name == "link_index")
    field.name = field.json_name = _BEFORE
    field.label = field.LABEL_REPEATED
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(ExportRequest.DESCRIPTOR.full_name))


_OF_1_9 = _request_of_1_9()


class Export:
    """A request that is being made. `before` is for the wire of 1.9."""

    def __init__(self, *, before: bool = False) -> None:
        self.request: ExportRequest = _OF_1_9() if before else ExportRequest()
        self._before = before
        self._indexes: dict[Any, int] = {}
        tables = self.request.dictionary
        for table in ("mapping", "location", "function", "attribute", "stack"):
            getattr(tables, f"{table}_table").add()
        tables.string_table.append("")

    def resource(self, attributes: Attributes, **scope: str) -> None:
        """Begin a resource, and in it a scope with attributes."""
        resource = self.request.resource_profiles.add()
        for key, value in attributes.items():
            set_value(resource.resource.attributes.add(key=key), value)
        of_scope = resource.scope_profiles.add()
        of_scope.scope.name = "profiler"
        for key, value in scope.items():
            set_value(of_scope.scope.attributes.add(key=key), value)

    def profile(
        self,
        measured: tuple[str, str] = ("samples", "count"),
        period: tuple[str, str, int] = ("cpu", "nanoseconds", PERIOD),
        attributes: Attributes | None = None,
    ) -> Profile:
        """Begin a profile in the last scope."""
        made = self.request.resource_profiles[-1].scope_profiles[-1].profiles.add()
        made.time_unix_nano, made.duration_nano, made.period = EPOCH, 5 * SECOND, period[2]
        made.sample_type.type_strindex, made.sample_type.unit_strindex = map(self.string, measured)
        made.period_type.type_strindex, made.period_type.unit_strindex = map(self.string, period[:2])
        made.attribute_indices.extend(self.attributes(attributes or {}))
        return made

    def sample(
        self,
        stack: Iterable[Frame],
        timestamps: int = 0,
        values: Iterable[int] = (),
        mapping: int = 0,
        *,
        attributes: Attributes | None = None,
        addresses: Mapping[str, int] | None = None,
    ) -> None:
        """Add a sample to the last profile; the leaf of its stack comes first.

        Functions may have addresses by name.
        """
        sample = self.request.resource_profiles[-1].scope_profiles[-1].profiles[-1].samples.add()
        sample.stack_index = self.stack(
            tuple(self.location(frame, mapping, (addresses or {}).get(frame[0])) for frame in stack)
        )
        sample.timestamps_unix_nano.extend(EPOCH + each for each in range(timestamps))
        indexes = self.attributes(attributes or {})
        if self._before:
            sample.attribute_indices.extend(values)
            getattr(sample, _BEFORE).extend(indexes)
        else:
            sample.values.extend(values)
            sample.attribute_indices.extend(indexes)

    def string(self, text: str) -> int:
        """Return the index of a string."""
        if not text:
            return 0
        if ("string", text) not in self._indexes:
            self._indexes["string", text] = len(self.request.dictionary.string_table)
            self.request.dictionary.string_table.append(text)
        return self._indexes["string", text]

    def attributes(self, attributes: Attributes) -> list[int]:
        """Return the indexes of attributes."""
        table, indexes = self.request.dictionary.attribute_table, []
        for pair in attributes.items():
            if ("attribute", pair) not in self._indexes:
                self._indexes["attribute", pair] = len(table)
                set_value(table.add(key_strindex=self.string(pair[0])), pair[1])
            indexes.append(self._indexes["attribute", pair])
        return indexes

    def mapping(self, filename: str, build_id: str) -> int:
        """Return the index of a new mapping with a GNU build id."""
        table = self.request.dictionary.mapping_table
        attributes = {"process.executable.build_id.gnu": build_id}
        table.add(
            memory_start=0x400000,
            memory_limit=0x500000,
            filename_strindex=self.string(filename),
            attribute_indices=self.attributes(attributes),
        )
        return len(table) - 1

    def location(self, frame: Frame, mapping: int, address: int | None = None) -> int:
        """Return the index of a location with one line, at an address or at one of its own."""
        known = self._indexes.get(("location", frame, mapping))
        if known is None:
            address = address or 0x401000 + len(self.request.dictionary.location_table)
            known = self._indexes["location", frame, mapping] = self.inlined([frame], mapping, address)
        return known

    def inlined(self, frames: Iterable[Frame], mapping: int, address: int) -> int:
        """Return the index of a new location with several lines, the innermost call first."""
        tables = self.request.dictionary
        added = tables.location_table.add(mapping_index=mapping, address=address)
        for name, filename, line in frames:
            function = self._row("function", (name, filename), len(tables.function_table))
            if function == len(tables.function_table):
                texts = self.string(name), self.string(filename)
                tables.function_table.add(name_strindex=texts[0], filename_strindex=texts[1])
            added.lines.add(function_index=function, line=line)
        return len(tables.location_table) - 1

    def stack_sample(self, locations: Iterable[int], timestamps: int) -> None:
        """Add a sample of a stack of locations, given by index, to the last profile."""
        sample = self.request.resource_profiles[-1].scope_profiles[-1].profiles[-1].samples.add()
        sample.stack_index = self.stack(tuple(locations))
        sample.timestamps_unix_nano.extend(EPOCH + each for each in range(timestamps))

    def stack(self, locations: tuple[int, ...]) -> int:
        """Return the index of a stack."""
        table = self.request.dictionary.stack_table
        index = self._row("stack", locations, len(table))
        if index == len(table):
            table.add(location_indices=locations)
        return index

    def _row(self, table: str, key: object, length: int) -> int:
        return self._indexes.setdefault((table, key), length)

    @property
    def body(self) -> bytes:
        """The message as protobuf."""
        return self.request.SerializeToString()


def set_value(pair: KeyValue | Any, value: str | bool | int) -> None:
    """Set the value of an attribute."""
    if isinstance(value, str):
        pair.value.string_value = value
    elif isinstance(value, bool):
        pair.value.bool_value = value
    else:
        pair.value.int_value = value


def of_stack(name: str, service: str, count: int = 1, *, before: bool = False, **labels: str) -> bytes:
    """Return a request with one CPU profile, of `count` samples in the function `name`."""
    export = Export(before=before)
    export.resource({"service.name": service, **{key.replace("_", "."): labels[key] for key in labels}})
    export.profile()
    export.sample([(name, "/src/main.c", 7)], timestamps=count)
    return export.body


def export(server: Server, body: bytes, key: str = Server.submit_key, **headers: str) -> httpx.Response:
    """Send a request, as protobuf unless a header says otherwise. Header names may have underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.client.post(EXPORT, content=body, headers=PROTOBUF | bearer(key) | named)


def assert_exported(answer: httpx.Response) -> None:
    """Check that an answer says that all is stored, in the content type of the request."""
    assert (answer.status_code, answer.content) == (200, b""), (answer.status_code, answer.content)
    assert answer.headers["Content-Type"] == answer.request.headers["Content-Type"]


def refused(answer: httpx.Response, status: int, code: int) -> str:
    """Check that an answer is an error of OTLP, and return its message."""
    assert answer.status_code == status, answer.content
    assert answer.headers["Content-Type"] == "application/x-protobuf"
    error = Status.FromString(answer.content)
    assert error.code == code
    return error.message


def rejected(answer: httpx.Response) -> tuple[int, str]:
    """Return how many profiles a partial success rejects, and why."""
    assert answer.status_code == 200, answer.content
    partial = ExportResponse.FromString(answer.content).partial_success
    return partial.rejected_profiles, partial.error_message


def as_json(request: ExportRequest) -> bytes:
    """Return a request of 1.10 as JSON."""
    return json.dumps(json_format.MessageToDict(request)).encode()


def speaks_grpc(home: Path, settings: Mapping[str, str] | None = None) -> Server:
    """Return a collector that listens for gRPC, too; it isn't running."""
    return Server(home, {"PGOF_GRPC_ADDRESS": "127.0.0.1:0", **(settings or {})})
