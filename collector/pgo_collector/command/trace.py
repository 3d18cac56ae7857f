"""`pgo-collector trace list`, `show`, `profile` and `sign`: read what a collector kept, and sign."""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pprof_merge.streams import say

from pgo_collector.errors import SettingsInvalid, TracesUnreadable
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.settings import Settings, read_settings
from pgo_collector.traces.forms import FORMS
from pgo_collector.traces.keys import TraceKeys
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.profiles import profile_of_traces
from pgo_collector.traces.saved import read_saved
from pgo_collector.traces.signing import new_origin, sign, sign_as_osprofiler, uuids_of
from pgo_collector.traces.texts import printable
from pgo_collector.traces.trace_store import ALL_SERVICES, FILE, TraceQuery, TraceReader

# The traces of a file that an error names.
_MOST_NAMED = 10


def list_traces(arguments: argparse.Namespace) -> None:
    """Print the kept requests, one a line. Raises TracesUnreadable."""
    query = TraceQuery(
        _services(arguments),
        errors=arguments.errors,
        order="slowest" if arguments.slowest else "newest",
        limit=arguments.limit,
    )
    for found in _reader(read_settings()).summaries(query):
        when = datetime.fromtimestamp(found.start / 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        what = printable(f"{found.name} {found.service}").rstrip()
        print(f"{found.trace}  {when}  {found.nanos / 1e6:10.3f} ms  {found.status}  {what}")


def show_trace(arguments: argparse.Namespace) -> None:
    """Print a trace that is kept, or one of a file. Raises TracesUnreadable if it isn't there."""
    if arguments.file is not None:
        requests = [_saved(arguments.file, arguments.trace)]
    elif arguments.trace is None:
        raise TracesUnreadable("name a trace (`pgo-collector trace list` has all), or a --file")
    else:
        requests = [*_reader(read_settings()).requests(arguments.trace)]
    if not requests:
        raise TracesUnreadable(
            f"no trace {printable(arguments.trace)} is kept; `pgo-collector trace list` has all"
        )
    print(FORMS[arguments.form].write(requests[0].trace, requests), end="")


def profile_traces(arguments: argparse.Namespace) -> None:
    """Write the requests of a span of days as one profile. Raises TracesUnreadable if there are none."""
    now, services = time.time_ns(), _services(arguments)
    since, until = (now - int(days * DAY_NANOS) for days in (arguments.days, arguments.days_before))
    query = TraceQuery(
        services, errors=arguments.errors, since=max(since, 0), until=until, limit=arguments.limit
    )
    requests = list(_reader(read_settings()).traces(query))
    if not requests:
        raise TracesUnreadable("no traces of that time are kept; `pgo-collector trace list` has all")
    try:
        arguments.file.write_bytes(gzip.compress(profile_of_traces(requests), mtime=0))
    except OSError as error:
        raise TracesUnreadable(f"{arguments.file}: {error.strerror}") from error
    say(f"{sum(not request.is_report for request in requests)} requests")


def sign_request(arguments: argparse.Namespace) -> None:
    """Print the headers that have one request traced, as options of curl, and the command that shows it.

    Raises SettingsInvalid if there is no trace key.
    """
    settings = read_settings()
    if settings.trace_keys_file is None:
        raise SettingsInvalid("PGOF_TRACE_KEYS_FILE: set it to the file of trace keys")
    key, origin = TraceKeys(settings.trace_keys_file).keys[0], new_origin()
    if arguments.osprofiler:
        headers = sign_as_osprofiler(key, *uuids_of(*origin))
    else:
        headers = sign(key, *origin, seconds=int(time.time()))
    print(" ".join(f"--header '{name}: {value}'" for name, value in headers.items()))
    say(f"pgo-collector trace show {origin.trace}")


def _saved(file: Path, trace: str | None) -> RequestTrace:
    """Return a trace of a file: the named one, or the only one."""
    saved = read_saved(file)
    if trace is None and len(saved) == 1:
        (trace,) = saved
    if trace is None or trace.lower() not in saved:
        some = " ".join([*saved][:_MOST_NAMED])
        raise TracesUnreadable(f"{file}: name one of its {len(saved)} traces, such as {some}")
    return saved[trace.lower()]


def _services(arguments: argparse.Namespace) -> Sequence[str]:
    return ALL_SERVICES if arguments.service is None else arguments.service.split(",")


def _reader(settings: Settings) -> TraceReader:
    return TraceReader(settings.directory / FILE)
