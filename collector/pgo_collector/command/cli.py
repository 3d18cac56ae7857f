"""The command line: `pgo-collector serve`, `keys new`, `check`, `backup`, `restore`, `copy`, `expired`,
`trace`, `reindex`, `settings`.

Each command imports what it needs where it runs: all that this module imports is in each worker of `serve`.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pprof_merge import ENGINE
from pprof_merge.streams import flush_standard_output, open_standard_streams, say
from pprof_proto.release import ShowVersion

from pgo_collector.errors import CannotStart, CatalogFails, CatalogUnreadable, StorageFails
from pgo_collector.logs import set_up_logs
from pgo_collector.workers.fork_server import FORK_SERVER

if TYPE_CHECKING:
    from pgo_collector.serve.first_look import Opening

EXIT_INTERRUPTED = 130
EXIT_FAILED = 2


class _Parser(argparse.ArgumentParser):
    """A parser of a command. The help of some shows the settings, which are imported for that alone."""

    def format_help(self) -> str:
        if self.prog in {"pgo-collector", "pgo-collector serve"}:
            from pgo_collector.command.settings import basic_settings  # noqa: PLC0415 (see above)

            self.epilog = basic_settings()
        return super().format_help()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the commands, with their help."""
    parser = _Parser(
        prog="pgo-collector",
        description="Collect the pprof profiles of a fleet, and merge them for builds and for people.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    parser.add_argument("--version", action=ShowVersion, of="pgo-collector", more=f", engine {ENGINE}")
    command = commands.add_parser(
        "serve",
        help="serve HTTP until SIGTERM or Ctrl-C",
        description="Serve HTTP until SIGTERM or Ctrl-C.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=_serve)
    keys = commands.add_parser("keys", help="make keys").add_subparsers(required=True, metavar="COMMAND")
    command = keys.add_parser("new", help="print a new key, and add it to a keys file")
    command.add_argument(
        "file",
        nargs="?",
        type=Path,
        help="the keys file to add the key to; created with mode 0600 if missing",
    )
    command.add_argument("--name", help="the key's name in logs and answers")
    command.add_argument(
        "--service", help="the services that the key is for, comma-separated; * matches any text"
    )
    command.add_argument("--digest", action="store_true", help="write only the key's SHA-256 to the file")
    command.set_defaults(run=partial(_new_key, command))
    command = commands.add_parser(
        "check", help="check settings, keys, data folder and disk, and say what is wrong"
    )
    command.set_defaults(run=_check)
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command = commands.add_parser(
        "backup", help="copy the stored profiles and releases to a folder; safe while the server runs"
    )
    command.add_argument(
        "target", type=Path, metavar="TARGET", help="the folder of backups; created if missing"
    )
    command.set_defaults(run=_back_up)
    command = commands.add_parser("restore", help="create a data folder from the last complete backup")
    command.add_argument("target", type=Path, metavar="TARGET", help="the folder of backups")
    command.set_defaults(run=_restore)
    command = commands.add_parser(
        "copy",
        help="copy profiles, releases, programs and start lines between a data folder and a bucket; safe"
        " while the server of FROM runs",
    )
    command.add_argument("source", metavar="FROM", help="a data folder, or the URL of a bucket and prefix")
    command.add_argument("target", metavar="TO", help="the other one; no server may use it")
    command.add_argument("--delete", action="store_true", help="delete from TO what isn't in FROM")
    command.set_defaults(run=_copy)
    command = commands.add_parser(
        "expired", help="list what the next run of retention would delete, without deleting it"
    )
    command.set_defaults(run=_list_expired)
    _add_trace_commands(commands)
    _add_dask_commands(commands)
    command = commands.add_parser("reindex", help="rebuild the catalog from the blobs; stop the server first")
    command.set_defaults(run=_reindex)
    command = commands.add_parser("settings", help="list all settings, with their defaults")
    command.set_defaults(run=_list_settings)
    return parser


def _add_dask_commands(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser("dask", help="run a part of a Dask cluster, for PGOF_BULK")
    kinds = parser.add_subparsers(required=True, metavar="COMMAND")
    command = kinds.add_parser("scheduler", help="run the scheduler that collectors and workers connect to")
    command.add_argument(
        "--bind", default="127.0.0.1:8786", help="the address to listen on; by default %(default)s"
    )
    command.add_argument(
        "--dashboard", default="127.0.0.1:8787", help="the address of the dashboard; by default %(default)s"
    )
    command.set_defaults(run=_dask_scheduler)
    command = kinds.add_parser("worker", help="run a worker, which reads profiles one range after another")
    command.add_argument("scheduler", help="the scheduler, as in PGOF_BULK")
    command.add_argument(
        "--host", default="127.0.0.1", help="the address that others reach it by; by default %(default)s"
    )
    command.add_argument(
        "--megabytes", type=int, default=512, help="the most memory that it may take, in MiB; by default 512"
    )
    command.set_defaults(run=_dask_worker)


def _add_trace_commands(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser("trace", help="show where the time of traced requests went")
    kinds = parser.add_subparsers(required=True, metavar="COMMAND")
    command = kinds.add_parser("list", help="list the traced requests, the newest first")
    command.add_argument("--slowest", action="store_true", help="the slowest first")
    command.add_argument("--errors", action="store_true", help="only those that ended with an error")
    command.add_argument(
        "--service",
        metavar="NAMES",
        help="only those about these services, comma-separated; * matches any text",
    )
    command.add_argument("--limit", type=int, default=50, help="how many to list; by default 50")
    command.set_defaults(run=partial(_trace, "list_traces"))
    command = kinds.add_parser("show", help="print one trace")
    command.add_argument("trace", metavar="ID", nargs="?", help="its id, 32 hex digits")
    command.add_argument(
        "--file",
        type=Path,
        help="read it from a file of OTLP/JSON, as --json and OpenTelemetry's tools write it; ID may be left"
        " out if the file has one trace",
    )
    forms = command.add_mutually_exclusive_group()
    for form, help_ in (
        ("text", "a table and a tree, which is the default"),
        ("json", "OTLP/JSON, for OpenTelemetry's tools"),
        ("html", "a page with a waterfall, in one file"),
        ("dot", "a graph, for Graphviz"),
        ("chrome", "trace events, for Perfetto and speedscope"),
    ):
        forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=help_)
    command.set_defaults(run=partial(_trace, "show_trace"), form="text")
    command = kinds.add_parser(
        "profile", help="write traces as one pprof profile, to merge, draw and compare"
    )
    command.add_argument("file", type=Path, metavar="FILE", help="the file to write, as gzip")
    command.add_argument("--days", type=float, default=7, help="begin this many days ago; by default 7")
    command.add_argument(
        "--days-before", type=float, default=0, help="end this many days ago; by default 0, now"
    )
    command.add_argument("--errors", action="store_true", help="only requests that ended with an error")
    command.add_argument(
        "--service",
        metavar="NAMES",
        help="only those about these services, comma-separated; * matches any text",
    )
    command.add_argument(
        "--limit", type=int, default=10_000, help="the largest number of traces; by default the last 10000"
    )
    command.set_defaults(run=partial(_trace, "profile_traces"))
    command = kinds.add_parser("sign", help="print the headers that have one request traced, for curl")
    command.add_argument("--osprofiler", action="store_true", help="print OSProfiler's headers")
    command.set_defaults(run=partial(_trace, "sign_request"))


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit code, or 2 with the reason on standard error if it can't start."""
    open_standard_streams()
    parsed = build_parser().parse_args(arguments)
    os.umask(0o077)  # what any command writes is for its user alone
    try:
        status = parsed.run(parsed) or 0
        flush_standard_output()
    except (CannotStart, StorageFails, CatalogFails) as error:
        say(f"pgo-collector: {error}")
        return EXIT_FAILED
    except OSError as error:
        if error.filename is not None:
            raise
        say(f"pgo-collector: standard output: {error.strerror}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return status


def _serve(_: argparse.Namespace) -> None:
    with FORK_SERVER.running():  # before anything is imported that the workers don't need
        from pgo_collector.serve.server import serve  # noqa: PLC0415 (see above)
        from pgo_collector.settings import read_settings  # noqa: PLC0415 (see above)

        settings = read_settings()
        set_up_logs(settings.log_level)
        serve(settings, _first_look)


def _first_look() -> Opening:
    from pgo_collector.serve.first_look import FirstLook  # noqa: PLC0415 (see above)

    return FirstLook()


def _check(arguments: argparse.Namespace) -> int:
    from pgo_collector.command.check import check  # noqa: PLC0415 (see above)

    return check(as_json=arguments.json)


def _back_up(arguments: argparse.Namespace) -> int:
    from pgo_collector.command.backup import backup_to  # noqa: PLC0415 (see above)

    return backup_to(arguments.target)


def _restore(arguments: argparse.Namespace) -> int:
    from pgo_collector.command.backup import restore_from  # noqa: PLC0415 (see above)

    return restore_from(arguments.target)


def _copy(arguments: argparse.Namespace) -> int:
    from pgo_collector.command.copy import copy  # noqa: PLC0415 (see above)

    return copy(arguments.source, arguments.target, delete=arguments.delete)


def _trace(function: str, arguments: argparse.Namespace) -> None:
    from pgo_collector.command import trace  # noqa: PLC0415 (see above)

    getattr(trace, function)(arguments)


def _dask_scheduler(arguments: argparse.Namespace) -> None:
    from pgo_collector.workers.dask_processes import run_scheduler  # noqa: PLC0415 (see above)

    run_scheduler(arguments.bind, arguments.dashboard)


def _dask_worker(arguments: argparse.Namespace) -> None:
    from pgo_collector.workers.dask_processes import run_worker  # noqa: PLC0415 (see above)

    run_worker(arguments.scheduler, arguments.host, arguments.megabytes)


def _reindex(_: argparse.Namespace) -> None:
    from pgo_collector.serve.opened import reindex  # noqa: PLC0415 (see above)
    from pgo_collector.settings import read_settings  # noqa: PLC0415 (see above)

    settings = read_settings()
    set_up_logs(settings.log_level)
    print(f"{reindex(settings)} blobs are live")


def _list_expired(_: argparse.Namespace) -> None:
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 (see above)

    from pgo_collector.catalog.catalog import Catalog  # noqa: PLC0415 (see above)
    from pgo_collector.settings import read_settings  # noqa: PLC0415 (see above)
    from pgo_collector.store.store import database_of, reason_of  # noqa: PLC0415 (see above)
    from pgo_collector.upkeep.retention import Retention  # noqa: PLC0415 (see above)

    settings = read_settings()
    database = database_of(settings)
    try:
        if not database.is_there():
            raise CatalogUnreadable(f"there is no catalog {database}; set PGOF_DIRECTORY to the data folder")
        found = Retention.of(settings).expired(Catalog(database), time.time_ns())
    except SQLAlchemyError as error:
        raise CatalogUnreadable(f"catalog {database}: {reason_of(error)}; {database.repair}") from error
    total = 0
    for expired in found:
        total += expired.blob.size
        print(f"{expired.reason}\t{expired.blob.size}\t{expired.blob.name}")
    say(f"{total} bytes in all")


def _list_settings(_: argparse.Namespace) -> None:
    from pgo_collector.command.settings import list_settings  # noqa: PLC0415 (see above)

    list_settings()


def _new_key(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    from pgo_collector.http.keys import Key, append_line, digest_of, new_key  # noqa: PLC0415 (see above)

    describes_line = arguments.digest or (arguments.name, arguments.service) != (None, None)
    if describes_line and arguments.file is None:
        parser.error("--name, --service and --digest need a keys file to write to: give FILE")
    text = new_key()
    key = Key.of(digest_of(text.encode()), arguments.name, arguments.service)
    if arguments.file is not None:
        append_line(arguments.file, key.line(None if arguments.digest else text))
    print(text)
    say(f"fingerprint in logs: {key.fingerprint}")
