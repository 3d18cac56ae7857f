"""One profile of OTLP → pprof, as `docs/agents-you-have.md` describes it.

Samples that differ only in what isn't kept, such as the number of a thread, become one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pprof_merge import MalformedProfile
from pprof_merge.codec import Conversion
from pprof_proto import profile_pb2 as pprof

from pgo_collector.errors import PushInvalid
from pgo_collector.routes.otlp import export_pb2 as otlp
from pgo_collector.routes.otlp.dictionary import Dictionary, Value, text_of, texts_of
from pgo_collector.routes.otlp.joining import Known, join
from pgo_collector.routes.otlp.naming import DEFAULT_TYPE

_MOST = (1 << 63) - 1
_SAMPLES = ("samples", "count")
_CPU = ("cpu", "nanoseconds")
# The attributes of a profile that pprof has fields for.
_TEXTS = ("doc_url", "drop_frames", "keep_frames")
_COMMENT = "pprof.profile.comment"
_OF_PROFILES = frozenset((_COMMENT, *(f"pprof.profile.{name}" for name in _TEXTS)))


class Reading(NamedTuple):
    """How the profiles of a request are read: the dictionary that they share, which wire they are in.

    `start_lines` knows the start lines that profiles get.
    """

    dictionary: Dictionary
    conversion: Conversion
    is_before_1_10: bool
    start_lines: Known


class Origin(NamedTuple):
    """The service of a profile, the attributes of its scope, and what tells its process from others.

    The latter is empty if the labels do.
    """

    service: str
    scope: Mapping[str, Value]
    process: str


class Converted(NamedTuple):
    """A profile as bare protobuf of pprof, and its label for where functions got start lines from, if any."""

    content: bytes
    joined_by: str = ""


def to_pprof(profile: otlp.Profile, span: tuple[int, int], origin: Origin, reading: Reading) -> Converted:
    """Return the profile at these bytes of the request as pprof; `profile` has all of it but its samples.

    Raises PushInvalid and LimitExceeded.
    """
    try:
        return _converted(profile, span, origin, reading)
    except (MalformedProfile, UnicodeDecodeError) as error:
        raise PushInvalid(str(error)) from error


def _converted(profile: otlp.Profile, span: tuple[int, int], origin: Origin, reading: Reading) -> Converted:
    dictionary, conversion, is_before_1_10, known = reading
    conversion.read_samples(*span, is_before_1_10)
    joined = join(conversion, dictionary, known, origin.service, profile.time_unix_nano)
    conversion.begin(dict(joined.lines))
    types, header = pprof.Profile(), pprof.Profile(period=profile.period)
    # The same bytes of one series and time are one profile: a string that nothing uses makes others of them.
    conversion.text(origin.process.encode())

    def text(of: str) -> int:
        return conversion.text(of.encode())

    def type_of(given: otlp.ValueType) -> tuple[str, str]:
        return dictionary.string(given.type_strindex), dictionary.string(given.unit_strindex)

    measured, period = type_of(profile.sample_type), type_of(profile.period_type)
    if any(period):
        header.period_type.type, header.period_type.unit = map(text, period)
    is_cpu = (measured, period) == (_SAMPLES, _CPU) and profile.period > 0
    for type_, unit in (measured, _CPU) if is_cpu else (measured,):
        types.sample_type.add(type=text(type_), unit=text(unit))
    conversion.write_samples(profile.period if is_cpu else 0)
    if max(profile.time_unix_nano, profile.duration_nano) > _MOST:
        raise PushInvalid("the time or the duration has more than 63 bits")
    header.time_nanos, header.duration_nanos = profile.time_unix_nano, profile.duration_nano
    attributes = dictionary.attributes(profile.attribute_indices, _OF_PROFILES)
    header.comment.extend(map(text, texts_of(attributes.get(_COMMENT))))
    for name in _TEXTS:
        setattr(header, name, text(text_of(attributes.get(f"pprof.profile.{name}"))))
    header.default_sample_type = text(text_of(origin.scope.get(DEFAULT_TYPE)))
    content = b"".join((types.SerializeToString(), conversion.written(), header.SerializeToString()))
    conversion.take_bytes(len(content))
    return Converted(content, joined.by)
