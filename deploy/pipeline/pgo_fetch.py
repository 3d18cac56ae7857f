#!/usr/bin/env python3
"""Fetch the profile to build with, in a pipeline. This one file needs Python 3.9 or later and nothing else.

    PGO_KEY=... pgo_fetch.py 'https://pgo.example.net/v1/release?service=checkout&format=go' default.pgo

FILE is replaced only by a complete profile, and not touched if it has the same content already, so build
caches that go by its time or its bytes stay valid. A hidden file beside FILE has its ETag and SHA-256.

exit code  meaning
    0      build with FILE: it is new, unchanged, or recent enough for --max-age
    1      FILE is missing or too old: the collector couldn't be reached, or sent no profile
    2      nothing was fetched: the command line is wrong
    3      FILE is unchanged: the collector refused the request, for example because of an unknown key,
           or has no such path or no release of this number
    4      FILE is unchanged: the collector has no profile yet; build without one
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import random
import re
import secrets
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

USABLE, UNUSABLE, REFUSED, NOT_YET = 0, 1, 3, 4

_NOT_FOUND, _NOT_MODIFIED, _TOO_MANY = 404, 304, 429
_PROBLEM = "application/problem+json"
# How the collector begins its words about a path that it doesn't have.
_NO_SUCH_PATH = "Not Found: "
_NUMBERED = "/v1/releases/"
LARGEST_BYTES = 1 << 30
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
# What the collector takes at least, and how long a report may take.
_MOST_STEPS, _REPORT_SECONDS = 32, 5.0
_SAMPLE_TYPE, _SAMPLE = 1, 2
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
# The head of a function in an LLVM sample profile: name, total, and samples at its entry.
_LLVM_HEAD = re.compile(rb"^\S.*:\d+:\d+$", re.MULTILINE)

Result = TypeVar("Result")


class Unusable(Exception):
    """The collector couldn't be reached, or its answer isn't a profile. Asking again may help."""

    def __init__(self, reason: str, pause: float = 0) -> None:
        super().__init__(reason)
        self.pause = pause


class Refused(Exception):
    """The collector refused the request. Asking again won't help."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


@dataclass
class Known:
    """Record of a fetch into FILE: URL, ETag, SHA-256, and when it was last up to date (Unix time)."""

    url: str = ""
    etag: str = ""
    sha256: str = ""
    confirmed: float = 0

    @classmethod
    def of(cls, file: Path, url: str) -> Known:
        """Return what is recorded for a file; an empty record if its URL or content is another by now."""
        try:
            known = cls(**json.loads(_beside(file).read_text()))
            is_same = known.url == url and known.sha256 == _sha256(file)
        except (OSError, ValueError, TypeError):
            return cls()
        return known if is_same else cls()

    def write(self, file: Path) -> None:
        """Record it beside the file, for the next run."""
        replace(_beside(file), json.dumps(asdict(self)).encode())


def _beside(file: Path) -> Path:
    return file.with_name(f".{file.name}.fetched")


def _first_line(file: Path) -> str:
    """Return the line of a keys file that has the key. Raises OSError and IndexError."""
    return file.read_text(encoding="utf-8-sig").splitlines()[0].strip()


def main(arguments: list[str] | None = None) -> int:
    """Fetch the profile; return the exit code."""
    command_line = parser()
    options = command_line.parse_args(arguments)
    file: Path = options.file
    try:
        key = _first_line(options.key_file) if options.key_file else os.environ.get("PGO_KEY", "")
        trace = Trace(options.trace.read_text().split()[0], options.url) if options.trace else None
    except (OSError, IndexError) as error:
        command_line.error(f"cannot read the key: {error}")
    known = Known.of(file, options.url)
    if trace is not None:
        print(f"pgo_fetch: to see the trace: pgo-collector trace show {trace.id}", file=sys.stderr)
    try:
        body, etag = _ask(options.url, key, known.etag, options.timeout, options.tries, trace=trace)
    except Refused as refused:
        return say(refused.exit_code, f"{refused}; {file} is unchanged")
    except Unusable as problem:
        return _kept(file, known, options.max_age, str(problem))
    try:
        return _taken(file, options.url, body, etag, known)
    except OSError as error:
        return say(UNUSABLE, f"cannot write {file}: {error}")


