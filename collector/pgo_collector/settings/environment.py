"""Read the settings from the environment and a file, and say what is wrong with either."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from pgo_collector.errors import SettingsInvalid
from pgo_collector.settings.fields import FieldsInvalid
from pgo_collector.settings.settings import PREFIX, Settings, own_keys

_FILE = f"{PREFIX}SETTINGS_FILE"
# What Kubernetes tells each container of its namespace's services: names, and beginnings of values.
_OF_KUBERNETES = re.compile(r"\w+_SERVICE_(?:HOST|PORT(?:_\w+)?)|\w+_PORT_\d+_[A-Z]+_(?:PROTO|PORT|ADDR)")
_LINKS = ("tcp://", "udp://", "sctp://")
# What holds now in place of settings that there were before the first release.
_GONE = {
    "bulk_blobs": "the cluster reads 5,000 unread profiles or more",
    "captures": "two profiles are taken at once",
    "clock_ahead_seconds": "a profile may be 300 seconds ahead",
    "debuginfod_builds": "300 build ids an hour are asked for",
    "grpc_connection_seconds": "a connection to the port of gRPC lasts an hour",
    "label_values": "the pages list 100 values of a label",
    "max_header_bytes": "a request may have 64 KiB of headers",
    "max_headers": "a request may have 100 headers",
    "max_url_bytes": "a URL may have 16 KiB",
    "min_chunk_bytes": "chunks of a body have 64 bytes on average",
    "query_labels": "an answer to Grafana may have 10,000 label values",
    "query_nodes": "a flame graph for Grafana may have 16,384 calls",
    "query_points": "an answer to Grafana may have 100,000 points",
    "release_sets": "100 sets of services may have releases",
    "selection_characters": "a selection on the pages may have 1,000 characters",
    "session_hours": "a sign-in lasts 12 hours",
    "sign_in_wait": "a wait after wrong keys is 5 minutes at most",
    "storage_requests": "each process has 16 requests to the object store at once",
    "symbols_builds": "100 builds of a service keep start lines",
    "timeline_steps": "a timeline has 120 steps",
    "trace_days": "traces are kept for 7 days, within PGOF_TRACE_MEGABYTES",
    "trace_osprofiler": "OSProfiler's headers are accepted; without PGOF_TRACE_KEYS_FILE, none are",
    "trace_parts": "all parts are recorded",
    "trace_spans": "1,000 steps of a request are recorded",
    "trace_step_seconds": "a client may report 30 days",
    "trace_steps": "a client may report 64 steps",
    "trace_values": "no trace contains a query string",
    "trace_window": "the time of a signature may be 300 seconds from now",
    "traces_waiting": "1,000 traces may wait to be written",
    "webhook_days": "an event is tried for 3 days",
    "webhook_events_kept": "10,000 events may wait",
    "webhook_timeout": "the receiver of an event has 15 seconds to answer",
}


def read_settings(*, takes_unknown: bool = False) -> Settings:
    """Return the settings of the environment and its file. Raises SettingsInvalid, which names the variables.

    The case of letters in names of variables doesn't matter. An unknown variable is invalid as well, unless
    PGOF_UNKNOWN_SETTINGS allows it, or `takes_unknown`.
    """
    given_names = _given_variables(os.environ)
    variables = {name.upper(): value for name, value in given_names.items()}
    names = {name: _variable(name) for name in Settings.fields}
    given = {name: variables[variable] for name, variable in names.items() if variable in variables}
    try:
        settings = Settings(**given)
    except FieldsInvalid as error:
        faults = [f"{names[name]}: {fault}" for name, fault in error.faults.items()]
        raise SettingsInvalid("; ".join(faults)) from None
    # A socket that systemd passes may listen on any address.
    if settings.has_no_keys and "LISTEN_FDS" not in variables:
        settings = Settings(**given, **own_keys(settings.directory))
    unknown = _unknown_variables(given_names)
    if unknown and settings.unknown_settings == "refuse" and not takes_unknown:
        faults = [f"{name} isn't a setting: {fix}" for name, fix in unknown.items()]
        raise SettingsInvalid("; ".join([*faults, "or set PGOF_UNKNOWN_SETTINGS=warn"]))
    settings.given, settings.unknown_variables = len(given), unknown
    return settings


def _given_variables(environment: Mapping[str, str]) -> dict[str, object]:
    """Return the variables of an environment, and those that its settings file gives, which count for less.

    The latter come first, with names in upper case. Raises SettingsInvalid.
    """
    path = {name.upper(): value for name, value in environment.items()}.get(_FILE)
    if not path:
        return dict(environment)
    try:
        in_file = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsInvalid(f"{_FILE}: {path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsInvalid(f"{_FILE}: {path} isn't TOML: {error}") from error
    return {_variable(name): value for name, value in in_file.items()} | dict(environment)


def _unknown_variables(environment: Mapping[str, object]) -> dict[str, str]:
    """Return what to do about each variable of an environment that looks like a setting and is none, by name.

    A variable that Kubernetes makes for a service called pgof, or pgof-something, doesn't look like one.
    """
    known = [_variable(name) for name in Settings.fields]
    unknown = {}
    for name in sorted(environment):
        is_kubernetes = _OF_KUBERNETES.fullmatch(name) or str(environment[name]).startswith(_LINKS)
        if name.upper().startswith(PREFIX) and name.upper() not in known and not is_kubernetes:
            unknown[name] = _fix(name.upper(), known)
    return unknown


def _fix(variable: str, known: list[str]) -> str:
    if now := _GONE.get(variable.removeprefix(PREFIX).lower()):
        return f"{now}; unset it"
    near = get_close_matches(variable, known, 1)
    return f"did you mean {near[0]}?" if near else "unset it"


def _variable(name: str) -> str:
    return f"{PREFIX}{name}".upper()
