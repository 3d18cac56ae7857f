"""What worker processes do with bodies that were received: here alone are they inflated and decoded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pprof_merge import GZIP_MAGIC, Batch, Header, Limits, ProfileError, compress, decode_all, inflate

from pgo_collector.engine.seals import is_sealed
from pgo_collector.errors import NotACPUProfile
from pgo_collector.model.facts import Facts
from pgo_collector.model.profile_types import TYPES


class SubmittedBody(NamedTuple):
    """A body that is in memory, and the type that its profile is to be of."""

    content: bytes
    type: str


class ValidatedBody(NamedTuple):
    """The facts of a profile that is to be stored, and its gzip, unless it is the body as it came."""

    facts: Facts
    packed: bytes | None


class _Content(NamedTuple):
    """What is in a profile, as far as it matters here."""

    header: Header
    digest: bytes
    samples: int


def receive(part: Path, gzipped: Path, type_: str, limits: Limits) -> Facts:
    """Checks the body in a file; gzip is made in the file `gzipped` and takes its place.

    A worker may die at any point here and the call be repeated. Raises ProfileError, NotACPUProfile or
    OSError.
    """
    (received,) = validate_bodies([SubmittedBody(part.read_bytes(), type_)], limits)
    if isinstance(received, Exception):
        raise received
    if received.packed is not None:
        gzipped.write_bytes(received.packed)
        gzipped.replace(part)
    return received.facts


def validate_bodies(
    bodies: Sequence[SubmittedBody], limits: Limits
) -> list[ValidatedBody | ProfileError | NotACPUProfile]:
    """Checks bodies, which together costs less than one by one; of each what came of it, or what is wrong."""
    contents = decode_all((body.content for body in bodies), limits, _contents)
    return [
        content if isinstance(content, ProfileError) else _received(body, content, limits)
        for body, content in zip(bodies, contents, strict=True)
    ]


def _contents(batch: Batch) -> list[_Content]:
    samples = np.diff(batch.sample_offsets).tolist()
    return [*map(_Content, batch.headers, batch.digests, samples)]


def _received(body: SubmittedBody, content: _Content, limits: Limits) -> ValidatedBody | NotACPUProfile:
    try:
        TYPES[body.type](content.header)
    except NotACPUProfile as error:
        return error.with_traceback(None)  # which would keep the body
    packed = None
    if is_sealed(body.content):  # only what is combined here may say what it is made of
        packed = compress(inflate(body.content, limits))
    elif not body.content.startswith(GZIP_MAGIC):
        packed = compress(body.content)
    size = len(packed or body.content)
    return ValidatedBody(Facts.of(content.header, content.digest.hex(), size, content.samples), packed)
