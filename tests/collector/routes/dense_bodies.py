"""Bodies as large as they may be, with as much in each byte as each protocol allows; and how it reads them.

They are written by hand: the classes of protobuf would take longer than what is measured.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple, cast

from pgo_collector.engine.call_places import Place
from pgo_collector.engine.pushes import PushedProfile, Unpack
from pgo_collector.engine.start_lines import KnownFunction, StartLines, Tables
from pgo_collector.model.series import Series
from pgo_collector.routes.datadog.upload import UploadOptions, unpack_upload
from pgo_collector.routes.otlp.unpack import unpack_export
from pgo_collector.routes.parca.write_raw import WriteOptions, unpack_write_raw
from pgo_collector.routes.push.naming import Sender
from pgo_collector.routes.pyroscope.ingest import IngestOptions, unpack_ingest
from pgo_collector.routes.pyroscope.push import PushOptions, unpack_push
from pprof_merge import Limits

from tests.collector.pushing import form
from tests.collector.routes.hostile_bodies import export_options, upload
from tests.oracle.wire import number, record, varint

FULL = 8 << 20
_MIB = 1 << 20


class Dense(NamedTuple):
    """A shape: what makes a body, what reads it, and the memory that it may take, in MiB."""

    make: Callable[[], bytes]
    unpack: Unpack
    megabytes: int = 100


def _numbers(field: int, values: Iterable[int]) -> bytes:
    return record(field, b"".join(map(varint, values)))


def _every(field: int, messages: Iterable[bytes]) -> bytes:
    return b"".join(record(field, message) for message in messages)


# OTLP

_STRINGS = (b"", b"thread.name", b"f", b"process.executable.build_id.gnu", b"pprof.location.is_folded")


class _Known:
    """A table that knows all functions."""

    known = KnownFunction(7, is_uploaded=True)

    def find(self, *_: str) -> _Known:
        """Return a function."""
        return self

    def has(self, *_: int) -> bool:
        """Return whether a line is in it."""
        return True

    def place(self, *_: int, is_call: bool) -> Place | None:
        """Return the lines of an address, if it isn't a call."""
        return None if is_call else Place((("f", "a.go", 7, 0),) * 2, is_uploaded=True)


class _KnownTables:
    """Tables of all builds."""

    def versions(self, *_: object) -> Mapping[str, str]:
        """Return one."""
        return {"a": "1"}

    def read(self, *_: object) -> StartLines:
        """Return a table."""
        return cast("StartLines", _Known())


def _sample(stack: int, attributes: Iterable[int] = ()) -> bytes:
    return record(2, number(1, stack) + _numbers(2, attributes) + _numbers(4, [1]))


def _text(key: int, text: bytes) -> bytes:
    """Return an attribute of the dictionary."""
    return number(1, key) + record(2, record(1, text))


# An attribute with a build id.
_BUILD = _text(3, b"abc")


def _location(function: int, mapping: int = 0) -> bytes:
    return number(1, mapping) + number(2, 5) + record(3, number(1, function) + number(2, 9))


def _in_stacks(locations: int, size: int = 100) -> list[bytes]:
    """Return stacks that have all locations once."""
    return [_numbers(1, range(first, first + size)) for first in range(1, locations - size + 2, size)]


def _export(
    profiles: Iterable[bytes],
    stacks: Iterable[bytes] = (b"\x0a\x01\x01",),
    *,
    locations: Iterable[bytes] = (_location(1),),
    functions: Iterable[bytes] = (b"\x08\x02",),
    attributes: Iterable[bytes] = (),
    mappings: Iterable[bytes] = (),
    strings: Iterable[bytes] = (),
    resource: bytes = b"",
) -> bytes:
    """Return a request; the tables get an entry 0."""
    tables = (1, mappings), (2, locations), (3, functions), (6, attributes), (7, stacks)
    dictionary = b"".join(_every(of, (b"", *table)) for of, table in tables)
    dictionary += _every(5, (*_STRINGS, *strings))
    scope = _every(2, profiles)
    body = record(1, record(1, resource) + record(2, scope)) + record(2, dictionary)
    assert len(body) <= FULL, len(body)
    return body


