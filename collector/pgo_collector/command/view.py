"""The command `pprof-merge view`, which this package adds to the merge engine's: pages of one or two files.

It serves on a free port that only this machine reaches, with a data folder that is deleted at the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from pprof_merge.streams import say

from pgo_collector.command.cli import EXIT_FAILED, EXIT_INTERRUPTED
from pgo_collector.errors import CannotStart, CatalogFails
from pgo_collector.logs import set_up_logs
from pgo_collector.workers.fork_server import FORK_SERVER

if TYPE_CHECKING:
    from pgo_collector.serve.first_look import Opening

_MOST_FILES = 2
# Of one's own files, which may be larger than what a fleet sends.
_MOST_BYTES = 256 << 20


def main(arguments: Sequence[str]) -> int:
    """Serve the pages of the files until Ctrl-C or SIGTERM; return the exit status."""
    command = _parser()
    options = command.parse_args(arguments)
    if len(options.files) > _MOST_FILES:
        command.error("give one file, or two to compare; `pprof-merge -o OUT FILE …` merges more into one")
    os.umask(0o077)
    set_up_logs("error")
    signal.signal(signal.SIGTERM, _end)  # until the server has its own handler: the folder must be deleted
    try:
        with TemporaryDirectory(prefix="pprof-view-") as folder:
            _serve(Path(folder), options)
    except (CannotStart, CatalogFails) as error:
        say(f"pprof-merge view: {error}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    described = argparse.ArgumentParser(
        prog="pprof-merge view",
        description=(
            "Look at a profile, or at the difference of two, on pages that only this machine reaches. A file"
            " is pprof, folded stacks, the text of perf script, or speedscope's JSON; gzip, zstd, or neither."
        ),
        epilog="Exit status: 0 after SIGTERM or Ctrl-C, or 2 with a message that names the file at fault.",
    )
    described.add_argument(
        "files",
        metavar="FILE",
        type=Path,
        nargs="+",
        help="a profile; of two, the second is compared with the first",
    )
    described.add_argument("--open", action="store_true", help="open the link in the browser, too")
    return described


def _serve(folder: Path, options: argparse.Namespace) -> None:
    with FORK_SERVER.running():  # before anything is imported that the workers don't need
        from pgo_collector.serve.server import serve  # noqa: PLC0415 - see above
        from pgo_collector.settings import MERGE_KEYS, SUBMIT_KEYS, Settings  # noqa: PLC0415 - see above

        settings = Settings(
            directory=folder,
            bind_address="127.0.0.1:0",
            submit_auth_keys_file=folder / SUBMIT_KEYS,
            merge_auth_keys_file=folder / MERGE_KEYS,
            max_compressed_bytes=_MOST_BYTES,
            max_inflated_bytes=_MOST_BYTES,
            trace_megabytes=0,
        )
        serve(settings, partial(_view, options))


def _view(options: argparse.Namespace) -> Opening:
    from pgo_collector.serve.view import ViewOfFiles  # noqa: PLC0415 - the server listens before

    return ViewOfFiles(options.files, in_browser=options.open)


def _end(*_: int | FrameType | None) -> NoReturn:
    sys.exit(0)