def _taken(file: Path, url: str, body: bytes | None, etag: str, known: Known) -> int:
    """Write the body to the file unless the file has that content already; return the exit code."""
    sha256 = known.sha256 if body is None else hashlib.sha256(body).hexdigest()
    is_new = body is not None and not (file.exists() and _sha256(file) == sha256)
    if body is not None and is_new:
        replace(file, body)
    Known(url, etag, sha256, time.time()).write(file)
    return say(USABLE, f"{file} is new" if is_new else f"{file} is up to date")


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line. Its help is this module's docstring."""
    about, _, codes = (__doc__ or "").partition("exit code")
    parser = argparse.ArgumentParser(
        prog="pgo_fetch.py",
        description=about,
        epilog=f"exit code{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "url", metavar="URL", type=http_url, help="the URL of a release or a merge, with its parameters"
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file to write")
    parser.add_argument(
        "--key-file", metavar="FILE", type=Path, help="a file with the merge key, instead of $PGO_KEY"
    )
    parser.add_argument(
        "--max-age",
        metavar="AGE",
        type=_age,
        default=0.0,
        help="if the collector can't be reached, accept a FILE that was up to date this recently: 12h, 7d",
    )
    parser.add_argument(
        "--trace",
        metavar="FILE",
        type=Path,
        help="a file with a trace key: have the collector record where the time of the request goes",
    )
    parser.add_argument("--tries", type=int, default=5, help="how often to try (default: 5)")
    parser.add_argument(
        "--timeout", type=float, default=300, help="seconds to wait for more of an answer (default: 300)"
    )
    return parser


def http_url(text: str) -> str:
    """Return an argument of the command line that is an http or https URL."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise argparse.ArgumentTypeError(f"{text!r} is not an http or https URL")
    return text


def _age(text: str) -> float:
    found = re.fullmatch(r"(\d+)([smhdw])", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age; write 30m, 12h, 7d or 2w")
    return int(found[1]) * _SECONDS[found[2]]


def say(exit_code: int, text: str) -> int:
    """Print a message of the command that runs to standard error; return the exit code."""
    print(f"{Path(sys.argv[0]).stem}: {text}", file=sys.stderr)
    return exit_code


def _kept(file: Path, known: Known, max_age: float, problem: str) -> int:
    """Return the exit code if nothing could be fetched: the file is usable for as long as --max-age says."""
    age = time.time() - known.confirmed
    if known.sha256 and age <= max_age:
        return say(
            USABLE, f"{problem}; {file} was up to date {age / 3600:.1f} hours ago, which --max-age allows"
        )
    state = "is older than --max-age" if max_age and known.sha256 else "is unchanged"
    return say(UNUSABLE, f"{problem}; {file} {state if file.exists() else 'is missing'}")


class Trace:
    """A trace that each try is part of, and the key that signs the tries."""

    def __init__(self, key: str, url: str) -> None:
        self.id = secrets.token_hex(16)
        self._key = key.encode()
        self._url = url
        self._steps: list[tuple[str, str, int, int]] = []  # name, span id, begin and end in µs since 1970
        self._offset = time.time_ns() - time.monotonic_ns()
        self._span, self._since = "", 0
        self._is_recorded = False

    def begin(self, request: urllib.request.Request) -> None:
        """Add the headers to the request of a try that have the collector trace it. They are good once."""
        self._span, self._since = secrets.token_hex(8), self._now()
        for name, value in self._signature(self._span).items():
            request.add_unredirected_header(name, value)

    def answered(self, headers: Message) -> None:
        """Look whether the collector has recorded the try."""
        self._is_recorded |= headers.get("PGO-Trace") == self.id

    def end(self, name: str = "ask") -> None:
        """Note that the try has ended, or the wait after it."""
        now = self._now()
        self._steps.append((name, self._span, self._since, now))
        self._span, self._since = secrets.token_hex(8), now

    def report(self) -> None:
        """Tell the collector of the tries, and how long all of them took. A failure doesn't matter."""
        steps = self._steps[-_MOST_STEPS:]
        if not steps:
            return
        start, end = steps[0][2], steps[-1][3]
        say(USABLE, f"asking took {(end - start) / 1000:.3f} ms")
        if not self._is_recorded:
            return
        told = [f"fetch={start}:{end - start}"]
        told += [f"{name}={span}:{since - start}:{until - since}" for name, span, since, until in steps]
        parts = urlsplit(self._url)
        prefix = parts.path.partition("/v1/")[0] if "/v1/" in parts.path else ""
        url = f"{parts.scheme}://{parts.netloc}{prefix}/v1/traces/{self.id}/steps"
        headers = self._signature(secrets.token_hex(8), ",".join(told))
        request = urllib.request.Request(url, b"", {"User-Agent": "pgo_fetch", **headers})  # noqa: S310 (checked)
        try:
            with urllib.request.urlopen(request, timeout=_REPORT_SECONDS):  # noqa: S310 (checked in http_url)
                pass
        except (OSError, HTTPException):
            pass

    def _now(self) -> int:
        return (time.monotonic_ns() + self._offset) // 1000

    def _signature(self, span: str, steps: str = "") -> dict[str, str]:
        traceparent, seconds = f"00-{self.id}-{span}-01", int(time.time())
        told = {"PGO-Trace-Steps": steps} if steps else {}
        what = ".".join([str(seconds), traceparent, *told.values()])
        digest = hmac.new(self._key, what.encode(), hashlib.sha256).hexdigest()
        return {"traceparent": traceparent, "PGO-Trace-Signature": f"t={seconds},v1={digest}", **told}


def _ask(
    url: str, key: str, etag: str, timeout: float, tries: int, *, trace: Trace | None
) -> tuple[bytes | None, str]:
    """Return the profile, or None if it still has this ETag, and its ETag. Raises Refused or Unusable."""
    if trace is None:
        return retried(lambda: _ask_once(url, key, etag, timeout, None), tries)
    try:
        return retried(lambda: _ask_once(url, key, etag, timeout, trace), tries, lambda: trace.end("wait"))
    finally:
        trace.report()


def retried(once: Callable[[], Result], tries: int, waited: Callable[[], None] = lambda: None) -> Result:
    """Return what a function returns, called again after pauses while it raises Unusable; raise the last.

    `waited` is called after each pause.
    """
    pause = _FIRST_PAUSE
    for attempt in range(1, tries + 1):
        try:
            return once()
        except Unusable as problem:
            if attempt == tries:
                raise
            # Pipelines that failed at the same moment shouldn't all come back at the same moment.
            wait = max(problem.pause, pause * random.uniform(0.5, 1))  # noqa: S311
            say(UNUSABLE, f"{problem}; trying again in {wait:.1f} s")
            time.sleep(min(wait, _LONGEST_PAUSE))
            waited()
            pause *= 2
    raise Unusable("--tries is less than 1")


def _ask_once(url: str, key: str, etag: str, timeout: float, trace: Trace | None) -> tuple[bytes | None, str]:
    request = urllib.request.Request(url, headers={"User-Agent": "pgo_fetch"})  # noqa: S310 (checked in http_url)
    if key:  # not sent to any host that the answer redirects to
        request.add_unredirected_header("Authorization", f"Bearer {key}")
    if etag:
        request.add_header("If-None-Match", etag)
    if trace is None:
        body, headers = _answer(request, etag, timeout)
    else:
        trace.begin(request)
        try:
            body, headers = _answer(request, etag, timeout, trace.answered)
        finally:
            trace.end()
    if body is None:
        return None, etag
    check_whole(body, headers.get("Content-Length"))
    check(body, url)
    return body, headers.get("ETag", "")


def _answer(
    request: urllib.request.Request,
    etag: str,
    timeout: float,
    answered: Callable[[Message], None] = lambda _: None,
) -> tuple[bytes | None, Message]:
    """Return the body of an answer, None if it still has this ETag, and its headers."""
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
            answered(answer.headers)
            return answer.read(LARGEST_BYTES + 1), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            answered(error.headers)
            if error.code == _NOT_MODIFIED and etag:
                return None, error.headers
            raise problem_of(error) from None
    except (OSError, HTTPException, zlib.error) as error:
        raise Unusable(f"{request.host}: {error or type(error).__name__}") from error


def problem_of(error: urllib.error.HTTPError) -> Exception:
    """Return the exception for an error status: Unusable if asking again may help, or Refused."""
    try:
        reason = json.loads(error.read(1 << 16))["detail"]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        reason = error.reason
    text = f"{error.code} {reason}"
    # A proxy's 404 doesn't tell whether there is a profile, nor does that of a path or a number mistyped.
    is_collectors = error.headers.get_content_type() == _PROBLEM
    is_mistyped = str(reason).startswith(_NO_SUCH_PATH) or _NUMBERED in urlsplit(error.url or "").path
    if error.code == _NOT_FOUND and is_collectors and not is_mistyped:
        return Refused(text, NOT_YET)
    if error.code == _TOO_MANY or error.code >= 500:
        return Unusable(text, retry_after(error.headers.get("Retry-After", "")))
    return Refused(text, REFUSED)


def retry_after(text: str) -> float:
    """Return a Retry-After header in seconds, from either form of RFC 9110; 0 if it isn't valid."""
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0


def check_whole(body: bytes, length: str | None) -> None:
    """Check that a body has the length that its header states, and isn't too large. Raises Unusable."""
    if len(body) > LARGEST_BYTES:
        raise Unusable(f"the answer has more than {LARGEST_BYTES} bytes")
    if length is not None and len(body) < int(length):
        raise Unusable(f"only {len(body)} of {length} bytes arrived")


def check(body: bytes, url: str) -> None:
    """Check that a body is a profile in the format that the URL asks for. Raises Unusable."""
    (form,) = parse_qs(urlsplit(url).query).get("format", ["pprof"])[-1:]
    if form == "llvm":
        if not _LLVM_HEAD.search(body):
            raise Unusable("the answer is not an LLVM sample profile, or has no function")
    elif form in {"pprof", "go"}:
        _check_pprof(body)
    elif not body:
        raise Unusable("the answer is empty")


def _check_pprof(body: bytes) -> None:
    try:
        inflate = zlib.decompressobj(31)
        protobuf = inflate.decompress(body, LARGEST_BYTES)
        seen = set(_fields(protobuf))
    except (zlib.error, IndexError, ValueError) as error:
        raise Unusable(f"the answer is not a gzipped pprof profile ({error})") from None
    if not inflate.eof:
        raise Unusable("the answer is a gzip file that is cut off")
    if not {_SAMPLE_TYPE, _SAMPLE} <= seen:
        raise Unusable("the answer is a profile without samples")


def _fields(protobuf: bytes) -> Iterator[int]:
    """Yield the field numbers of a protobuf message. Raises ValueError or IndexError if it is malformed."""
    at = 0
    while at < len(protobuf):
        tag, at = _varint(protobuf, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(protobuf, at)
        elif kind == _LENGTH:
            size, at = _varint(protobuf, at)
            at += size
        elif kind in {_FIXED64, _FIXED32}:
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        yield tag >> 3
    if at > len(protobuf):
        raise ValueError("truncated")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def replace(file: Path, data: bytes) -> None:
    """Write a file atomically."""
    umask = os.umask(0)
    os.umask(umask)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(handle)
            os.fchmod(handle, 0o666 & ~umask)
        os.replace(name, file)  # noqa: PTH105
    except BaseException:
        Path(name).unlink()
        raise


if __name__ == "__main__":
    sys.exit(main())
