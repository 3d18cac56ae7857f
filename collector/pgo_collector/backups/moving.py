"""Copying all that a storage has to another, a folder or a bucket, while a server runs on the first.

Blobs are copied after their .inputs, as `Blobs.keep` writes them; then releases, programs and start lines. A
second copy takes what came meanwhile: it copies only what is new.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pgo_collector.backups.copying import checked_blob, checked_inputs
from pgo_collector.blobs.storage import AREAS, NewBlob, Storage, Stored
from pgo_collector.errors import CopyDamaged, StorageFails
from pgo_collector.model.series import BLOB_SUFFIX, INPUTS_SUFFIX, BlobName

# Objects that are read and written together.
_BATCH = 64
# The end of the names, outside the blobs, of what may change.
_CHANGING = ".json", ".sqlite3"
_RECORD = ".json"
# Ends the names of programs and of releases in other formats.
_NAMED = re.compile(r"(?:^\d+\.|-)([0-9a-f]{64})(?:\.(?:elf|debug|symbols)|-[a-z0-9.]+)$")


@dataclass(slots=True)
class Copied:
    """The result of a copy: objects and bytes that were copied, objects of the target that the source lacks,
    of which `deleted` were deleted, and in `lost` a message for each object that could not be copied.
    """

    objects: int = 0
    bytes: int = 0
    surplus: int = 0
    deleted: int = 0
    lost: list[str] = field(default_factory=list)


def copy_all(source: Storage, target: Storage, *, delete: bool) -> Copied:
    """Copy what the target lacks, or has differently; with `delete`, delete what the source lacks.

    Raises StorageFails and OSError.
    """
    report = Copied()
    _copy_blobs(source, target, report, delete=delete)
    for area in AREAS:
        _copy_area(source.area(area), target.area(area), report, delete=delete)
    return report


def _copy_blobs(source: Storage, target: Storage, report: Copied, *, delete: bool) -> None:
    there = {of.name: of.size for of in _ours(target)}
    names = set()
    batch: list[Stored] = []
    for of in sorted(_ours(source), key=_inputs_first):
        names.add(of.name)
        if there.get(of.name) != of.size:
            batch.append(of)
        if len(batch) == _BATCH:
            _copy(source, target, batch, report)
            batch = []
    _copy(source, target, batch, report)
    _count_surplus(target, sorted(there.keys() - names), report, delete=delete)


def _count_surplus(target: Storage, surplus: Sequence[str], report: Copied, *, delete: bool) -> None:
    report.surplus += len(surplus)
    if delete:
        failures = target.delete(surplus)
        report.deleted += len(surplus) - len(failures)
        report.lost += [f"{target.where(name)}: {failure}" for name, failure in failures.items()]
        target.remove_folders({name.rpartition("/")[0] for name in surplus})


def _copy_area(source: Storage, target: Storage, report: Copied, *, delete: bool) -> None:
    """Copy an area: the records of releases after their profiles; what has another size, or may change."""
    there = {of.name: of.size for of in target.objects()}
    names = set()
    for of in sorted(source.objects(), key=lambda of: (of.name.endswith(_RECORD), of.name)):
        names.add(of.name)
        is_same = there.get(of.name) == of.size
        if is_same and not of.name.endswith(_CHANGING):
            continue
        try:
            content = source.read(of.name)
            if is_same and target.read(of.name) == content:
                continue
            _check_named(source, of.name, content)
            target.replace(of.name, content)
        except FileNotFoundError:  # it has gone meanwhile
            continue
        except StorageFails:
            raise
        except (OSError, CopyDamaged) as error:
            report.lost.append(str(error))
        else:
            report.objects += 1
            report.bytes += len(content)
    # A release is none without its record, which goes first.
    surplus = sorted(there.keys() - names, key=lambda name: (not name.endswith(_RECORD), name))
    _count_surplus(target, surplus, report, delete=delete)


def _check_named(source: Storage, name: str, content: bytes) -> None:
    """Raise CopyDamaged if the name has a SHA-256, as of a program, and this isn't what it says."""
    named = _NAMED.search(name.rpartition("/")[2])
    if named is not None and named[1] != hashlib.sha256(content).hexdigest():
        raise CopyDamaged(f"{source.where(name)} isn't what its name says")


def _ours(storage: Storage) -> Iterator[Stored]:
    """Yield the blobs and .inputs, by their names; what others have put there is left out."""
    return (of for of in storage.objects() if _blob(of.name) is not None)


def _blob(name: str) -> BlobName | None:
    """Return the blob with this name, or beside which the .inputs with this name is; None if it is
    neither.
    """
    is_inputs = name.endswith(INPUTS_SUFFIX)
    return BlobName.parse(name.removesuffix(INPUTS_SUFFIX) + BLOB_SUFFIX if is_inputs else name)


def _inputs_first(of: Stored) -> bool:
    return not of.name.endswith(INPUTS_SUFFIX)


def _copy(source: Storage, target: Storage, batch: Sequence[Stored], report: Copied) -> None:
    """Copy objects after a check; one that has gone meanwhile is left out."""
    new = []
    for of, content in zip(batch, source.read_all(of.name for of in batch), strict=True):
        if isinstance(content, FileNotFoundError):
            continue
        try:
            if isinstance(content, OSError):
                raise content
            _check(source, of.name, content)
            new.append(NewBlob(of.name, "", content, len(content)))
        except StorageFails:
            raise
        except (OSError, CopyDamaged) as error:
            report.lost.append(str(error))
    failures = target.create(new)
    for failure in failures.values():
        if isinstance(failure, StorageFails):
            raise failure
    report.lost += [f"{target.where(name)}: {failure}" for name, failure in failures.items()]
    copied = [blob.size for blob in new if blob.name not in failures]
    report.objects += len(copied)
    report.bytes += sum(copied)


def _check(source: Storage, name: str, content: bytes) -> None:
    """Raise CopyDamaged if this isn't what the name says."""
    blob = _blob(name)
    if name.endswith(INPUTS_SUFFIX):
        checked_inputs(content, source.where(name))
    elif blob is not None:
        checked_blob(content, source.where(name), blob.identity.digest)
