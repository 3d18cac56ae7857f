from __future__ import annotations

import gzip

from tests.faults.stacks import profile_of, tally
from tests.server import Server


def test_a_folder_that_pgo_fleet_filled_is_taken_in(stopped: Server, go_profiles: list[bytes]) -> None:
    stopped.data.mkdir(0)
    files = {
        "6f1c.pgo": profile_of("a"),
        "bare.pgo": gzip.decompress(profile_of("b")),
        "merged_1693000000.pgo": profile_of("c"),
        "same as 6f1c.pgo": profile_of("a"),
        "real.pgo": go_profiles[0],
        "swapped.pgo": profile_of("d", swapped=True),
    }
    bad = {
        "text.pgo": b"hello",
        "truncated.pgo": profile_of("e")[:-20],
        "heap.pgo": profile_of("f", type_="inuse"),
        "empty.pgo": b"",
    }
    for name, content in (files | bad).items():
        (stopped.data / name).write_bytes(content)
    (stopped.data / "folder.pgo").mkdir()
    stopped.start()
    assert {path.name for path in stopped.data.glob("*.pgo")} == {*bad, "folder.pgo"}
    assert len(stopped.blobs()) == len(files) - 1
    warned = {line["file"]: line["reason"] for line in stopped.events("pgo-fleet file skipped")}
    assert set(warned) == {str(stopped.data / name) for name in bad}
    assert all(warned.values())
    names = stopped.merge().content
    assert all(stack in gzip.decompress(names) for stack in (b"a", b"b", b"c", b"d", b"runtime.mallocgc"))


def test_taken_in_profiles_count_once_whatever_ends_the_start(stopped: Server) -> None:
    stopped.data.mkdir()
    for name in ("a", "b"):
        (stopped.data / f"{name}.pgo").write_bytes(profile_of(name))
    stopped.start()
    (stopped.data / "a.pgo").write_bytes(profile_of("a"))  # as if killed before it was removed
    stopped.restart()
    assert stopped.submit(profile_of("b")).status_code == 204
    assert tally(stopped.merge().content) == {"a": 1, "b": 1}
    assert not list(stopped.data.glob("*.pgo"))
