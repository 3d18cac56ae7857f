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
        return _content(name)
    except OSError as error:
        raise BadInputError(f"{name}: {error.strerror}") from error


def is_file(name: str) -> bool:
    """Return whether a name is that of a file, which can be read again, and not of a stream."""
    return name != STANDARD_STREAM and os.path.isfile(name)


def _content(name: str) -> bytes:
    """Return the content of a file. `open` alone would take four calls of the system more."""
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(file).st_size
        # A byte more than there should be, to see the end of the file in the same call.
        content = os.read(file, size + 1)
        if len(content) == size:
            return content
        with open(file, "rb", closefd=False) as rest:  # of a pipe
            return content + rest.read()
    finally:
        os.close(file)


def write(name: str, content: bytes) -> None:
    """Write a file, or to standard output if the name is -. Raises BadInputError."""
    try:
        if name == STANDARD_STREAM:
            _write_to_standard_output(content)
        else:
            _replace(os.path.realpath(name), content)
    except BrokenPipeError:
        raise BadInputError("standard output: the reader closed it") from None
    except OSError as error:
        raise BadInputError(f"{name}: {error.strerror}") from error


def _write_to_standard_output(content: bytes) -> None:
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except OSError:
        # Python flushes standard output as it exits; /dev/null prevents a second error there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


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
