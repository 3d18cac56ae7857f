"""Test what a profile says of how its stacks were found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pgo_agent.native import BY_CALL_FRAMES, BY_FRAME_POINTERS, Recording, Stack, native_profile

from tests.agent.serving import parsed

RECORDING = Recording.from_samples(1, 1, 1, [(Stack("a", 1, 1, ()), 300, 300), (Stack("b", 1, 2, ()), 9, 9)])


@pytest.mark.parametrize(
    ("followed", "cut_short", "said"),
    [
        (BY_CALL_FRAMES, 4, ["stacks: by call frame information; 4 of 309 (1.3 %) cut short"]),
        (BY_FRAME_POINTERS, None, ["stacks: by frame pointers"]),
        ("", None, []),
    ],
)
def test_a_profile_says_how_its_stacks_were_found(
    followed: str, cut_short: int | None, said: list[str]
) -> None:
    profile = parsed(native_profile(replace(RECORDING, followed=followed, cut_short=cut_short)))
    assert [profile.string_table[text].decode() for text in profile.comment] == said
