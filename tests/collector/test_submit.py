from __future__ import annotations

from tests.faults.stacks import profile_of, tally
from tests.server import Server


def test_submitted_profiles_are_in_the_merge(server: Server) -> None:
    for name in ("a", "b"):
        answer = server.submit(profile_of(name))
        assert (answer.status_code, answer.content) == (204, b"")
    assert tally(server.merge().content) == {"a": 1, "b": 1}
