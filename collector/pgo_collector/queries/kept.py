"""Kept answers: the last ones for the pages, each as long as the profiles that it is about are the same.

They are kept as bytes, so that their memory is known and nobody changes them.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TypeVar

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.engine.symbols import Symbols
from pgo_collector.model.selection import Selection

T = TypeVar("T")

# An answer that takes more than this share of the memory isn't kept: it would drive out all others.
_LARGEST_SHARE = 0.25


class KeptAnswers:
    """The answers that were asked for last, in at most `most_bytes` of memory.

    `symbols_of` returns what names the functions of a service, or of several. It blocks.
    """

    def __init__(self, catalog: Catalog, symbols_of: Callable[[str], Symbols], most_bytes: int) -> None:
        self._catalog = catalog
        self._symbols_of = symbols_of
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._bytes = 0

    async def answer(
        self,
        question: Hashable,
        selections: Sequence[Selection],
        make: Callable[[], Awaitable[T]],
        is_whole: Callable[[T], bool],
    ) -> T:
        """Return the answer to a question about selections: the kept one, or the one that `make` returns.

        `question` has everything that the answer depends on besides the profiles and their names. A selection
        of the last days has the same answer as long as it has the same profiles. An answer for which
        `is_whole` is false isn't kept: it is without profiles that couldn't be read, and that may be readable
        the next time.
        """
        states = [await asyncio.to_thread(self._state_of, selection) for selection in selections]
        key = question, *states
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            answer: T = await asyncio.to_thread(pickle.loads, kept)  # our own bytes
            return answer
        made = await make()
        if is_whole(made):
            self._keep(key, await asyncio.to_thread(pickle.dumps, made))
        return made

    def _state_of(self, selection: Selection) -> Hashable:
        """Return what changes with the profiles of a selection, and with what names their functions."""
        state, symbols = self._catalog.state(selection), self._symbols_of(selection.service)
        return selection.service, selection.type, state.fingerprint, state.coarse, symbols.fingerprint

    def _keep(self, key: Hashable, content: bytes) -> None:
        if len(content) > self._most_bytes * _LARGEST_SHARE:
            return
        self._bytes += len(content) - len(self._kept.pop(key, b""))
        self._kept[key] = content
        while self._bytes > self._most_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= len(dropped)
