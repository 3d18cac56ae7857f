"""The files of blobs: kind, time and size."""

from __future__ import annotations

from typing import NamedTuple

from tests.server import Server


class BlobFile(NamedTuple):
    """A blob on disk: `size` in bytes, with its .inputs; `end` is when its last profile was taken."""

    is_combined: bool
    end: int
    size: int


def blob_files(server: Server) -> list[BlobFile]:
    """Return all blobs on disk or in the bucket.

    These are the live ones, unless a combine or an upkeep is running, or a lease isn't settled: see
    `Lane.settle`.
    """
    inputs = {path.with_suffix(""): path for path in server.blobs(".inputs")}
    found = []
    for path in server.blobs():
        beside = inputs.get(path.with_name(path.name.removesuffix(".pb.gz")))
        if beside is None:
            time_nanos, _, _ = path.name.rpartition("-")
            found.append(BlobFile(is_combined=False, end=int(time_nanos), size=path.stat().st_size))
        else:
            _, *profiles = beside.read_bytes().decode().splitlines()
            size = path.stat().st_size + beside.stat().st_size
            found.append(BlobFile(is_combined=True, end=max(map(_time, profiles)), size=size))
    return found


def _time(line: str) -> int:
    return int(line.split(maxsplit=1)[0])
