"""The seam of blob storage: what a collector and its workers need of the place where blobs are.

A storage keeps immutable objects under names with slashes: `model.blob_names` says which. A name is taken
once and keeps its content, but for an .inputs and a blob that is sealed anew, which are replaced as a whole.
"Durable" means that the disk has it, or that the object store has answered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

MISSING = -1


class NewBlob(NamedTuple):
    """A blob to store: its bytes, `size` of them, are `content`, or in the file `part`.

    With both, the storage may write `content` to that file, and leave it.

    `beside` is the name of an object that must not be there with it; "" for none.
    """

    name: str
    beside: str
    part: Path | None
    content: bytes | None
    size: int


class Stored(NamedTuple):
    """A stored object: its name, its size in bytes, and when it was written, in ns since 1970."""

    name: str
    size: int
    written_nanos: int


class Listed(NamedTuple):
    """The content of a folder: the names of its folders and files, and a function for the size of a file."""

    folders: list[str]
    files: Collection[str]
    size: Callable[[str], int]


# Returns what is in a folder, "" for the topmost one; None if it isn't there or can't be read. A folder that
# is asked for right after the one above it costs least.
Lister = Callable[[str], Listed | None]


class Storage(Protocol):
    """Objects by name. Methods block, and may be called in any thread and, after pickling, in any process.

    They raise OSError; StorageFails if the whole storage is the cause, and not this object.
    """

    @property
    def longest_wait(self) -> float:
        """How long a call may wait for something other than this machine's disk, in seconds."""

    @property
    def longest_name(self) -> int:
        """The bytes that a name may have at most."""

    def where(self, name: str = "") -> str:
        """Return where an object is, or all of them, for messages."""

    def verify(self) -> None:
        """Try everything that a collector needs. Raises StorageUnusable."""

    def ping(self) -> None:
        """Raise OSError if the storage can't be reached."""

    def size(self, name: str) -> int:
        """Return an object's size in bytes; MISSING if it isn't there."""

    def written_nanos(self, name: str) -> int:
        """Return when an object was written, in ns since 1970."""

    def open(self, name: str) -> BinaryIO:
        """Return an object as an open file, at its beginning."""

    def read(self, name: str, last: int | None = None) -> bytes:
        """Return an object's content, or only its `last` bytes."""

    def read_all(self, names: Iterable[str], last: int | None = None) -> Iterator[bytes | OSError]:
        """Yield of each object what `read` returns, or its error. Raises StorageFails."""

    def create(self, blobs: Sequence[NewBlob]) -> dict[str, OSError]:
        """Store blobs durably that the catalog doesn't count; return the errors of those that failed, by
        name.

        An object that is there under such a name is a failed attempt's, and is replaced. A `part` may be
        left.
        """

    def replace(self, name: str, content: bytes) -> None:
        """Store an object durably, in place of the one that may be there, at one moment."""

    def delete(self, names: Sequence[str]) -> dict[str, OSError]:
        """Delete objects that are there; return the errors of those that couldn't be deleted, by name."""

    def remove_folders(self, folders: Iterable[str]) -> None:
        """Remove these folders that are empty, and the empty ones above them.

        Call it on the thread that makes blobs.
        """

    def lister(self) -> Lister:
        """Return a function for one walk over all folders."""

    def objects(self) -> Iterator[Stored]:
        """Yield all objects, those of others, too."""
