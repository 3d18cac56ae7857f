"""Test which agent scrapes which target, and when."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.scrape.target import Shard, next_scrape_time

NAMES = [f"shop/shop-{number}" for number in range(5000)]


def test_each_target_is_in_one_shard_and_shards_are_alike() -> None:
    shards = [Shard(index, 5) for index in range(5)]
    sizes = Counter(index for name in NAMES for index, shard in enumerate(shards) if name in shard)
    assert sum(sizes.values()) == len(NAMES)
    assert min(sizes.values()) > 900
    assert all(sum(name in shard for shard in shards) == 1 for name in NAMES)
    assert all(name in Shard(0, 1) for name in NAMES)


def test_the_targets_of_a_shard_are_spread_over_the_round() -> None:
    minutes = Counter(int(next_scrape_time(name, 600, 0) // 60) for name in NAMES if name in Shard(2, 5))
    assert sorted(minutes) == [*range(10)]
    assert max(minutes.values()) < 2 * min(minutes.values())


@given(st.text(), st.floats(1, 1e5), st.floats(0, 2e9))
def test_a_moment_comes_once_in_each_round(name: str, every: float, now: float) -> None:
    moment = next_scrape_time(name, every, now)
    assert now < moment <= now + every * 1.000001
    after = next_scrape_time(name, every, moment + every / 2)
    assert after - moment == pytest.approx(every, rel=1e-3, abs=1e-3)


def test_shards_are_parsed() -> None:
    assert Shard.parse("0/1") == Shard(0, 1)
    assert Shard.parse("2/5") == Shard(2, 5)


@pytest.mark.parametrize("text", ["", "1", "5/5", "1/0", "-1/5", "1/5/5", "a/b"])
def test_other_texts_are_no_shards(text: str) -> None:
    with pytest.raises(ValueError, match="not INDEX/COUNT"):
        Shard.parse(text)
