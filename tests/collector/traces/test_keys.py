"""Trace keys and signatures, without a server."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from pgo_collector.errors import KeyMalformed
from pgo_collector.traces import signing
from pgo_collector.traces.keys import TraceKeys
from pgo_collector.traces.signing import Origin, Verifier, new_origin, sign, sign_as_osprofiler, uuids_of

pytestmark = pytest.mark.any_store

KEY, OTHER = b"a-trace-key-of-some-length", b"another-key-of-some-length"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "it has no key"),
        ("\n \n", "it has no key"),
        ("SECRET_KEY\n", "line 1: this key is in documentation"),
        (f"{KEY.decode()}\nshort\n", "line 2: a key has at least 16 bytes"),
        (f"sha256:{'0' * 64}\n", "line 1: a digest can't sign"),
        (f"{KEY.decode()} name=ci\n", "line 1: a key has no blanks"),
    ],
)
def test_a_file_without_a_key_or_with_one_that_anyone_knows_is_refused(
    tmp_path: Path, content: str, reason: str
) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(KeyMalformed, match=re.escape(reason)) as refused:
        TraceKeys(file)
    assert not content.strip() or content.split(maxsplit=1)[0] not in str(refused.value)


def lowered(headers: dict[str, str]) -> dict[bytes, bytes]:
    """Headers as the server's application gets them."""
    return {name.lower().encode(): value.encode() for name, value in headers.items()}


def test_a_signature_is_good_once_within_its_window_under_any_key() -> None:
    verifier, now = Verifier(60), int(time.time())
    origin = new_origin()
    headers = lowered(sign(KEY, *origin, now))
    assert verifier.check(headers, ()) == "bad_signature"
    assert verifier.check(headers, (OTHER,)) == "bad_signature"
    assert verifier.check(headers, (OTHER, KEY)) == origin
    assert verifier.check(headers, (OTHER, KEY)) == "replayed"
    child = Origin(origin.trace, new_origin().parent)
    assert verifier.check(lowered(sign(KEY, *child, now)), (KEY,)) == child
    for seconds in (now - 3600, now + 3600):
        assert verifier.check(lowered(sign(KEY, *new_origin(), seconds)), (KEY,)) == "expired"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "_MOST_REMEMBERED", 2)
    now = time.time()
    clock = [now]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    verifier = Verifier(60)

    def ask() -> Origin | str:
        return verifier.check(lowered(sign(KEY, *new_origin(), int(clock[0]))), (KEY,))

    assert [isinstance(ask(), Origin) for _ in range(2)] == [True, True]
    assert ask() == "too_many"
    clock[0] = now + 121
    assert isinstance(ask(), Origin)


@pytest.mark.parametrize(
    "headers",
    [
        {"PGO-Trace-Signature": "t=1,v1=x"},
        {"traceparent": f"00-{'0' * 32}-{'1' * 16}-01"},
        {"traceparent": f"00-{'1' * 32}-{'0' * 16}-01"},
        {"traceparent": f"01-{'1' * 32}-{'1' * 16}-01"},
    ],
)
def test_malformed_headers_are_refused(headers: dict[str, str]) -> None:
    good = sign(KEY, *new_origin(), int(time.time()))
    assert Verifier(60).check(lowered(good | headers), (KEY,)) == "malformed"


def test_osprofilers_headers_are_good_under_any_key() -> None:
    verifier = Verifier(60)
    origin = new_origin()
    headers = lowered(sign_as_osprofiler(KEY, *uuids_of(*origin)))
    assert verifier.check(headers, (OTHER, KEY)) == origin
    assert verifier.check(headers, (OTHER,)) == "bad_signature"
    for base, parent in (("x", "y"), ("0" * 32, "1" * 32)):
        forged = lowered(sign_as_osprofiler(KEY, base, parent))
        assert verifier.check(forged, (KEY,)) == "malformed"
