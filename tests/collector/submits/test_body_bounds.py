"""A body that is too large is refused with the names of the settings that bound it, in every protocol."""

from __future__ import annotations

import pytest

from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

PROTO = "application/proto"
ROUTES = {
    "/v1/submit": "application/octet-stream",
    "/api/0/profiles?service=s&type=cpu": "application/octet-stream",
    "/push.v1.PusherService/Push": PROTO,
    "/ingest?name=s&format=pprof": "application/octet-stream",
    "/v1development/profiles": "application/x-protobuf",
    "/profiling/v1/input": "multipart/form-data; boundary=x",
    "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw": PROTO,
    "/api/profile/s": "application/octet-stream",
}


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("route", ROUTES)
def test_the_refusal_names_the_settings(shared: Server, route: str, *, chunked: bool) -> None:
    content = iter([bytes(1 << 20)] * 9) if chunked else bytes(9 << 20)
    headers = bearer(shared.submit_key) | {"Content-Type": ROUTES[route]}
    answer = shared.client.post(route, content=content, headers=headers)
    assert answer.status_code in {400, 413}, answer.text
    assert "PGOF_MAX_INFLATED_BYTES or, if it is gzip, PGOF_MAX_COMPRESSED_BYTES" in answer.text
