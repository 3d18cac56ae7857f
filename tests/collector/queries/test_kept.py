"""Kept answers: an answer is made again when its profiles have changed, and all stay within their memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.engine.symbols import NO_SYMBOLS, Symbols
from pgo_collector.errors import NothingSelected
from pgo_collector.model.facts import Facts
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import BlobName, Identity, Series
from pgo_collector.queries.kept import KeptAnswers

pytestmark = pytest.mark.any_store

SHOP, CART = (Selection(service, "cpu") for service in ("shop", "cart"))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    database = SQLite(tmp_path / "catalog")
    database.open()
    yield Catalog(database)
    database.close()


def add(catalog: Catalog, service: str, time_nanos: int) -> None:
    digest = f"{time_nanos:064x}"
    name = BlobName(Series(service, "cpu"), Identity(time_nanos, digest))
    catalog.add((name, Facts(time_nanos, 1, digest, 1, 1)))


def no_symbols(_: str) -> Symbols:
    return NO_SYMBOLS


class Asker:
    """Asks questions whose answers are numbered, so that a kept one is told from one that is made."""

    def __init__(self, kept: KeptAnswers) -> None:
        self._kept = kept
        self.made = 0

    def ask(self, question: str, *selections: Selection, size: int = 1, is_whole: bool = True) -> int:
        async def make() -> tuple[int, bytes]:
            self.made += 1
            return self.made, bytes(size)

        number, _ = asyncio.run(self._kept.answer(question, selections, make, lambda _: is_whole))
        return number


def test_an_answer_is_kept_while_its_profiles_are_the_same(catalog: Catalog) -> None:
    asker = Asker(KeptAnswers(catalog, no_symbols, 1 << 20))
    add(catalog, "shop", 1)
    assert [asker.ask("top", SHOP) for _ in range(2)] == [1, 1]
    assert asker.ask("flame", SHOP) == 2
    assert asker.ask("top", SHOP, CART) == 3
    add(catalog, "cart", 2)
    assert (asker.ask("top", SHOP), asker.ask("top", SHOP, CART)) == (1, 4)
    add(catalog, "shop", 3)
    assert asker.ask("top", SHOP) == 5
    # A selection by time has the same answer as long as it has the same profiles.
    assert asker.ask("top", Selection("shop", "cpu", begin=-7)) == 5
    assert asker.ask("top", Selection("shop", "cpu", begin=2)) == 6


def test_the_answers_asked_for_last_are_kept(catalog: Catalog) -> None:
    asker = Asker(KeptAnswers(catalog, no_symbols, 1000))
    for question in "abcde":
        asker.ask(question, SHOP, size=200)
    assert asker.ask("e", SHOP, size=200) == 5
    assert asker.ask("a", SHOP, size=200) == 6
    assert [asker.ask("large", SHOP, size=400) for _ in range(2)] == [7, 8]


def test_none_may_be_kept(catalog: Catalog) -> None:
    asker = Asker(KeptAnswers(catalog, no_symbols, 0))
    assert [asker.ask("top", SHOP) for _ in range(2)] == [1, 2]


def test_an_answer_without_some_of_its_profiles_is_made_again(catalog: Catalog) -> None:
    asker = Asker(KeptAnswers(catalog, no_symbols, 1 << 20))
    assert [asker.ask("top", SHOP, is_whole=False) for _ in range(2)] == [1, 2]
    assert [asker.ask("top", SHOP) for _ in range(2)] == [3, 3]


def test_a_question_that_fails_is_asked_again(catalog: Catalog) -> None:
    kept = KeptAnswers(catalog, no_symbols, 1000)

    async def fail() -> int:
        raise NothingSelected

    with pytest.raises(NothingSelected):
        asyncio.run(kept.answer("top", [SHOP], fail, lambda _: True))
    assert Asker(kept).ask("top", SHOP) == 1
