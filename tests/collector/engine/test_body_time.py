"""CPU time for bodies: one that uses its time up is refused, once, and nobody else is."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import process_time

import pytest
from pgo_collector.engine.pushes import (
    Placed,
    PlacedProfile,
    PushBody,
    PushedProfile,
    Unpacked,
    validate_pushes,
)
from pgo_collector.engine.validation import BODY_TIME
from pgo_collector.errors import BodyTooCostly
from pgo_collector.model.series import Series
from pgo_collector.submits.submits import SubmitBatcher
from pgo_collector.workers.pool import Workers
from pprof_merge import Header, Limits
from pprof_proto.profile_pb2 import Profile

from tests.collector.bounds import BOUNDS
from tests.collector.datadog import UPLOAD, event
from tests.collector.exporting import EXPORT, Export
from tests.collector.pushing import JSON, PROTOBUF, PUSH, as_json, form, push_request
from tests.collector.routes.test_parca import WRITE_RAW, request_of
from tests.faults.stacks import profile_of
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store


def _place(header: Header, has_start_lines: bool) -> Series:
    del header, has_start_lines
    return Series("a", "cpu")


def _quick(content: bytes, limits: Limits) -> Sequence[Unpacked]:
    del limits
    return [PushedProfile(content, _place)]


def _endless(tried: Path, content: bytes, limits: Limits) -> Sequence[Unpacked]:
    """Work for good, and take any Exception for one of the body; note each attempt."""
    del content, limits
    with tried.open("a") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        with suppress(Exception):
            sum(range(1000))


def _elsewhere(content: bytes, limits: Limits) -> Sequence[Unpacked]:
    """Work for longer than a body may, on something that isn't the body's."""
    with BODY_TIME.suspended():
        end = process_time() + 1
        while process_time() < end:
            sum(range(1000))
    return _quick(content, limits)


def _elsewhere_and_endless(tried: Path, content: bytes, limits: Limits) -> Sequence[Unpacked]:
    _elsewhere(content, limits)
    return _endless(tried, content, limits)


def _stubborn(tried: Path, content: bytes, limits: Limits) -> Sequence[Unpacked]:
    """Lose the first exception, whatever it is."""
    try:
        return _endless(tried, content, limits)
    except BaseException:  # noqa: BLE001 - as a finalizer does
        return _endless(tried, content, limits)


def _validated(folder: Path, bodies: Sequence[PushBody]) -> list[list[Placed] | BaseException]:
    """Validate pushes with one worker, whose bodies have 0.3 s; return the outcomes."""

    async def run() -> list[list[Placed] | BaseException]:
        async with Workers(1, BOUNDS._replace(body_seconds=0.3), folder) as workers:
            batcher = SubmitBatcher(workers, Limits(), validate_pushes)
            outcomes = await asyncio.gather(*map(batcher.validate, bodies), return_exceptions=True)
            assert not workers.replaced.total()
            return outcomes

    return asyncio.run(run())


@pytest.mark.parametrize("costly", [_endless, _stubborn])
def test_a_costly_body_is_refused_once_and_those_beside_it_are_not(
    costly: Callable[[Path, bytes, Limits], Sequence[Unpacked]], tmp_path: Path
) -> None:
    tried, quick = tmp_path / "tried", PushBody(profile_of("a"), _quick)
    endless = PushBody(b"a", partial(costly, tried))
    *before, refused, after = _validated(tmp_path, [quick, quick, endless, quick])
    assert isinstance(refused, BodyTooCostly)
    assert "PGOF_BODY_CPU_SECONDS" in str(refused)
    for outcome in (*before, after):
        assert isinstance(outcome, list)
        assert [type(placed) for placed in outcome] == [PlacedProfile]
    attempts = tried.read_text().split()
    assert len(attempts) == (1 if costly is _endless else 2)
    assert len(set(attempts)) == 1


def test_a_large_body_has_time_for_its_size(tmp_path: Path) -> None:
    """One of 1.5 MiB ends, in memory or in a file, after half as much time again."""
    part = tmp_path / "1.part"
    part.write_bytes(bytes(3 << 19))
    outcomes = _validated(tmp_path, [PushBody(part, partial(_endless, tmp_path / "tried"))])
    assert "than 0.45 seconds" in str(outcomes[0]) or "than 4.5 seconds" in str(outcomes[0])


def test_what_is_not_the_bodys_takes_none_of_its_time(tmp_path: Path) -> None:
    bodies = [
        PushBody(profile_of("a"), _elsewhere),
        PushBody(b"a", partial(_elsewhere_and_endless, tmp_path / "tried")),
    ]
    (taken, refused) = _validated(tmp_path, bodies)
    assert isinstance(taken, list)
    assert [type(placed) for placed in taken] == [PlacedProfile]
    assert isinstance(refused, BodyTooCostly)


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A collector whose bodies have a microsecond for each MiB."""
    with Server(tmp_path_factory.mktemp("hurried"), {"PGOF_BODY_CPU_SECONDS": "0.000001"}) as server:
        yield server


@pytest.fixture(scope="module")
def slow_profile() -> bytes:
    """A profile that takes tens of milliseconds to read, since the kernel counts CPU time by the tick."""
    profile = gzip.decompress(profile_of("a"))
    sample = Profile.FromString(profile).sample[0].SerializeToString()
    return gzip.compress(profile + 400_000 * (b"\x12" + len(sample).to_bytes(1) + sample), 1)


def _sends(slow: bytes) -> dict[str, tuple[int, str, bytes, dict[str, str]]]:
    """Return a request of each route that takes bodies of senders: status, path, body, and headers."""
    labels = {"__name__": "process_cpu", "service_name": "a"}
    pushed = push_request((labels, [slow]))
    exported = Export()
    exported.resource({"service.name": "a"})
    original = exported.profile()
    original.original_payload_format, original.original_payload = "pprof", slow
    ingested, form_type = form(profile=slow)
    uploaded, upload_type = form(**{"event": event("a"), "cpu.pprof": slow})
    return {
        "submit": (422, "/v1/submit?service=a", slow, {}),
        "symbols": (422, "/v1/symbols?service=a", slow, {}),
        "profefe": (422, "/api/0/profiles?service=a&type=cpu", slow, {}),
        "push": (400, PUSH, pushed.SerializeToString(), PROTOBUF),
        "push, json": (400, PUSH, as_json(pushed), JSON),
        "ingest": (422, "/ingest?name=a", ingested, {"Content-Type": form_type}),
        "write raw": (400, WRITE_RAW, request_of((labels, [slow])), PROTOBUF),
        "otlp": (400, EXPORT, exported.body, {"Content-Type": "application/x-protobuf"}),
        "datadog": (422, UPLOAD, uploaded, {"Content-Type": upload_type, "DD-API-KEY": Server.submit_key}),
    }


@pytest.mark.parametrize("name", _sends(b""))
def test_each_protocol_says_it_in_its_own_words(name: str, hurried: Server, slow_profile: bytes) -> None:
    status, path, body, headers = _sends(slow_profile)[name]
    answer = hurried.client.post(path, content=body, headers=bearer(Server.submit_key) | headers)
    assert (answer.status_code, b"PGOF_BODY_CPU_SECONDS" in answer.content) == (status, True), answer.text
    assert "Retry-After" not in answer.headers
