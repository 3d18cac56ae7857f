"""Export profiles with the classes of opentelemetry-proto.

Arguments: the folder with them, the service, the key, http or grpc, and the address.
"""

from __future__ import annotations

import sys
import urllib.request
from typing import Any

folder, service, key, protocol, address = sys.argv[1:]
sys.path.insert(0, folder)

from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as export  # noqa: E402
from opentelemetry.proto.profiles.v1development import profiles_pb2 as profiles  # noqa: E402

_SECOND = 10**9
_EPOCH = 1_700_000_000 * _SECOND
_TEXTS = [
    "",
    "samples",
    "count",
    "cpu",
    "nanoseconds",
    "of_thread",
    "main",
    "/src/main.c",
    "thread.id",
    "thread.name",
]


def request() -> export.ExportProfilesServiceRequest:
    """Return a request with three samples in main, of two threads, at 20 samples a second."""
    made = export.ExportProfilesServiceRequest()
    tables = made.dictionary
    tables.string_table.extend(_TEXTS)
    text = _TEXTS.index
    for table in (tables.mapping_table, tables.location_table, tables.function_table, tables.stack_table):
        table.add()
    tables.attribute_table.add()
    tables.function_table.add(name_strindex=text("main"), filename_strindex=text("/src/main.c"))
    tables.location_table.add(address=0x401000).lines.add(function_index=1, line=7)
    tables.stack_table.add(location_indices=[1])
    for thread in (7, 8):
        tables.attribute_table.add(key_strindex=text("thread.id")).value.int_value = thread
    tables.attribute_table.add(key_strindex=text("thread.name")).value.string_value = "worker"
    resource = made.resource_profiles.add()
    resource.resource.attributes.add(key="service.name").value.string_value = service
    profile = resource.scope_profiles.add().profiles.add(
        time_unix_nano=_EPOCH, duration_nano=5 * _SECOND, period=_SECOND // 20, profile_id=bytes(range(16))
    )
    profile.sample_type.type_strindex, profile.sample_type.unit_strindex = text("samples"), text("count")
    profile.period_type.type_strindex, profile.period_type.unit_strindex = text("cpu"), text("nanoseconds")
    for attribute, count in ((1, 1), (2, 2)):
        profile.samples.add(
            stack_index=1,
            attribute_indices=[attribute, 3],
            values=[1] * count,
            timestamps_unix_nano=[_EPOCH + each for each in range(count)],
        )
    return made


if protocol == "http":
    asked = urllib.request.Request(  # noqa: S310 - the test's own server
        f"{address}/v1development/profiles",
        request().SerializeToString(),
        {"Content-Type": "application/x-protobuf", "Authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(asked) as answer:  # noqa: S310 - the same
        response = export.ExportProfilesServiceResponse.FromString(answer.read())
else:
    import grpc
    from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2_grpc as stubs

    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)], grpc.Compression.Gzip) as channel:
        stub: Any = stubs.ProfilesServiceStub
        response = stub(channel).Export(
            request(), metadata=[("authorization", f"Bearer {key}")], timeout=120, wait_for_ready=True
        )
sys.stdout.write(f"{profiles.__file__}\nrejected {response.partial_success.rejected_profiles}\n")
