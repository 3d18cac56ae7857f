"""Followers: what the server does in the background for as long as it serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

_log = structlog.get_logger()


class Follower(Protocol):
    """Something that follows what happens. It sees to the failures that it knows."""

    async def follow(self) -> None:
        """Runs until there is nothing more to follow, or it is cancelled."""


@asynccontextmanager
async def following(followers: Iterable[Follower]) -> AsyncIterator[None]:
    """All of them run meanwhile. One that fails in a way that it doesn't know ends, which the log says."""
    tasks = [asyncio.create_task(_follow(follower)) for follower in followers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _follow(follower: Follower) -> None:
    try:
        await follower.follow()
    except Exception:  # noqa: BLE001 - whatever it is, somebody has to be told
        _log.exception("not done any more until the next start", task=type(follower).__name__)
