"""Answers of a cluster's workers: bytes that the collector checks, since it need not trust who sends them.

    size of the JSON    8 bytes, little-endian
    JSON                what is said about the blobs, or {"fails": why}
    rows                the rest; see `packing.pack_tightly`

Dask pickles results, errors and much between its processes. In a process that has called `refuse_pickles`, it
unpickles nothing that it receives.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from struct import pack, unpack_from
from types import SimpleNamespace
from typing import Any, NamedTuple, ParamSpec

from distributed import client
from distributed.protocol import pickle as protocol_pickle

from pgo_collector.engine.tasks import Unreadable
from pgo_collector.errors import CollectorError
from pgo_collector.model.facts import Facts

P = ParamSpec("P")
# What Dask may send as a pickle: the type of an answer.
_ALLOWED = {pickle.dumps(bytes, protocol): bytes for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)}
_SIZE_BYTES = 8
_DIGEST = re.compile("[0-9a-f]{64}")
_BEYOND = 1 << 63


class AnswerMalformed(CollectorError):
    """A worker's answer isn't one."""


class Answer(NamedTuple):
    """An answer: the words about the blobs, as JSON has them, and their rows."""

    said: Any
    rows: bytes


def refuse_pickles() -> None:
    """Have Dask unpickle nothing in this process from now on.

    Whoever may connect to the scheduler could otherwise run code here: a pickle is a program.
    """
    refusing: Any = SimpleNamespace(**(vars(pickle) | {"loads": _loads}))
    for module in (protocol_pickle, client):
        vars(module)["pickle"] = refusing


def _loads(pickled: bytes, **_: object) -> object:
    """Return the type that is pickled. Raises TypeError, as Dask expects it of what can't be read."""
    try:
        return _ALLOWED[bytes(pickled)]
    except KeyError:
        raise TypeError("the cluster sent a pickle, and this process reads none") from None


def answering(task: Callable[P, Answer]) -> Callable[P, bytes]:
    """Have a task answer in bytes, also when it fails."""

    @wraps(task)
    def answered(*args: P.args, **kwargs: P.kwargs) -> bytes:
        try:
            said, rows = task(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the collector can't unpickle it
            said, rows = {"fails": f"{type(error).__name__}: {error}"}, b""
        text = json.dumps(said).encode()
        return b"".join((pack("<Q", len(text)), text, rows))

    return answered


def read_answer(answer: object) -> Answer:
    """Return what a worker has answered. Raises AnswerMalformed."""
    if not isinstance(answer, bytes | bytearray) or len(answer) < _SIZE_BYTES:
        raise AnswerMalformed("a worker's answer isn't bytes of this collector's")
    end = _SIZE_BYTES + unpack_from("<Q", answer)[0]
    if end > len(answer):
        raise AnswerMalformed("a worker's answer ends too early")
    try:
        return Answer(json.loads(answer[_SIZE_BYTES:end]), bytes(answer[end:]))
    except (ValueError, RecursionError):
        raise AnswerMalformed("a worker's answer has no JSON") from None


def unreadable_of(said: object, names: Collection[str]) -> dict[str, str]:
    """Return why some of the blobs with these names can't be read. Raises AnswerMalformed."""
    if isinstance(said, dict) and all(name in names and isinstance(why, str) for name, why in said.items()):
        return said
    raise AnswerMalformed("a worker's answer isn't about the blobs that it was to read")


def facts_as_json(found: Sequence[Facts | Unreadable]) -> list[Any]:
    """Return facts as `facts_of` takes them."""
    return [
        each.reason
        if isinstance(each, Unreadable)
        else [each.time_nanos, each.duration_nanos, each.digest, each.size, each.samples]
        for each in found
    ]


def facts_of(said: object, count: int) -> list[Facts | Unreadable]:
    """Return the facts of `count` blobs. Raises AnswerMalformed."""
    if not isinstance(said, list) or len(said) != count:
        raise AnswerMalformed("a worker's answer has facts of more or fewer blobs than it was asked for")
    return [_facts_of(each) for each in said]


def _facts_of(said: object) -> Facts | Unreadable:
    match said:
        case str() as reason:
            return Unreadable(reason)
        case [int() as time, int() as duration, str() as digest, int() as size, int() as samples] if (
            _DIGEST.fullmatch(digest)
            and all(-_BEYOND <= number < _BEYOND for number in (time, duration))
            and all(0 <= number < _BEYOND for number in (size, samples))
        ):
            return Facts(time, duration, digest, size, samples)
    raise AnswerMalformed("a worker's answer has facts that no profile has")
