"""A full disk at operations of a request, in turn: the server stays up and loses nothing.

Each operation that needs space fails, and so do all later ones until the request is answered. A write fails
in two ways: at once, and after half of it, which only a caller that checks the number of bytes notices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

import httpx
import pytest

from tests.faults.killer import Mode
from tests.faults.lane import KillableZygote, Lane, counted, profile_named, submitted
from tests.faults.sample import Sample
from tests.faults.stacks import tally
from tests.server import Server


@pytest.fixture
def lane(tmp_path: Path, killable: KillableZygote) -> Iterator[Lane]:
    with Lane(tmp_path / "lane", killable) as lane:
        yield lane


# A write that is cut short is tried with submits; each way of writing, with the rest.
MODES = [Mode.FULL, pytest.param(Mode.SHORT, marks=pytest.mark.exhaustive)]


def profiles() -> Iterator[str]:
    return (chr(letter) for letter in count(ord("a")))


def is_a_problem(answer: httpx.Response) -> bool:
    return answer.status_code == 500 and answer.headers["Content-Type"] == "application/problem+json"


def check_after_a_restart(lane: Lane, stored: Counter[str]) -> None:
    assert counted(lane.start()) == stored
    assert lane.server.combine().status_code == 200
    assert counted(lane.server) == stored
    assert len(lane.server.blobs()) == 1
    lane.server.kill()
    lane.server.reindex()
    assert counted(lane.start()) == stored


@pytest.mark.parametrize("mode", [Mode.FULL, Mode.SHORT])
def test_submits(lane: Lane, mode: Mode, sample: Sample) -> None:
    server = lane.start()
    stored: Counter[str] = Counter()
    refused = 0
    for target, name in zip(sample.targets(), profiles(), strict=False):
        lane.killer.arm(mode, target)
        answer = server.submit(profile_named(name))
        lane.killer.disarm()
        operations = lane.killer.operations
        at = operations[target - 1 : target]
        done = answer.status_code == 204
        assert done or is_a_problem(answer), (at, answer.text)
        refused += not done
        if stored or done:
            assert counted(server) in [stored + Counter(name)] + [stored] * (not done), at
        submitted(server, name)
        stored += Counter(name)
        assert counted(server) == stored, at
        assert not list((lane.data / "incoming").iterdir()), at
        if len(operations) < target:
            break
    assert done
    assert refused > (target / 2 if sample.is_all else 0)
    check_after_a_restart(lane, stored)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("send", [Server.merge, Server.combine])
def test_merges(lane: Lane, mode: Mode, send: Callable[[Server], httpx.Response], sample: Sample) -> None:
    server = lane.start()
    stored: Counter[str] = Counter()
    refused = 0
    names = profiles()
    for target in sample.targets():
        new = [next(names) for _ in "123"]
        stored.update(new)
        submitted(server, *new[:2])
        lane.killer.arm(mode, target)
        answer = send(server)
        lane.killer.disarm()
        operations = lane.killer.operations
        at = operations[target - 1 : target]
        done = answer.status_code == 200
        assert done or is_a_problem(answer), (at, answer.text)
        refused += not done
        submitted(server, new[2])
        assert counted(server) == stored, at
        assert server.combine().status_code == 200, at
        assert counted(server) == stored, at
        assert not list((lane.data / "incoming").iterdir()), at
        if len(operations) < target:
            break
    assert done
    assert refused or not sample.is_all  # a merge that isn't combined writes little
    check_after_a_restart(lane, stored)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_releases(tmp_path: Path, killable: KillableZygote, mode: Mode, method: str, sample: Sample) -> None:
    """Pipelines get the last release while there is no space for the next, whose request gets an error."""
    settings = {"PGOF_RELEASE_CHECK_SECONDS": "0", "PGOF_RELEASE_DAYS": "0", "PGOF_RELEASES_KEPT": "3"}
    with Lane(tmp_path / "lane", killable, settings) as lane:
        server = lane.start()
        submitted(server, "a")
        last, stored = server.release(), Counter("a")
        stayed = 0
        for target, name in zip(sample.targets(), islice(profiles(), 1, None), strict=False):
            submitted(server, name)
            stored += Counter(name)
            before = server.releases().json()
            lane.killer.arm(mode, target)
            answer = server.release() if method == "GET" else server.releases(method="POST")
            lane.killer.disarm()
            operations = lane.killer.operations
            at = operations[target - 1 : target]
            if method == "GET":
                assert answer.status_code == 200, (at, answer.text)
                assert tally(answer.content) in (stored, tally(last.content)), at
                stayed += answer.content == last.content
            else:
                assert answer.status_code == 201 or is_a_problem(answer), (at, answer.text)
                if answer.status_code == 500:
                    assert server.releases().json() == before, at
                    stayed += 1
            last = server.release()
            assert tally(last.content) == stored, at
            assert server.releases(method="POST").status_code == 200, at
            assert len(server.releases().json()["releases"]) <= 3, at
            assert not list((lane.data / "incoming").iterdir()), at
            if len(operations) < target:
                break
        assert stayed > (target / 2 if sample.is_all else 0)
        server.restart()
        assert not server.events("release damaged")
        assert server.release().content == last.content
