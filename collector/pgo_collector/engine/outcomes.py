"""Outcomes of what was done for several at once, told to each of those who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def settle(futures: Sequence[asyncio.Future[T]], outcomes: Sequence[T | Exception]) -> None:
    """Gives each future its outcome; who doesn't wait any more is passed over."""
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
