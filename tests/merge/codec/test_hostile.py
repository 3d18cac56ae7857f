"""Inputs that are constructed to be expensive cost little; the limit that refuses each is named.

The tests take tens of seconds, most of them to make the inputs.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest
from pprof_merge import ENGINE, compress

from tests.merge.hostile import AS_LET_IN, GZIPPED, HOSTILE, IN_32_KB_OF_GZIP, bomb
from tests.merge.intake import MALFORMED, TAKEN, intake

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
# Python's own numbers take more than those of the compiled engine.
MOST_MEMORY = (110 if ENGINE == "compiled" else 150) * MIB


# Of each limit, others are in `make test`. These fill the tables of the decoder, for seconds.
LONG = {name for name in HOSTILE if name.startswith("distinct ")} | {
    "locations with far ids",
    "as many locations as may be",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.exhaustive) if name in LONG else name for name in HOSTILE]
)
def test_inputs_as_large_as_allowed(name: str, tmp_path: Path) -> None:
    refusal, fill = HOSTILE[name]
    cost = intake(compress(fill(AS_LET_IN)), tmp_path)
    assert cost.result == refusal
    if refusal not in {MALFORMED, TAKEN}:
        assert refusal.replace("_", " ") in cost.words
    assert cost.memory < MOST_MEMORY


@pytest.mark.parametrize("name", GZIPPED)
def test_32_kb_of_odd_gzip(name: str, tmp_path: Path) -> None:
    refusal, fill = GZIPPED[name]
    cost = intake(fill(32 << 10), tmp_path)
    assert cost.result == refusal
    assert cost.memory < AS_LET_IN + 8 * MIB


@pytest.mark.parametrize("name", ["zeros", "empty samples", "empty strings", "a deep stack"])
def test_32_kb_of_gzip_are_inflated_no_further_than_the_limit(name: str, tmp_path: Path) -> None:
    data = gzip.compress(HOSTILE[name].fill(IN_32_KB_OF_GZIP))
    assert len(data) < 34_000
    cost = intake(data, tmp_path)
    assert cost.result == "inflated_bytes"
    assert cost.memory < AS_LET_IN + 8 * MIB


def test_a_bomb_of_half_a_gibibyte_costs_no_more(tmp_path: Path) -> None:
    data = bomb(512)
    assert len(data) < 540_000
    cost = intake(data, tmp_path)
    assert cost.words == f"more than {AS_LET_IN:,} inflated bytes"
    assert cost.memory < AS_LET_IN + 8 * MIB
