"""Reading and writing of the command's files and streams."""

from __future__ import annotations

import os
import sys
from pathlib import Path

STANDARD_STREAM = "-"


class BadInputError(Exception):
    """A file that can't be read or written, or isn't what it should be; the message names it."""


def read(name: str) -> bytes:
    """The content of a file, or of standard input. Raises BadInputError."""
    try:
        return sys.stdin.buffer.read() if name == STANDARD_STREAM else Path(name).read_bytes()
    except OSError as error:
        raise BadInputError(f"{name}: {error.strerror}") from error


def write(name: str, content: bytes) -> None:
    """Writes a file, or to standard output. Raises BadInputError."""
    try:
        if name == STANDARD_STREAM:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            _replace(Path(name).resolve(), content)
    except BrokenPipeError:
        # The reader has left; without this the interpreter would complain once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise BadInputError("standard output: the reader has gone") from None
    except OSError as error:
        raise BadInputError(f"{name}: {error.strerror}") from error


def _replace(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all; what can't be replaced (/dev/stdout, a pipe) is written to."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    # tempfile's files are private, and a profile is as public as any other output; its import also takes
    # longer than writing one.
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
