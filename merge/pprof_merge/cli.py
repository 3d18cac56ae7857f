"""The command `pprof-merge`: files in, their merge out. The only module of this package that does I/O.

What only some calls need is imported where it is used: the start takes as long as merging ten profiles.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pprof_merge.decode import decode
from pprof_merge.errors import ProfileError, RulesInvalid
from pprof_merge.formats import FORMATS, Format
from pprof_merge.headers import check_compatible
from pprof_merge.limits import Limits
from pprof_merge.merge import merge
from pprof_merge.profile import Profile
from pprof_merge.rules import Rules, apply_rules, parse_rules

_STANDARD_STREAM = "-"
_BAD_INPUT = 2
_INTERRUPTED = 130  # what shells give for SIGINT


class _BadInputError(Exception):
    """A file or an option that can't be done what it is for; the message names it."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    described = argparse.ArgumentParser(
        prog="pprof-merge",
        description="Merge pprof profiles into one; the order of the files makes no difference.",
        epilog="Exit status: 0, or 2 with a message that names the file or the option at fault.",
    )
    described.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        default=_STANDARD_STREAM,
        help="where to write (default: standard output)",
    )
    described.add_argument(
        "--format",
        choices=FORMATS,
        default="pprof",
        help="what to write the merge as (default: pprof)",
    )
    described.add_argument(
        "--rules",
        metavar="RULES",
        help="a file of functions to drop, or to keep from being inlined",
    )
    described.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="a profile, gzip or bare protobuf; - is standard input",
    )
    return described


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    command = parser()
    options = command.parse_args(arguments)
    wanted = FORMATS[options.format]
    if wanted.binary and options.output == _STANDARD_STREAM and sys.stdout.isatty():
        command.error("standard output is a terminal; name a file with -o")
    try:
        rules = _rules(options.rules)
        merged = apply_rules(merge(_profiles(options.files)), rules)
        _write(options.output, _formatted(merged, wanted))
    except (_BadInputError, ProfileError) as error:
        print(f"pprof-merge: {error}", file=sys.stderr)
        return _BAD_INPUT
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _rules(name: str | None) -> Rules:
    if name is None:
        return Rules()
    try:
        return parse_rules(_read(name))
    except RulesInvalid as error:
        raise _BadInputError(f"{name}: {error}") from error


def _formatted(profile: Profile, wanted: Format) -> bytes:
    try:
        return wanted.write(profile)
    except ProfileError as error:
        raise _BadInputError(f"--format {wanted.name}: {error}") from error


def _profiles(files: Sequence[str]) -> Iterator[Profile]:
    """The profiles of all files, read one at a time, with a progress bar where a person is watching."""
    # Files on one's own disk are trusted to be as large as they are.
    limits = Limits.none()
    first = None
    for name in _watched(files):
        try:
            profile = decode(_read(name), limits)
            first = first or profile.header
            check_compatible(first, profile.header)
        except ProfileError as error:
            raise _BadInputError(f"{name}: {error}") from error
        yield profile


def _watched(files: Sequence[str]) -> Iterator[str]:
    if not sys.stderr.isatty():
        yield from files
        return
    from tqdm import tqdm  # noqa: PLC0415 (see above)

    yield from tqdm(files, unit="profile", leave=False)


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == _STANDARD_STREAM else Path(name).read_bytes()
    except OSError as error:
        raise _BadInputError(f"{name}: {error.strerror}") from error


def _write(name: str, content: bytes) -> None:
    try:
        if name == _STANDARD_STREAM:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            _replace(Path(name).resolve(), content)
    except BrokenPipeError:
        # The reader has left; without this the interpreter would complain once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise _BadInputError("standard output: the reader has gone") from None
    except OSError as error:
        raise _BadInputError(f"{name}: {error.strerror}") from error


def _replace(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all; what can't be replaced (/dev/stdout, a pipe) is written to."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        # mkstemp makes files private; a profile is as public as any other output.
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


if __name__ == "__main__":
    sys.exit(main())