def _samples_of_stacks() -> bytes:
    count = 400_000
    return _export([b"".join(map(_sample, range(1, count + 1)))], [b"\x0a\x01\x01"] * count)


def _samples_of_a_stack() -> bytes:
    return _export([_sample(1) * 1000] * 450)


def _labels() -> bytes:
    count = 39_000
    samples = (_sample(1, [1 + at % count, 1 + at * 7 % count]) for at in range(240_000))
    return _export([b"".join(samples)], attributes=[_text(1, b"%x" % at) for at in range(count)])


def _keys_and_functions() -> bytes:
    """Return a request of which every part is as large as may be beside the others."""
    keys, count = 39_000, 90_000
    strings = [b"f%x" % at for at in range(count)] + [b"process.context.label.%x" % at for at in range(keys)]
    first = len(_STRINGS)
    return _export(
        [b"".join(_sample(1 + at % (count // 2), [1 + at]) for at in range(keys))],
        _in_stacks(count, 2),
        locations=[_location(1 + at, mapping=1) for at in range(count)],
        functions=[number(1, first + at) for at in range(count)],
        attributes=[*(_text(first + count + at, b"a") for at in range(keys)), _BUILD],
        mappings=[_numbers(5, [keys + 1])],
        strings=strings,
    )


def _locations() -> bytes:
    count = 400_000
    stacks = _in_stacks(count)
    return _export(
        [b"".join(map(_sample, range(1, len(stacks) + 1)))],
        stacks,
        locations=[b"\x08\x01\x1a\x02\x08\x01"] * count,
        attributes=[_BUILD],
        mappings=[_numbers(5, [1])],
    )


def _folded() -> bytes:
    count = 39_000
    stacks = _in_stacks(count)
    return _export(
        [b"".join(map(_sample, range(1, len(stacks) + 1)))],
        stacks,
        locations=[b"\x1a\x02\x08\x01" + _numbers(4, [1 + at]) for at in range(count)],
        attributes=[number(1, 4) + b"\x12\x02\x10\x01"] * count,
    )


def _profiles_of_a_deep_stack() -> bytes:
    count = 490_000
    return _export(
        [_sample(1)] * 999, [_numbers(1, range(1, count + 1))], locations=[b"\x1a\x02\x08\x01"] * count
    )


def _profiles_of_many_mappings() -> bytes:
    count = 9_900
    stacks = _in_stacks(count)
    return _export(
        [b"".join(map(_sample, range(1, len(stacks) + 1)))] * 40,
        stacks,
        locations=[_location(1, at) for at in range(1, count + 1)],
        attributes=[_text(3, b"%x" % at) for at in range(count)],
        mappings=[number(1, at) + _numbers(5, [at]) for at in range(1, count + 1)],
        strings=[b"f"] * 400_000,
    )


def _mappings_with_attributes() -> bytes:
    count = 9_900
    return _export(
        [b"".join(map(_sample, range(1, count // 100 + 1)))],
        _in_stacks(count),
        locations=[_location(1, at) for at in range(1, count + 1)],
        attributes=[_text(3, b"%x" % at) for at in range(120)],
        mappings=[_numbers(5, [1 + at % 120 for at in range(249)])] * count,
    )


def _empty_values() -> bytes:
    """Return a request with an attribute of four million empty values."""
    values = record(2, record(5, b"\x0a\0" * (4 * _MIB - 100)))
    return _export([_sample(1)], resource=record(1, record(1, b"host.name") + values))


def _unknown_fields_of_a_stack() -> bytes:
    keys = 39_000
    return _export(
        [b"".join(_sample(1, [1 + at]) for at in range(keys))],
        [b"\x0a\x01\x01" + b"\x78\0" * (3 * _MIB)],
        attributes=[_text(1, b"%x" % at) for at in range(keys)],
    )


def _unknown_fields_of_a_location() -> bytes:
    return _export([_sample(1)] * 999, locations=[_location(1) + b"\x78\0" * (4 * _MIB - 20_000)])


def _profiles_of_long_locations() -> bytes:
    """Return a request whose profiles have a few locations with many lines of one function."""
    lines = record(3, number(1, 1) + number(2, 9)) * 10_000
    return _export(
        [_sample(1)] * 999,
        [_numbers(1, range(1, 6))],
        locations=[number(1, 1) + lines] * 5,
        attributes=[_BUILD],
        mappings=[_numbers(5, [1])],
    )


def _a_long_name() -> bytes:
    """Return a request whose locations are all of one function, which has a long name."""
    return _export(
        [_sample(1)] * 9,
        [_numbers(1, range(1, 1001))],
        locations=[_location(1, mapping=1)] * 1000,
        functions=[number(1, len(_STRINGS))],
        attributes=[_BUILD],
        mappings=[_numbers(5, [1])],
        strings=[b"." * (4 * _MIB)],
    )


def _a_malformed_attribute() -> bytes:
    """Return a request whose profiles are all refused for an attribute, most of which can be read."""
    attribute = number(1, 1) + record(2, record(1, b"")) * 50_000 + b"\x12\x05"
    return _export([_sample(1, [1])] * 999, attributes=[attribute])


# It is long until it turns out not to be UTF-8.
_NOT_TEXT = b"." * (4 * _MIB) + b"\xff"


def _a_type_that_is_no_text() -> bytes:
    of_type = record(1, number(1, len(_STRINGS)))
    return _export([_sample(1) + of_type] * 999, strings=[_NOT_TEXT])


def _a_name_that_is_no_text() -> bytes:
    return _export(
        [_sample(1)] * 999,
        locations=[_location(1, mapping=1)],
        functions=[number(1, len(_STRINGS))],
        attributes=[_BUILD],
        mappings=[_numbers(5, [1])],
        strings=[_NOT_TEXT],
    )


def _one_field_of_a_mapping() -> bytes:
    """Return a request whose profiles have one mapping, in which one field comes again and again."""
    return _export(
        [_sample(1)] * 999, locations=[_location(1, mapping=1)], mappings=[number(2, 1) * (2 * _MIB)]
    )


def _long_numbers_of_a_stack() -> bytes:
    return _export([_sample(1)] * 99, [record(1, b"\x81\x80\x80\x80\x80\x80\x80\x80\x80\0" * 830_000)])


def _empty_values_of_labels() -> bytes:
    """Return a request whose labels are lists that aren't read."""
    values = record(2, record(5, b"\x0a\0" * (120 << 10)))
    samples = b"".join(_sample(1, [at]) for at in range(1, 33))
    return _export([samples], attributes=[number(1, 2) + values] * 33)


def _empty_values_of_many() -> bytes:
    values = record(1, record(1, b"host.name") + record(2, record(5, b"\x0a\0" * (100 << 10))))
    return _export([_sample(1)], resource=values * 40)


# pprof

_LABEL = record(3, number(1, 1) + number(2, 2))


def _profile(
    samples: bytes,
    locations: Iterable[bytes] = (b"", b""),
    functions: int = 1,
    types: Iterable[bytes] = (b"a",),
) -> bytes:
    """Return a profile; locations and functions get ids."""
    strings = (b"", b"a", b"n", *types)
    of_types = [number(1, 3 + at) + number(2, 2) for at, _ in enumerate(types)]
    numbered = [number(1, at) + location for at, location in enumerate(locations, 1)]
    of_functions = [number(1, at) + number(2, 1) for at in range(1, functions + 1)]
    return _every(1, of_types) + samples + _every(4, numbered) + _every(5, of_functions) + _every(6, strings)


@cache
def _profile_of_samples() -> bytes:
    return _profile(record(2, _numbers(1, [1]) + _numbers(2, [1]) + _LABEL) * 490_000)


def _profile_of_many_values() -> bytes:
    sample = record(2, _numbers(1, [1]) + _numbers(2, [1] * 100))
    return _profile(sample * 60_000, types=[b"a"] * 100)


@cache
def _profile_of_frames() -> bytes:
    sample = record(2, _numbers(1, [1, 2] * 16) + _numbers(2, [1]))
    return _profile(sample * 62_000)


@cache
def _profile_of_locations() -> bytes:
    count = 300_000
    line = [record(4, number(1, at) + number(2, 1)) for at in range(1, count + 1)]
    return _profile(record(2, _numbers(1, [1]) + _numbers(2, [1])), line, count)


_TYPES = (b"samples", b"cpu", b"wall", b"alloc", b"heap", b"lock", b"exception", b"timeline", b"gpu", b"z")


def _profile_of_types() -> bytes:
    sample = record(2, _numbers(1, [1]) + _numbers(2, [1] * 10) + _LABEL)
    return _profile(sample * 149_000, types=_TYPES)


def _profile_of_types_and_strings() -> bytes:
    sample = record(2, _numbers(1, [1]) + _numbers(2, [1] * 10))
    return _profile(sample, types=_TYPES) + _every(6, (b"%x" % at for at in range(490_000)))


def _profile_of_types_and_locations() -> bytes:
    """Return a profile of which each type has nearly all."""
    count = 300_000
    lines = [record(4, number(1, at) + number(2, 1)) for at in range(1, count + 1)]
    stacks = (_numbers(1, range(at, at + 100)) for at in range(1, count - 98, 100))
    samples = _every(2, (stack + _numbers(2, [1] * 10) for stack in stacks))
    return _profile(samples, lines, count, _TYPES)


def _profile_of_empty_labels() -> bytes:
    return _profile(record(2, b"\x1a\0" * (4 * _MIB - 1000)))


def _dotnet(profile: bytes) -> bytes:
    return form(profile=profile[: FULL - 1000], sample_type_config=b"{}")[0]


def _series(field: int, profile: bytes, name: bytes = b"process_cpu", count: int = 1) -> bytes:
    """Return a request of one series with a profile, `count` times, for Push or WriteRaw."""
    label = record(1, record(1, b"__name__") + record(2, name))
    labels = label if field == 1 else record(1, label)
    return record(field, labels + record(2, record(1, profile)) * count)


def _series_of_a_long_name(field: int) -> bytes:
    profile = _profile(record(2, _numbers(1, [1]) + _numbers(2, [1])))
    return _series(field, profile, b"%" * (FULL - 20_000), count=90)


def _series_in_json(profile: bytes) -> bytes:
    labels, content = '[{"name":"__name__","value":"process_cpu"}]', b64encode(profile).decode()
    return _in_json("series", f'[{{"labels":{labels},"samples":[{{"rawProfile":"{content}"}}]}}]')


def _uploaded(profile: bytes) -> bytes:
    return upload("a:b", {"a.pprof": profile})


def _long_tag() -> bytes:
    profile = _profile(record(2, _numbers(1, [1]) + _numbers(2, [1])))
    return upload("a:" + "/" * ((4 << 20) - 1000), {f"cpu{at}.pprof": profile for at in range(90)})


def _unpack_submit(content: bytes, _: Limits) -> list[PushedProfile]:
    return [PushedProfile(content, lambda *_: Series("a", "cpu", ()))]


_PROFILES = {"samples": _profile_of_samples, "frames": _profile_of_frames, "locations": _profile_of_locations}


def _of_speedscope(frames: int, samples: Sequence[Sequence[int]]) -> bytes:
    profile = {"type": "sampled", "unit": "none", "samples": samples, "weights": [1] * len(samples)}
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": f"f{number}", "line": number} for number in range(frames)]},
        "profiles": [profile],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _samples_of_speedscope() -> bytes:
    """Return stacks that have little in common."""
    return _of_speedscope(500, [[number % 500, number // 500, *range(6)] for number in range(26_000)])


def _frames_of_speedscope() -> bytes:
    return _of_speedscope(60_000, [[*range(of, of + 1000)] for of in range(0, 60_000, 1000)])


def dense_bodies() -> Iterator[tuple[str, Dense]]:
    """Yield the name of each shape, and the shape."""
    export = partial(unpack_export, export_options(is_json=False))
    known = cast("Tables", _KnownTables())
    joined = partial(unpack_export, export_options(is_json=False)._replace(start_lines=known))
    for make in (
        _samples_of_stacks, _samples_of_a_stack, _labels, _keys_and_functions, _locations, _folded,
        _profiles_of_a_deep_stack, _profiles_of_many_mappings, _mappings_with_attributes, _empty_values,
        _empty_values_of_many, _empty_values_of_labels, _unknown_fields_of_a_stack,
        _unknown_fields_of_a_location, _long_numbers_of_a_stack, _one_field_of_a_mapping,
        _profiles_of_long_locations, _a_long_name, _a_malformed_attribute, _a_type_that_is_no_text,
        _a_name_that_is_no_text,
    ):  # fmt: skip
        name = make.__name__.strip("_").replace("_", " ")
        yield f"otlp, {name}", Dense(make, export)
        if make in {
            _keys_and_functions, _locations, _profiles_of_many_mappings, _profiles_of_long_locations,
            _a_long_name, _a_name_that_is_no_text,
        }:  # fmt: skip
            yield f"otlp of a known build, {name}", Dense(make, joined, 110)
    export_json = partial(unpack_export, export_options(is_json=True))
    push, push_json = (partial(unpack_push, PushOptions(as_json, 100, Sender())) for as_json in (False, True))
    write = partial(unpack_write_raw, WriteOptions(100, Sender()))
    of_dotnet = (("service_name", "a"), ("pyroscope_spy", "dotnetspy"))
    ingest = partial(unpack_ingest, IngestOptions(of_dotnet, None, "", form()[1], Sender()))
    split = partial(unpack_upload, UploadOptions("xYz", 100, "", Sender()))
    wide, escapes = f'"😀{"a" * (FULL - 100)}"', '"' + "\\ud800" * (FULL // 6 - 100) + '"'
    for name, text in (("wide letters", wide), ("escapes", escapes)):
        yield f"otlp json, {name}", Dense(partial(_in_json, "resourceProfiles", text), export_json)
        yield f"push json, {name}", Dense(partial(_in_json, "series", text), push_json)
    lines = '[{"lines":[' + ",".join(['{"functionIndex":1}'] * 49_900) + "]}]"
    yield (
        "otlp json, lines",
        Dense(partial(_in_json, "dictionary", f'{{"locationTable":{lines}}}'), export_json),
    )
    yield "push json, frames", Dense(_then(_profile_of_frames, _series_in_json), push_json)
    for name, of in _PROFILES.items():
        yield f"submit, {name}", Dense(of, _unpack_submit)
        yield (
            f"submit, gzip of {name}",
            Dense(_then(of, partial(gzip.compress, compresslevel=1)), _unpack_submit),
        )
        yield f"push, {name}", Dense(_then(of, partial(_series, 1)), push)
        yield f"write raw, {name}", Dense(_then(of, partial(_series, 2)), write)
        yield f"ingest of .NET, {name}", Dense(_then(of, _dotnet), ingest)
        yield f"datadog, {name}", Dense(_then(of, _uploaded), split, 150)
    yield "push, a long name", Dense(partial(_series_of_a_long_name, 1), push)
    yield "write raw, a long name", Dense(partial(_series_of_a_long_name, 2), write)
    yield "ingest of .NET, empty labels", Dense(_then(_profile_of_empty_labels, _dotnet), ingest)
    speedscope = partial(unpack_ingest, IngestOptions(of_dotnet, None, "speedscope", "", Sender()))
    yield "ingest of speedscope, samples", Dense(_samples_of_speedscope, speedscope)
    yield "ingest of speedscope, frames", Dense(_frames_of_speedscope, speedscope)
    yield "datadog, a long tag", Dense(_long_tag, split)
    yield "datadog, many values", Dense(_then(_profile_of_many_values, _uploaded), split)
    yield "datadog, nine types", Dense(_then(_profile_of_types, _uploaded), split)
    yield "datadog, strings of nine types", Dense(_then(_profile_of_types_and_strings, _uploaded), split)
    yield "datadog, nine types of all", Dense(_then(_profile_of_types_and_locations, _uploaded), split, 200)


def _then(make: Callable[[], bytes], wrap: Callable[[bytes], bytes]) -> Callable[[], bytes]:
    return lambda: wrap(make())


def _in_json(name: str, text: str) -> bytes:
    return f'{{"{name}":{text}}}'.encode()
