"""The claim of a bucket: an object that says with which catalog its profiles are counted.

    {"catalog": "1764158400000000000", "by": "collector-0, catalog in PostgreSQL, pgo at db", "beat": "5f0c…"}

Over one bucket, two catalogs would each count a part of the profiles, and each would have deleted what the
other one counts. So collectors renew the claim of their catalog all the time, and one with another catalog,
as after the loss of a machine, waits until nobody renews it any more. A collector that finds the claim of
another catalog stores and deletes nothing. A data folder has a lock instead: see `folder`.
"""

from __future__ import annotations

import asyncio
import json
import platform
import secrets
import time
from collections.abc import Collection
from threading import Lock
from typing import NoReturn, Protocol

import structlog

from pgo_collector.blobs.storage import CLAIM, Storage
from pgo_collector.catalog.database import Database
from pgo_collector.errors import StorageTaken, StorageUnusable
from pgo_collector.model.times import boot_seconds

_OBJECT = "catalog"
# How often the claim is renewed, and how long this collector relies on it. The other's claim is watched for
# longer than that before it is replaced, and looked at so often.
_RENEWAL_SECONDS = 15.0
_SURE_SECONDS = 40.0
_WATCH_SECONDS = 50.0
_LOOK_SECONDS = 5.0
_log = structlog.get_logger()


class Claim(Protocol):
    """The right of a catalog's collectors to change what is in a storage; also a background task."""

    async def take(self, catalog: int, before: int | None = None) -> None:
        """Take it for a catalog, or the one that was `before`: each by when it was made, in ns since 1970.

        Raises StorageUnusable if another catalog's collectors have it, and OSError.
        """

    def check(self) -> None:
        """Raise StorageTaken if it is another catalog's, and OSError if that can't be known, or if this
        process doesn't hold its data folder any more. May block.
        """

    async def run(self) -> None:
        """Renew it until cancelled."""


class BucketClaim:
    """The claim of a bucket and prefix. Take it once, before anything in the bucket is changed."""

    def __init__(self, bucket: Storage, database: Database, folder: Claim) -> None:
        """Take the bucket, the catalog's database, and the claim of this collector's data folder."""
        self._where = bucket.where()
        self._storage = bucket.area(CLAIM)
        self._check_folder = folder.check
        self._by = f"{platform.node()}, catalog {database}"
        self._catalog = ""
        # What the object was when it was last looked at, and until when the claim is surely this catalog's.
        self._seen = b""
        self._looked = self._sure_until = 0.0
        self._renewing = Lock()

    async def take(self, catalog: int, before: int | None = None) -> None:
        """Take the claim, at once unless it is of a third catalog; that one is watched for a while."""
        self._catalog = str(catalog)
        ours = {str(made) for made in (catalog, before) if made is not None}
        watched = await asyncio.to_thread(self._replace, ours)
        if watched is None:
            return
        by = _entry(watched, "by")
        _log.warning("waiting for bucket", by=by, seconds=_WATCH_SECONDS)
        until = time.monotonic() + _WATCH_SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(_LOOK_SECONDS)
            found = await asyncio.to_thread(self._replace, ours)
            if found is None:
                return
            if found != watched:
                raise StorageUnusable(
                    f"{self._where}: a collector with another catalog uses it ({_entry(found, 'by')}); give"
                    " both the same PGOF_CATALOG, or each a prefix of its own in PGOF_STORAGE"
                )
        if await asyncio.to_thread(self._replace, ours, watched) is not None:
            raise StorageUnusable(f"{self._where}: a collector with another catalog has just begun to use it")
        _log.warning("bucket taken over", by=by)

    def check(self) -> None:
        """Look at the object if that hasn't been done for a while: this machine may have been asleep."""
        self._check_folder()
        if boot_seconds() > self._sure_until:
            self._renew()

    async def run(self) -> NoReturn:
        """Renew it, also after failures."""
        while True:
            await asyncio.sleep(_RENEWAL_SECONDS)
            try:
                await asyncio.to_thread(self._renew)
            except StorageTaken as error:
                _log.error("bucket lost", reason=str(error))
            except OSError as error:
                _log.warning("bucket claim not renewed", reason=str(error))

    def _renew(self) -> None:
        """Replace the object, unless another collector of this catalog has just done so.

        Raises StorageTaken and OSError.
        """
        with self._renewing:
            began, new = boot_seconds(), self._entries()
            found = new
            # A change since the last look is as good as one's own, if that look wasn't long ago.
            counts_change = began < self._looked + _SURE_SECONDS - _RENEWAL_SECONDS

            def renewed(content: bytes | None) -> bytes | None:
                nonlocal found
                is_ours = content is None or _entry(content, "catalog") == self._catalog
                is_renewed = counts_change and content is not None and content != self._seen
                found = new if is_ours and not is_renewed else content or b""
                return new if found is new else None

            self._storage.update(_OBJECT, renewed)
            if _entry(found, "catalog") != self._catalog:
                self._sure_until = 0.0
                raise StorageTaken(
                    f"{self._where}: a collector with another catalog has taken it"
                    f" ({_entry(found, 'by')}): stop one of them"
                )
            self._note(found, looked=began, written=began if found is new else self._looked)

    def _replace(self, ours: Collection[str], also: bytes | None = None) -> bytes | None:
        """Replace the object if it is of one of our catalogs, or as in `also`, or missing.

        Returns what it is otherwise. Raises OSError.
        """
        began, others, new = boot_seconds(), None, self._entries()

        def replaced(content: bytes | None) -> bytes | None:
            nonlocal others
            is_free = content in {None, also} or _entry(content, "catalog") in ours
            others = None if is_free else content
            return new if is_free else None

        self._storage.update(_OBJECT, replaced)
        if others is None:
            self._note(new, looked=began, written=began)
        return others

    def _note(self, content: bytes, *, looked: float, written: float) -> None:
        """Record the claim object's content, first seen at `looked` and written no earlier than `written`."""
        self._seen, self._looked, self._sure_until = content, looked, written + _SURE_SECONDS

    def _entries(self) -> bytes:
        return json.dumps(
            {"catalog": self._catalog, "by": self._by, "beat": secrets.token_hex(8)}, ensure_ascii=False
        ).encode()


def _entry(content: bytes | None, key: str) -> str:
    """Return an entry of the object's text; "" if it has none, as one that isn't a claim."""
    try:
        return str(json.loads(content or b"")[key])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
