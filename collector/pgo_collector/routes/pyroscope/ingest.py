"""The body of `/ingest`: a pprof profile, bare or as a form, or a file of speedscope, taken apart in a
worker; and its query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from google.protobuf.message import DecodeError
from pprof_merge import Header, Limits, MalformedProfile, inflate
from pprof_merge.codec import GZIP_MAGIC, count_inside, counts_in
from pprof_proto.profile_pb2 import Profile
from starlette.datastructures import QueryParams

from pgo_collector.engine.pushes import PushedProfile, Unpacked
from pgo_collector.errors import NotPprof, ParameterInvalid, PushInvalid
from pgo_collector.http.forms import form_boundary, form_parts, is_form
from pgo_collector.model.series import Series
from pgo_collector.readers.json_text import read_json
from pgo_collector.readers.speedscope import read_speedscope
from pgo_collector.routes.push.naming import Sender, Target, profile_name

_NAME = re.compile(r"\s*(?P<app>[A-Za-z0-9_.\-/]+)\s*(?:\{(?P<labels>[^{}]*)\}\s*)?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9_.]+")
# Digits of a time, and nanoseconds in its unit.
_TIME_UNITS: Mapping[int, int] = MappingProxyType({10: 10**9, 13: 10**6, 16: 10**3, 19: 1})
_TIME = re.compile(r"(\d{10,19})(?:\.\d*)?")

# The formats that aren't read, as `format` and parts of content types name them.
_OTHER_FORMATS = ("jfr", "trie", "tree", "lines")
_PPROF, _SPEEDSCOPE = "pprof", "speedscope"
# The label that tells the profiles of one file apart.
_NAME_IN_FILE = "speedscope_name"
_MOST_PARTS = 16
# Values of the JSON about sample types: a profile has 100 types at most.
_MOST_IN_CONFIG = 10_000

# Messages and strings of a profile that is repaired, labels and lines among them, each an object.
_MOST_REPAIRED = 400_000

# How .NET's SDK is told: by what it says, or by a sample type that only it spells so.
_DOTNET, _UNKNOWN = "dotnetspy", "unknown"
_DOTNET_TYPE = "inuse-space"


class IngestOptions(NamedTuple):
    """Parameters of the profile in a request's body; the time is in ns since 1970, None for now."""

    labels: tuple[tuple[str, str], ...]
    created_nanos: int | None
    format: str
    content_type: str
    sender: Sender


@dataclass(frozen=True, slots=True)
class _Form:
    """The profile in a body, and what its sample types are called."""

    profile: bytes
    display_names: Mapping[str, str]


def ingest_options(query: QueryParams, content_type: str, sender: Sender) -> IngestOptions:
    """Return what a request says of the profile in its body. Raises ParameterInvalid."""
    app, labels = parse_name(query.get("name", ""))
    spy = query.get("spyName", "") or _UNKNOWN
    # A client makes deltas itself, or has none to make.
    own = {"service_name": app, "__delta__": "false"} | labels | {"pyroscope_spy": spy}
    return IngestOptions(
        tuple(own.items()),
        parse_time(query.get("from", "")),
        query.get("format", ""),
        content_type,
        sender,
    )


