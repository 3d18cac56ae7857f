"""The body of an export: the message ExportProfilesServiceRequest, taken apart and converted in a worker.

Only its small messages are parsed. Of samples and the dictionary, two bytes would become an object of a
hundred; the engine reads them from the wire.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from pprof_merge import Header, LimitExceeded, Limits, MalformedProfile, inflate
from pprof_merge.codec import Conversion, DictionaryTables, counts_in, messages_in, without

from pgo_collector.engine.pushes import PushedProfile, Unpacked
from pgo_collector.engine.start_lines import Tables
from pgo_collector.errors import LabelsInvalid, NotPprof, PushInvalid, Refusal
from pgo_collector.model.profile_types import START_LINES
from pgo_collector.model.series import Labels, Series, labels_of_pairs
from pgo_collector.readers.compression import unframed
from pgo_collector.readers.json_text import read_json
from pgo_collector.routes.otlp import export_pb2 as otlp
from pgo_collector.routes.otlp.convert import Converted, Origin, Reading, to_pprof
from pgo_collector.routes.otlp.dictionary import Dictionary, Value, text_of
from pgo_collector.routes.otlp.joining import Known
from pgo_collector.routes.otlp.naming import is_named, matches, name_of, target_of
from pgo_collector.routes.otlp.versions import READ, is_before_1_10
from pgo_collector.routes.push.connect import NOT_JSON, most_values
from pgo_collector.routes.push.naming import Sender, Target

# Attributes of all resources and scopes; and the bytes that a request may have for each attribute in its
# dictionary, which takes longer: 41,943 of them by default.
_MOST_ATTRIBUTES = 50_000
_BYTES_OF_SHARED = 200
# The fields of a dictionary with its links, attributes and stacks, and of a profile with its samples.
_LINKS, _ATTRIBUTES, _STACKS, _SAMPLES = 4, 6, 7, 2
_OF_JSON = {"resourceProfiles", "resource_profiles", "dictionary"}
# How many times larger than their request the profiles in it may be, besides some bytes.
_MOST_TIMES = 16
_SMALL_BYTES = 256 << 10
# How much longer a request is as JSON.
_JSON_TIMES = 4
_NAME = "an ExportProfilesServiceRequest"
_PPROF = "pprof"
# One more than other clients may send.
_MOST_LABELS = 31
# As many attributes as can become labels or name the service, and some, which labels may have in common.
_MOST_NAMED = 40


class ExportOptions(NamedTuple):
    """How to read an export: whether it is JSON, how many profiles it may have, and who sent it.

    `labels` and `sample_labels` are the patterns of the attributes that become labels, and `start_lines` are
    the tables of the start lines that are known of builds.
    """

    is_json: bool
    most_profiles: int
    labels: frozenset[str]
    sample_labels: frozenset[str]
    sender: Sender
    start_lines: Tables


class _Scope(NamedTuple):
    """The attributes of a scope, each as it came, and where in the request its profiles are."""

    attributes: list[bytes]
    profiles: list[tuple[int, int]]


class _Resource(NamedTuple):
    """The attributes of a resource, each as it came, and its scopes."""

    attributes: list[bytes]
    scopes: list[_Scope]


def unpack_export(options: ExportOptions, content: bytes, limits: Limits) -> list[Unpacked]:
    """Return the profiles of an export as pprof. It is gzip, zstd, LZ4 or neither; the magic bytes tell.

    Raises PushInvalid or ProfileError.
    """
    message = inflate(unframed(content, limits), limits)
    size = len(message)
    if options.is_json:
        size //= _JSON_TIMES
        message = _from_json(message, options, most_values(len(content)))
    try:
        resources = _Taken(message, options).resources()
        if message and not resources and not messages_in(message, 0, len(message), 2, 1):
            raise PushInvalid(f"the body isn't {_NAME}: it has neither resource_profiles nor a dictionary")
        known = Known(options.start_lines, len(content))
        reading = _reading(message, size, resources, options, limits, known=known)
    except (DecodeError, MalformedProfile) as error:
        raise PushInvalid(f"the body isn't {_NAME}: {error}") from error
    return [*_profiles(message, resources, reading, options)]


class _Taken:
    """Takes a request apart, and counts its parts. Raises PushInvalid, DecodeError and MalformedProfile."""

    def __init__(self, message: bytes, options: ExportOptions) -> None:
        self._message = message
        self._options = options
        self._counts: dict[str, int] = {}
        self._left = _MOST_ATTRIBUTES

    def resources(self) -> list[_Resource]:
        """Return the resources of the request."""
        return [
            _Resource(
                self._attributes("resource", resource, 1),
                [
                    _Scope(
                        self._attributes("scope", scope, 3),
                        self._inside("profiles", scope, 2),
                    )
                    for scope in self._inside("scopes", resource, 2)
                ],
            )
            for resource in self._inside("resources", (0, len(self._message)), 1)
        ]

    def _inside(self, name: str, span: tuple[int, int], number: int) -> list[tuple[int, int]]:
        """Return where the messages in a field are. Raises PushInvalid if all of a name are too many."""
        counted = self._counts.get(name, 0)
        found = messages_in(self._message, *span, number, self._options.most_profiles + 1 - counted)
        self._counts[name] = counted + len(found)
        _check_count(self._counts[name], self._options)
        return found

    def _attributes(self, name: str, span: tuple[int, int], number: int) -> list[bytes]:
        """Return the attributes in the field `number` of the resource or scope of a message."""
        found: list[bytes] = []
        for part in self._inside(name, span, 1):
            attributes = messages_in(self._message, *part, number, self._left + 1)
            self._left -= len(attributes)
            if self._left < 0:
                raise PushInvalid(
                    f"resources or scopes have more than {_MOST_ATTRIBUTES:,} attributes, the limit"
                )
            found += [self._message[begin:end] for begin, end in attributes]
        return found


def _reading(
    message: bytes,
    size: int,
    resources: list[_Resource],
    options: ExportOptions,
    limits: Limits,
    *,
    known: Known,
) -> Reading:
    """Return how the profiles of a request of this size are read.

    `known` has the start lines. Raises PushInvalid, MalformedProfile, and LimitExceeded if the dictionary is
    too large.
    """
    dictionaries = messages_in(message, 0, len(message), 2, len(message))
    tables = DictionaryTables(message, dictionaries, limits)
    most = limits.inflated_bytes // _BYTES_OF_SHARED
    if (count := tables.count(_ATTRIBUTES)) > most:
        raise PushInvalid(
            f"the dictionary has {count:,} attributes; the limit is {most:,} (PGOF_MAX_INFLATED_BYTES)"
        )
    profiles = [profile for resource in resources for scope in resource.scopes for profile in scope.profiles]
    if samples := sum(counts_in(message, *profile)[_SAMPLES] for profile in profiles):
        limits.check("samples", samples)
        if not dictionaries:
            raise PushInvalid(f"there is no dictionary, as in OTLP of version 1.6 and before; {READ}")
        if not tables.count(_STACKS):
            raise PushInvalid(f"the dictionary has no stack_table, as in OTLP of version 1.7; {READ}")
    is_before = not options.is_json and is_before_1_10(
        message, profiles, tables.count(_ATTRIBUTES), tables.count(_LINKS)
    )
    room = limits._replace(inflated_bytes=min(limits.inflated_bytes, _SMALL_BYTES + _MOST_TIMES * size))
    of = Dictionary(tables, limits, lambda key: matches(key, options.sample_labels))
    conversion = Conversion(tables, room, of.label, of.folded, of.mapping)
    return Reading(of, conversion, is_before, known)


def _profiles(
    message: bytes, resources: list[_Resource], reading: Reading, options: ExportOptions
) -> Iterator[Unpacked]:
    """Yield each profile, or why it is refused: all from the one on that makes them too large together."""
    left = sum(len(scope.profiles) for resource in resources for scope in resource.scopes)
    for resource in resources:
        origins = _Origins(resource.attributes, reading.dictionary, options)
        for attributes, profiles in resource.scopes:
            found = origins.of(attributes)
            if isinstance(found, Refusal):
                yield from [found] * len(profiles)
                left -= len(profiles)
                continue
            origin, target = found
            for span in profiles:
                try:
                    profile = otlp.Profile.FromString(without(message, *span, _SAMPLES))
                    made = _payload(profile, message, span, reading)
                    made = made or to_pprof(profile, span, origin, reading)
                    placed = replace(target, labels=_labels(target.labels, made.joined_by))
                except DecodeError as error:
                    yield PushInvalid(f"a profile is malformed: {error}")
                except Refusal as error:
                    yield error.with_traceback(None)
                except LimitExceeded as error:
                    yield from [error.with_traceback(None)] * left
                    return
                else:
                    yield PushedProfile(made.content, partial(_place, placed))
                left -= 1


class _Origins:
    """The origins and targets of a resource's profiles: what its scopes share is worked out once."""

    def __init__(self, attributes: list[bytes], dictionary: Dictionary, options: ExportOptions) -> None:
        self._dictionary = dictionary
        self._options = options
        self._of_resource = found = self._read(attributes)
        # What else the resource has tells its process from others, whose profiles may be the same.
        is_whole = isinstance(found, Refusal) or len(found) == len(attributes)
        self._process = "" if is_whole else blake2b(b"\0".join(attributes), digest_size=8).hexdigest()
        # By the texts of a scope's attributes.
        self._targets: dict[tuple[tuple[str, str], ...], Target | Refusal] = {}

    def of(self, attributes: list[bytes]) -> tuple[Origin, Target] | Refusal:
        """Return where the profiles of a scope come from and go to, or why they are refused."""
        of_resource, of_scope = self._of_resource, self._read(attributes)
        if isinstance(of_resource, Refusal):
            return of_resource
        if isinstance(of_scope, Refusal):
            return of_scope
        key = tuple((name, text_of(value)) for name, value in of_scope.items())
        if key not in self._targets:
            self._targets[key] = self._target({**of_scope, **of_resource})
        target = self._targets[key]
        if isinstance(target, Refusal):
            return target
        return Origin(target.service, of_scope, self._process), target

    def _read(self, pairs: list[bytes]) -> dict[str, Value] | Refusal:
        try:
            found = self._dictionary.key_values(pairs, partial(is_named, self._options.labels))
        except Refusal as error:
            return error.with_traceback(None)
        if len(found) > _MOST_NAMED:
            return LabelsInvalid(
                f"{len(found)} attributes of a resource or scope become labels; the limit is 30"
            )
        return found

    def _target(self, attributes: Mapping[str, Value]) -> Target | Refusal:
        try:
            return target_of(attributes, self._options.labels, self._options.sender)
        except LabelsInvalid as error:
            return error.with_traceback(None)


