"""The snapshots that a real Go program gives are shown as what it held, and what it counted meanwhile."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pprof_merge import decode

from tests.interop.go_toolchain import go
from tests.interop.test_scrape import serving
from tests.server import Server

pytestmark = pytest.mark.exhaustive  # each kind is in tests/collector/queries, with made-up profiles
STATES = {"heap": "inuse_space", "goroutine": "goroutine", "threadcreate": "threadcreate"}
COUNTS = {"heap": "alloc_space", "allocs": "alloc_objects", "block": "delay", "mutex": "contentions"}
_SNAPSHOTS, _PAUSE = 4, 0.3


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "served"
    go("build", "-o", path, ".", program="served")
    return path


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("shop")) as server:
        yield server


def taken(address: str, number: int, *types: str) -> dict[str, list[bytes]]:
    """Return snapshots of each type, in the order of time."""
    found: dict[str, list[bytes]] = {type_: [] for type_ in types}
    for _ in range(number):
        time.sleep(_PAUSE)
        for type_, profiles in found.items():
            answer = httpx.get(f"http://{address}/debug/pprof/{type_}", timeout=60)
            assert answer.status_code == 200
            profiles.append(answer.content)
    return found


def send(server: Server, type_: str, profiles: list[bytes], **query: str) -> None:
    for profile in profiles:
        assert server.submit(profile, query={"type": type_, **query}).status_code == 204


def total(profile: bytes, sample_type: str) -> int:
    parsed = decode(profile)
    names = [each.type.decode() for each in parsed.header.sample_types]
    return int(parsed.samples.values[:, names.index(sample_type)].sum())


def top(server: Server, type_: str, sample_type: str, **query: str) -> dict[str, Any]:
    asked = server.ask("/v1/top", type_=type_, sample_type=sample_type, n="1000", **query)
    assert asked.status_code == 200, asked.text
    found: dict[str, Any] = asked.json()
    return found


def flat_of_go(sample_type: str, *arguments: str | Path) -> dict[str, int]:
    """Return the flat values that `go tool pprof` shows of functions."""
    listed = go(
        "tool", "pprof", "-top", "-nodefraction=0", "-nodecount=1000", "-symbolize=none", "-unit=B",
        f"-sample_index={sample_type}", *arguments,
    )  # fmt: skip
    rows = re.findall(
        r"^\s*(-?\d+)B?\s.*%\s+(\S.*?)(?: \(inline\))?$", listed.partition("flat%")[2], re.MULTILINE
    )
    return {name: int(value) for value, name in rows if int(value)}


def test_what_a_program_holds_and_counts(shop: Server, built: Path, tmp_path: Path) -> None:
    with serving(built) as address:
        found = taken(address, _SNAPSHOTS, *{**STATES, **COUNTS})
        again = taken(address, 2, "mutex")["mutex"]
        waits = httpx.get(f"http://{address}/debug/pprof/allocs?seconds=1", timeout=60).content
    for type_, profiles in found.items():
        send(shop, type_, profiles, service="shop", labels="instance=a")
    for type_, sample_type in STATES.items():
        held = [total(profile, sample_type) for profile in found[type_]]
        shown = top(shop, type_, sample_type, service="shop")
        assert abs(shown["total"] - sum(held) / len(held)) <= 0.5, type_
        assert (shown["basis"]["kind"], shown["basis"]["snapshots"]) == ("state", _SNAPSHOTS)
    for type_, sample_type in COUNTS.items():
        first, *_, last = found[type_]
        shown = top(shop, type_, sample_type, service="shop")
        assert shown["total"] == total(last, sample_type) - total(first, sample_type), type_
        assert (shown["basis"]["kind"], shown["basis"]["restarts"]) == ("cumulative", 0)
    # Function by function it is the difference that Go makes.
    for name, profile in (("first", found["heap"][0]), ("last", found["heap"][-1])):
        (tmp_path / name).write_bytes(profile)
    of_go = flat_of_go("alloc_space", "-diff_base", tmp_path / "first", tmp_path / "last")
    shown = top(shop, "heap", "alloc_space", service="shop")
    assert {row["name"]: row["flat"] for row in shown["rows"] if row["flat"]} == of_go
    assert of_go
    # A program that is started again counts from 0.
    with serving(built) as address:
        later = taken(address, 2, "mutex")["mutex"]
    send(shop, "mutex", [*again, *later], service="again", labels="instance=a")
    shown = top(shop, "mutex", "contentions", service="again")
    before = total(again[1], "contentions") - total(again[0], "contentions")
    assert (shown["total"], shown["basis"]["restarts"]) == (before + total(later[-1], "contentions"), 1)
    # Of a difference that Go has made, all counts.
    send(shop, "allocs", [waits], service="seconds")
    shown = top(shop, "allocs", "alloc_space", service="seconds")
    assert (shown["total"], shown["basis"]["kind"]) == (total(waits, "alloc_space"), "amount")
