"""Every malformed input raises MalformedProfile, which says what is wrong and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pprof_merge import MalformedProfile, decode

from tests.merge.malformed import GZIPPED, MALFORMED, WHOLE, Malformed

if TYPE_CHECKING:
    from tests.oracle.oracle import Oracle


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case.name)
def test_the_error_says_what_is_wrong(case: Malformed) -> None:
    with pytest.raises(MalformedProfile) as refused:
        decode(case.profile)
    message = str(refused.value).lower()
    assert message
    assert [word for word in case.words if word not in message] == [], message


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case.name)
def test_go_refuses_it_too(case: Malformed, oracle: Oracle) -> None:
    assert oracle.refusal(case.profile)


@pytest.mark.parametrize("profile", [WHOLE, GZIPPED, GZIPPED[:0] + GZIPPED], ids=["bare", "gzip", "again"])
def test_without_a_flaw_the_profile_is_accepted(profile: bytes) -> None:
    assert len(decode(profile).samples) == 1