def _place(target: Target, header: Header, has_start_lines: bool) -> Series:
    return replace(target, name=name_of(header)).series(header, has_start_lines)


def _labels(labels: Labels, joined_by: str) -> Labels:
    """Return the labels of a profile; one whose functions got start lines is marked. Raises LabelsInvalid."""
    return labels_of_pairs([*labels, (START_LINES, joined_by)], _MOST_LABELS) if joined_by else labels


def _payload(
    profile: otlp.Profile, message: bytes, span: tuple[int, int], reading: Reading
) -> Converted | None:
    """Return the original of the profile at these bytes if it is pprof; None if there is none.

    Raises NotPprof if there is nothing else of it.
    """
    if not profile.original_payload:
        return None
    if profile.original_payload_format == _PPROF:
        reading.conversion.take_bytes(len(profile.original_payload))
        return Converted(profile.original_payload)
    if not counts_in(message, *span)[_SAMPLES]:
        known = profile.original_payload_format[:50]
        raise NotPprof(f"the profile is only there in the format {known!r}: send its samples, or pprof")
    return None


def _from_json(text: bytes, options: ExportOptions, most: int) -> bytes:
    """Return the request, which has up to `most` values, as protobuf.

    Its fields have names, which are those of 1.10 in 1.8 and 1.9, too. Its lists are counted before they are
    converted, which takes long. protobuf raises SystemError for the name of a field that isn't UTF-8.
    """
    try:
        parsed = read_json(text, most)
        if parsed and not parsed.keys() & _OF_JSON:
            raise PushInvalid(f"the body isn't {_NAME}: it has neither resourceProfiles nor a dictionary")
        resources = [*_listed(parsed, "resourceProfiles", "resource_profiles")]
        _check_count(len(resources), options)
        scopes = [
            each for resource in resources for each in _listed(resource, "scopeProfiles", "scope_profiles")
        ]
        _check_count(len(scopes), options)
        profiles = [profile for scope in scopes for profile in _listed(scope, "profiles")]
        _check_count(len(profiles), options)
        if any("sample" in profile for profile in profiles):
            raise PushInvalid(f"this is OTLP of version 1.7 or before; {READ}")
        request = json_format.ParseDict(parsed, otlp.ExportRequest(), ignore_unknown_fields=True)
        for link in request.dictionary.link_table:
            link.trace_id, link.span_id = _id_of(link.trace_id, 16), _id_of(link.span_id, 8)
        return request.SerializeToString()
    except NOT_JSON as error:
        reason = str(error).encode(errors="backslashreplace").decode()  # it may quote half a surrogate pair
        raise PushInvalid(f"the body isn't {_NAME} as JSON: {reason}") from error


def _id_of(read: bytes, size: int) -> bytes:
    """Return an id of `size` bytes: JSON of OTLP has it as hex, which was read as base64, as bytes are."""
    with suppress(ValueError):
        if len(read) == 3 * size // 2:
            return bytes.fromhex(b64encode(read).decode())
    return read


def _listed(message: dict[str, Any], *names: str) -> Iterator[dict[str, Any]]:
    """Yield the messages in the list that has one of these names."""
    for name in names:
        yield from message.get(name) or ()


def _check_count(count: int, options: ExportOptions) -> None:
    if count > options.most_profiles:
        raise PushInvalid(
            f"the request has {count:,} resources, scopes or profiles; the limit is"
            f" {options.most_profiles:,} (PGOF_MAX_INFLATED_BYTES or PGOF_OTLP_PROFILES)"
        )
