"""Codec: the bytes of a pprof profile ↔ columns. `__all__` has what others use.

`decoding` reads profiles: it inflates gzip, and `reader` turns the protobuf into columns, which are then seen
as a `Profile`. `encoding` writes a `Profile` as protobuf, with `writer`, and as gzip. `wire` has the wire
format, for both. `otlp` writes the profiles of OpenTelemetry as pprof, from where `otlp_tables` finds their
dictionary.
"""

from pprof_merge.codec.decoding import (
    GZIP_MAGIC,
    StepTimes,
    Summary,
    decode,
    inflate,
    read_summary,
    summaries,
    without_traceback,
)
from pprof_merge.codec.encoding import compress, encode, encode_pieces
from pprof_merge.codec.otlp import Conversion, KnownLine
from pprof_merge.codec.otlp_tables import DictionaryTables, wires_of_samples, without
from pprof_merge.codec.wire import count_inside, counts_in, messages_in
from pprof_merge.profile import ProfileColumns

__all__ = [  # noqa: RUF022 - in the order in which a reader looks for them
    "decode",
    "encode",
    "encode_pieces",
    "inflate",
    "compress",
    "GZIP_MAGIC",
    # A check of many profiles, and how long its steps took.
    "summaries",
    "read_summary",
    "Summary",
    "ProfileColumns",
    "StepTimes",
    "without_traceback",
    # What any message has, before it is parsed.
    "counts_in",
    "count_inside",
    "messages_in",
    # Profiles of OpenTelemetry.
    "DictionaryTables",
    "Conversion",
    "KnownLine",
    "wires_of_samples",
    "without",
]
