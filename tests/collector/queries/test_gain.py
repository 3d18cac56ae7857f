"""The gain in a report, and on pages, agrees with what `/v1/merge` answers in the compilers' formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pprof_merge import compress, decode
from pprof_proto.profile_pb2 import Profile

from tests.collector.conftest import PROFILES
from tests.collector.visitor import Visitor
from tests.merge.stacked import heap_of, stacked
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

Made = Callable[[], bytes]


def edited(stack: str, *, start_lines: bool, addresses: bool, lines: bool = True) -> bytes:
    """Return 5,000 CPU samples of a stack, of a program with a build id."""
    message = Profile.FromString(stacked({stack: 5000}))
    message.string_table.append(b"abcdef0123")
    message.mapping[0].build_id = len(message.string_table) - 1
    for function in message.function:
        function.start_line = function.start_line if start_lines else 0
    for location in message.location:
        location.address = location.address if addresses else 0
        if not lines:
            del location.line[:]
    return message.SerializeToString()


PYTHON = edited("<module>;handle;render", start_lines=False, addresses=False)
BEFORE_GO_1_20 = edited("runtime.goexit;runtime.main;main.main;main.run", start_lines=False, addresses=True)
ADDRESSES = edited("main;work", start_lines=False, addresses=True, lines=False)
NATIVE = edited("main;work", start_lines=True, addresses=True)
NO_CALLS = edited("runtime.main", start_lines=True, addresses=True)
GO = (PROFILES / "apisvc-v1-s1-002.pb.gz").read_bytes()


def merged(server: Server, service: str, type_: str, format_: str) -> bytes | None:
    """Return the merge in a format; None if it is refused, or a profile of no calls."""
    query = {"service": service, "type": type_, "format": format_}
    answer = server.client.get("/v1/merge", params=query, headers=bearer(server.merge_key))
    assert answer.status_code in {200, 422}, answer.text
    if answer.status_code == 422 or (format_ == "go" and not len(decode(answer.content).samples)):
        return None
    return answer.content


def gain(server: Server, service: str, type_: str = "cpu") -> dict[str, Any]:
    query = {"service": service, "type": type_}
    answer = server.client.get("/v1/report", params=query, headers=bearer(server.merge_key))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["gain"]
    return found


@pytest.mark.parametrize(
    ("service", "profile", "taken"),
    [
        ("python", PYTHON, ()),
        ("before-go-1-20", BEFORE_GO_1_20, ()),
        ("addresses", ADDRESSES, ()),
        ("native", NATIVE, ("go", "llvm")),
        ("no-calls", NO_CALLS, ("llvm",)),
        ("go", GO, ("go", "llvm")),
        ("heap", heap_of({"main.main;main.keep": (1, 8, 1, 8)}), ()),
    ],
)
def test_a_verdict_is_none_where_the_merge_is_refused_or_empty(
    shared: Server, service: str, profile: bytes, taken: tuple[str, ...]
) -> None:
    type_ = "heap" if service == "heap" else "cpu"
    query = {"service": service, "type": type_}
    assert shared.submit(compress(profile), query=query).status_code == 204
    found = gain(shared, service, type_)
    assert tuple(name for name in ("go", "llvm") if merged(shared, service, type_, name)) == taken
    assert tuple(name for name, each in found["formats"].items() if each["verdict"] != "none") == taken
    assert (found["verdict"] == "none", found["compiler"] is None) == (not taken, not taken)
    page = Visitor(shared).page(f"/ui/services/{service}/build", type=type_)
    mark = "." if taken else ":"
    assert f"Gain expected: {found['verdict']}{mark} {found['reason']}" in page.text
    if type_ == "cpu":
        query = {"service": service}
        released = shared.client.post("/v1/releases", params=query, headers=bearer(shared.merge_key))
        assert released.json()["report"]["gain"] == found


def test_the_gain_is_that_of_builds_by_the_rules(stopped: Server) -> None:
    folder = stopped.home / "rules"
    folder.mkdir()
    stopped.environment["PGOF_RULES_DIR"] = str(folder)
    stopped.start()
    for service in ("kept", "dropped"):
        stopped.submit(compress(NATIVE), query={"service": service}).raise_for_status()
    (folder / "dropped.rules").write_text("drop main\ndrop work\n")
    assert gain(stopped, "kept")["verdict"] == "enough"
    assert gain(stopped, "dropped")["verdict"] == "none"
    assert not any(merged(stopped, "dropped", "cpu", each) for each in ("go", "llvm"))
