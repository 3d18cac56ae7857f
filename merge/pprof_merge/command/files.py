"""Reading and writing of the command's files and streams.

Without `pathlib` and `tempfile`, whose imports take longer than what is done here.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

STANDARD_STREAM = "-"


class BadInputError(Exception):
    """A file that can't be read or written, or isn't what it should be; the message names it."""


def read(name: str) -> bytes:
    """The content of a file, or of standard input. Raises BadInputError."""
    try:
        if name == STANDARD_STREAM:
            return sys.stdin.buffer.read()
        with open(name, "rb") as file:
            return file.read()
    except OSError as error:
        raise BadInputError(f"{name}: {error.strerror}") from error


def write(name: str, content: bytes) -> None:
    """Writes a file, or to standard output. Raises BadInputError."""
    try:
        if name == STANDARD_STREAM:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            _replace(os.path.realpath(name), content)
    except BrokenPipeError:
        # The reader has left; without this the interpreter would complain once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise BadInputError("standard output: the reader has gone") from None
    except OSError as error:
        raise BadInputError(f"{name}: {error.strerror}") from error


def _replace(path: str, content: bytes) -> None:
    """Writes a file whole or not at all; what can't be replaced (/dev/stdout, a pipe) is written to."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            file.write(content)
        return
    # tempfile's files are private, and a profile is as public as any other output.
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
