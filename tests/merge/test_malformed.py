"""Every malformed input is one MalformedProfile that says what is wrong, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pprof_merge import MalformedProfile, decode

from tests.merge.malformed import GZIPPED, MALFORMED, WHOLE, Malformed

if TYPE_CHECKING:
    from tests.oracle.oracle import Oracle


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case.name)
def test_it_is_refused_in_words(case: Malformed) -> None:
    with pytest.raises(MalformedProfile) as refused:
        decode(case.profile)
    message = str(refused.value).lower()
    assert message
    assert [word for word in case.words if word not in message] == [], message


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case.name)
def test_go_refuses_it_too(case: Malformed, oracle: Oracle) -> None:
    assert oracle.refusal(case.profile)


@pytest.mark.parametrize("profile", [WHOLE, GZIPPED, GZIPPED[:0] + GZIPPED], ids=["bare", "gzip", "again"])
def test_without_its_flaw_it_is_taken(profile: bytes) -> None:
    assert len(decode(profile).samples) == 1
