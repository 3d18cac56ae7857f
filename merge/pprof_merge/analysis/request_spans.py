"""The span that takes most of a profile, by the labels with ids that tracers put on its samples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pprof_merge.arrays import Int64s
from pprof_merge.columns.ragged import rows_of_indexes
from pprof_merge.merging.request_labels import OF_SPAN, OF_TRACE, kind_of_key
from pprof_merge.profile import Profile

_HEX_ID = re.compile(rb"[0-9a-fA-F]{16}(?:[0-9a-fA-F]{16})?")
_DECIMAL_ID = re.compile(rb"[0-9]{1,20}")
_BITS_64 = 1 << 64


class SpanValue(NamedTuple):
    """A span, the trace that it is of, and the sum of its samples.

    The ids are in lower-case hex: 16 digits, and 32 or none.
    """

    span: str
    trace: str
    value: int


def largest_span(profile: Profile, column: int) -> SpanValue | None:
    """Return the span with the largest sum of sizes in a column; None if no sample has a span with a value.

    Of several labels of a sample with ids of spans, the first counts.
    """
    rows, ids = _ids(profile, OF_SPAN)
    sizes = np.abs(profile.samples.values[rows, column])
    spans, span_of = np.unique(ids, axis=0, return_inverse=True)
    totals = np.zeros(len(spans), np.int64)
    np.add.at(totals, span_of, sizes)
    for number in np.argsort(-totals, kind="stable").tolist():
        if totals[number] <= 0:
            break
        span = _hex(profile, spans[number].tolist())[-16:]
        if span.strip("0"):
            return SpanValue(span, _trace(profile, rows[span_of == number]), int(totals[number]))
    return None


def _trace(profile: Profile, samples: Int64s) -> str:
    """Return the trace of the first of some samples that has one."""
    rows, ids = _ids(profile, OF_TRACE)
    for at in np.flatnonzero(np.isin(rows, samples))[:1].tolist():
        found = _hex(profile, ids[at].tolist())
        return found.rjust(32, "0") if found.strip("0") else ""
    return ""


def _ids(profile: Profile, kind: int) -> tuple[Int64s, Int64s]:
    """Return the samples (n,) that have an id of a kind, ascending, and the first one of each.

    An id (n, 2) is the row of a text, or -1 and a number.
    """
    labels = profile.samples.labels
    keys = np.unique(labels.key)
    wanted = [key for key in keys.tolist() if kind_of_key(profile.strings[key]) == kind]
    at = np.flatnonzero(np.isin(labels.key, wanted))
    rows, first = np.unique(rows_of_indexes(labels.offsets, at), return_index=True)
    chosen = at[first]
    texts = labels.text[chosen].astype(np.int64)
    return rows, np.stack((texts, np.where(texts < 0, labels.number[chosen], 0)), axis=1)


def _hex(profile: Profile, id_: Sequence[int]) -> str:
    """Return an id in hex, of 16 or 32 digits; empty if the text is none."""
    text, number = id_
    if text < 0:
        return f"{number % _BITS_64:016x}"
    written = profile.strings[text]
    if _HEX_ID.fullmatch(written):
        return written.decode().lower()
    if _DECIMAL_ID.fullmatch(written) and int(written) < _BITS_64:
        return f"{int(written):016x}"
    return ""
