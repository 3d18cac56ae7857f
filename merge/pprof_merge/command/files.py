"""Read and write the command's files, or its standard streams.

Importing `pathlib` and `tempfile` would take longer than the work itself, so they aren't used.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

STANDARD_STREAM = "-"


class BadInputError(Exception):
    """A file can't be read or written, or has the wrong content; the message names the file."""


def read(name: str) -> bytes:
    """Return the content of a file, or of standard input if the name is -. Raises BadInputError."""
    try:
        if name == STANDARD_STREAM:
            return sys.stdin.buffer.read()
        with open(name, "rb") as file:
            return file.read()
    except OSError as error:
        raise BadInputError(f"{name}: {error.strerror}") from error


def write(name: str, content: bytes) -> None:
    """Write a file, or to standard output if the name is -. Raises BadInputError."""
    try:
        if name == STANDARD_STREAM:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            _replace(os.path.realpath(name), content)
    except BrokenPipeError:
        # Python flushes standard output as it exits; /dev/null prevents a second error there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise BadInputError("standard output: the reader closed it") from None
    except OSError as error:
        raise BadInputError(f"{name}: {error.strerror}") from error


def _replace(path: str, content: bytes) -> None:
    """Write a file completely or not at all.

    A path that can't be replaced, as /dev/stdout or a pipe, is written to directly.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            file.write(content)
        return
    # Not tempfile: it makes private files, but the output gets the permissions of any new file.
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
