"""The seam of blob storage: what a collector and its workers need of the place where blobs are.

A storage keeps immutable objects under names with slashes: `model.series` says which. A name is taken
once and keeps its content, but for an .inputs and a blob that is sealed again, which are replaced as a whole.
"Durable" means that the disk has it, or that the object store has answered.

Releases, programs and start lines, which all collectors share too, are beside the blobs, each in an area.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from pgo_collector.blobs.copies import Copies

MISSING = -1
# The areas beside the blobs: see `releases.folder`, `store.binaries` and `engine.start_lines`.
RELEASES, BINARIES, START_LINES = AREAS = "releases", "binaries", "start_lines"
# An area for the object that says whose the bucket is: see `store.claim`.
CLAIM = "claim"
# An area for what is only there while profiles are being stored: see `submits.commit`.
UNDATED = "undated"


class NewBlob(NamedTuple):
    """A blob to store: its bytes, `size` of them, or the file that they are in, which the storage leaves.

    `beside` is the name of an object that must not be there with it; "" for none.
    """

    name: str
    beside: str
    content: bytes | Path
    size: int


class Stored(NamedTuple):
    """A stored object: its name, its size in bytes, and when it was written, in ns since 1970.

    When it is written again, it gets another `version`.
    """

    name: str
    size: int
    written_nanos: int
    version: str


class StoredObject(NamedTuple):
    """An object by its name, which a worker can read as if it were a file."""

    storage: Storage
    name: str

    def read_bytes(self) -> bytes:
        """Return its content. Raises OSError."""
        return self.storage.read(self.name)


class Listed(NamedTuple):
    """The content of a folder: the names of its folders and files, and a function for the size of a file."""

    folders: list[str]
    files: Collection[str]
    size: Callable[[str], int]


# Returns what is in a folder, "" for the topmost one; None if it isn't there or can't be read. A folder that
# is asked for right after the one above it costs least.
Lister = Callable[[str], Listed | None]

# Returns the new content of an object, given the present one; None is for no object, and for no change.
Change = Callable[[bytes | None], bytes | None]


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

    def area(self, name: str) -> Storage:
        """Return the storage of an area beside the blobs. Names in it have nothing to do with those here."""

    def where(self, name: str = "") -> str:
        """Return where an object is, or all of them, for messages."""

    def verify(self) -> None:
        """Try everything that a collector needs. Raises StorageUnusable."""

    def ping(self) -> None:
        """Raise OSError if the storage can't be reached."""

    def size(self, name: str) -> int:
        """Return an object's size in bytes; MISSING if it isn't there."""

    def written_nanos(self, name: str) -> int:
        """Return when an object was written, in ns since 1970; the latest time that it may have been."""

    def open(self, name: str) -> BinaryIO:
        """Return an object as an open file, at its beginning."""

    def open_local(self, name: str, version: str, copies: Copies, sha256: str = "") -> BinaryIO:
        """Return an object as an open file of the local disk, with a descriptor.

        If the storage is elsewhere, the file is one of the `copies`. One of this version is made if there is
        none, and checked against `sha256`, in hex, if it is given. Raises FileNotFoundError and CopyDamaged.
        """

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

    def upload(self, name: str, part: Path) -> None:
        """Do the same as `replace` with a file of any size, which may be gone afterwards."""

    def add(self, name: str, content: bytes | Path, *, durably: bool = True) -> None:
        """Store an object, or the file at a path, under a name that no object has.

        Unless `durably`, it may be gone after a power cut.
        If several do so at once, one succeeds. Raises FileExistsError; the cause may be an earlier try of
        this very call, whose answer was lost.
        """

    def update(self, name: str, change: Change) -> bool:
        """Replace an object by what `change` makes of it; return whether it changed anything.

        In a bucket it is called again if another process has updated the object meanwhile, so nothing is
        lost, unless the object is replaced in another way; in a folder, one process at a time may update it.
        """

    def delete(self, names: Sequence[str], *, durably: bool = False) -> dict[str, OSError]:
        """Delete objects that are there; return the errors of those that couldn't be deleted, by name.

        Unless `durably`, a deleted object may be there again after a power cut.
        """

    def remove_folders(self, folders: Iterable[str]) -> None:
        """Remove these folders that are empty, and the empty ones above them.

        Call it on the thread that makes blobs.
        """

    def lister(self) -> Lister:
        """Return a function for one walk over all folders."""

    def objects(self, folder: str = "") -> Iterator[Stored]:
        """Yield all objects below a folder, those of others, too."""

    def versions(self, folder: str, moment: int) -> Mapping[str, str]:
        """Return the version of each object in a folder, by its name there, as of a moment or later.

        The moment is in ns since 1970 by this machine's clock; if it is still to come, now is meant.
        """