def parse_name(text: str) -> tuple[str, dict[str, str]]:
    """Return the app and the labels of `app.name{key=value,key2=value2}`. Raises ParameterInvalid."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise ParameterInvalid(f"name={text[:50]}: give the name of the app, or app{{key=value,…}}")
    labels = {}
    for part in filter(str.strip, (match["labels"] or "").split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not _LABEL_NAME.fullmatch(key):
            raise ParameterInvalid(f"name: {part[:50]!r} is not a label: write key=value")
        labels[key] = value
    return match["app"], labels


def parse_time(text: str) -> int | None:
    """Return a time in s, ms, µs or ns, which its number of digits tells, in ns; None for any other text."""
    match = _TIME.fullmatch(text) if text.isascii() else None
    if match is None or len(match[1]) not in _TIME_UNITS:
        return None
    nanos = int(match[1]) * _TIME_UNITS[len(match[1])]
    return nanos if nanos < 1 << 63 else None


def unpack_ingest(options: IngestOptions, content: bytes, limits: Limits) -> list[Unpacked]:
    """Return the profile of a request; none if it is empty. Raises NotPprof, PushInvalid or ProfileError."""
    if options.format == _SPEEDSCOPE:
        return _of_speedscope(options, content, limits)
    for name in _OTHER_FORMATS:
        if options.format == name or f"+{name}" in options.content_type:
            raise NotPprof(f"the profile is in the format {name}; only pprof can be read: send format=pprof")
    form = _form_of(options, content, limits)
    if not form.profile:
        return []
    if _is_dotnets(dict(options.labels)["pyroscope_spy"], form):
        form = _repaired(form, limits)

    def place(header: Header, has_start_lines: bool) -> Series:
        labels = [("__name__", profile_name(header, form.display_names)), *options.labels]
        return Target.of(dict(labels).items(), options.sender).series(header, has_start_lines)

    return [PushedProfile(form.profile, place, options.created_nanos)]


def _of_speedscope(options: IngestOptions, content: bytes, limits: Limits) -> list[Unpacked]:
    """Return the profiles in a file of speedscope, each with its name as a label."""
    app = dict(options.labels)["service_name"]
    found: list[Unpacked] = []
    for each in read_speedscope(content, app, limits):
        own = {**dict(options.labels), "service_name": each.app, _NAME_IN_FILE: each.name}

        def place(header: Header, has_start_lines: bool, own: dict[str, str] = own) -> Series:
            labels = {"__name__": profile_name(header, {}), **own}
            return Target.of(labels.items(), options.sender).series(header, has_start_lines)

        found.append(PushedProfile(each.content, place, options.created_nanos))
    return found


def _form_of(options: IngestOptions, content: bytes, limits: Limits) -> _Form:
    if is_form(options.content_type) and (boundary := form_boundary(options.content_type)):
        form = form_parts(inflate(content, limits), boundary, _MOST_PARTS)
        parts = {name: part.content for name, part in form.items()}
        if parts or options.format != _PPROF:
            return _form(parts)
    elif options.format != _PPROF and not content.startswith((GZIP_MAGIC, b"\x0a")):
        raise NotPprof("the body is neither pprof nor a form; only pprof can be read: send format=pprof")
    return _Form(content, {})


def _form(parts: Mapping[str, bytes]) -> _Form:
    if "jfr" in parts:
        raise NotPprof("the profile is in the format jfr; only pprof can be read: send format=pprof")
    if "prev_profile" in parts:
        raise NotPprof("the form has two profiles to subtract: update the client, which then sends one")
    if "profile" not in parts:
        raise PushInvalid("the form has no part named profile")
    return _Form(parts["profile"], _display_names(parts.get("sample_type_config", b"{}")))


def _display_names(config: bytes) -> dict[str, str]:
    """Return the names of sample types in the part sample_type_config. Raises PushInvalid."""
    try:
        types = read_json(config, _MOST_IN_CONFIG)
        return {name: str(of.get("display-name") or "") for name, of in types.items()}
    except (ValueError, AttributeError, RecursionError) as error:
        raise PushInvalid("sample_type_config: this isn't JSON of sample types and their settings") from error


def _is_dotnets(spy: str, form: _Form) -> bool:
    return spy == _DOTNET or (spy == _UNKNOWN and _DOTNET_TYPE in form.display_names)


def _repaired(form: _Form, limits: Limits) -> _Form:
    """Return a form of .NET's SDK with the ids and names that its profile should have.

    Pyroscope does the same. The SDK numbers no function: lines know each by the id of the location in its
    place. Its sample types have `-` for `_`. A profile that can't be parsed stays, to be refused. Raises
    ProfileError.
    """
    content = inflate(form.profile, limits)
    try:
        counts = counts_in(content, 0, len(content))
        nested = count_inside(content, 2, 3) + count_inside(content, 4, 4)
        if sum(counts) + nested > _MOST_REPAIRED:
            raise PushInvalid(f"a profile of .NET's SDK has more than {_MOST_REPAIRED:,} messages, the limit")
        for number, limit in enumerate(("samples", "mappings", "locations", "functions", "strings"), 2):
            limits.check(limit, counts[number])
        profile = Profile.FromString(content)
    except (DecodeError, MalformedProfile):
        return form
    functions, locations = profile.function, profile.location
    if len(functions) == len(locations) and not any(function.id for function in functions):
        for function, location in zip(functions, locations, strict=True):
            function.id = location.id
    for sample_type in profile.sample_type:
        if 0 <= sample_type.type < len(profile.string_table):
            name = profile.string_table[sample_type.type]
            if b"-" in name:  # other texts may be the same
                sample_type.type = len(profile.string_table)
                profile.string_table.append(name.replace(b"-", b"_"))
    names = {name.replace("-", "_"): shown for name, shown in form.display_names.items()}
    return _Form(profile.SerializeToString(), names)
