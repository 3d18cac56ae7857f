"""The lines of keys files: keys, their fields, and malformed lines."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pgo_collector.errors import KeyMalformed
from pgo_collector.http.keys import Key, digest_of, new_key
from pgo_collector.model.series import Scope

pytestmark = pytest.mark.any_store

DIGEST = hashlib.sha256(b"key").hexdigest()
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True)
PATTERNS = st.from_regex(r"[a-z*][a-c.*-]{0,6}", fullmatch=True)
SERVICES = st.from_regex(r"[a-z][a-c.-]{0,6}", fullmatch=True)
WORDS = st.binary(min_size=1, max_size=12).filter(lambda word: word.split() == [word])
FIELDS = re.compile(rb"(name|service)=")


def shell_matches(pattern: str, text: str) -> bool:
    """Return whether a pattern matches, by the definition: `*` is any number of characters."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(shell_matches(pattern[1:], text[skipped:]) for skipped in range(len(text) + 1))
    return text[:1] == pattern[0] and shell_matches(pattern[1:], text[1:])


def parsed(line: bytes) -> tuple[Key | None, str]:
    """Return the key of a line, or why it has none."""
    try:
        return Key.parse(line), ""
    except KeyMalformed as error:
        return None, str(error)


@given(NAMES | st.none(), st.lists(PATTERNS, min_size=1).map(",".join) | st.none(), st.booleans())
def test_a_line_that_was_made_reads_back(name: str | None, scope: str | None, clear: bool) -> None:
    text = new_key()
    key = Key.of(digest_of(text.encode()), name, scope)
    line = key.line(text if clear else None)
    assert (text in line) == clear
    assert Key.parse(line.encode()) == key


@given(st.lists(WORDS, min_size=1, max_size=4), st.sampled_from([b" ", b"\t", b"  "]))
def test_a_line_without_a_field_is_one_key_blanks_and_all(words: list[bytes], blank: bytes) -> None:
    line = blank.join(words)
    assume(not any(map(FIELDS.match, words[1:])))
    assume(not line.lower().startswith(b"sha256:"))
    assert Key.parse(line) == Key(hashlib.sha256(line).digest())


@given(WORDS, st.permutations([b"name=ci", b"service=shop"]), st.sampled_from([b" ", b"\t", b" \t "]))
def test_with_fields_the_key_is_the_first_word(word: bytes, fields: list[bytes], blank: bytes) -> None:
    assume(not FIELDS.match(word))
    assume(not word.lower().startswith(b"sha256:"))
    assert Key.parse(blank.join([word, *fields])) == Key(digest_of(word), "ci", Scope(("shop",)))


@given(st.lists(WORDS | st.sampled_from([b"name=", b"service=", b"name=a", b"service=a,"]), min_size=1))
def test_any_line_is_a_key_or_malformed_with_a_reason_that_quotes_nothing(words: list[bytes]) -> None:
    line = b" ".join(word + b"SECRET" for word in words)
    key, reason = parsed(line)
    if key is None:
        assert reason
        assert "SECRET" not in reason
    else:
        assert key.digest in {digest_of(line), digest_of(line.split()[0])}


@pytest.mark.parametrize(
    "line", ["#key", "service=shop", "name=ci", "a=b", "key Service=shop", "key service ="]
)
def test_what_only_looks_like_a_comment_or_a_field_is_a_key(line: str) -> None:
    assert Key.parse(line.encode()) == Key(digest_of(line.encode()))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("key service=", "service= takes"),
        ("key service=a,,b", "service= takes"),
        ("key service=a, b", "word 3 is neither"),
        ("key service=a/b", "service= takes"),
        ("key service=a?", "service= takes"),
        ("key service=[ab]", "service= takes"),
        ("key service=.a", "service= takes"),
        (f"key service={'a' * 201}", "service= takes"),
        ("key service=å", "service= takes"),
        ("key name=", "name= takes"),
        ("key name=-a", "name= takes"),
        (f"key name={'a' * 64}", "name= takes"),
        ("key name=a name=a", "name= is given twice"),
        ("key service=a name=a service=b", "service= is given twice"),
        ("key name=a servcie=a", "word 3 is neither"),
        ("a key name=a", "word 2 is neither"),
        ("name=a service=a", "there is no key"),
        ("sha256:", "sha256: needs"),
        (f"sha256:{DIGEST[1:]}", "sha256: needs"),
        (f"sha256:{DIGEST}0", "sha256: needs"),
        (f"SHA256:{DIGEST[1:]}g", "sha256: needs"),
        (f"sha256:{DIGEST} servcie=a", "sha256: needs"),
        (f"sha256:{hashlib.sha256().hexdigest()}", "this is the sha256 of an empty key"),
    ],
)
def test_what_is_malformed_says_why(line: str, reason: str) -> None:
    with pytest.raises(KeyMalformed, match=reason):
        Key.parse(line.encode())


@pytest.mark.parametrize("text", [f"sha256:{DIGEST}", f"SHA256:{DIGEST.upper()}"])
def test_a_digest_is_that_of_the_key(text: str) -> None:
    assert Key.parse(text.encode()) == Key.parse(b"key")


@given(st.lists(PATTERNS, min_size=1), SERVICES)
def test_a_scope_includes_what_one_of_its_patterns_matches(patterns: list[str], service: str) -> None:
    scope = Scope.parse(",".join(patterns))
    assert scope.includes(service) == any(shell_matches(pattern, service) for pattern in patterns)


@given(PATTERNS, PATTERNS, SERVICES)
def test_a_scope_that_includes_a_pattern_includes_what_that_matches(
    pattern: str, narrower: str, service: str
) -> None:
    scope = Scope.parse(pattern)
    if scope.includes(narrower) and shell_matches(narrower, service):
        assert scope.includes(service)


@pytest.mark.parametrize(
    ("text", "every"), [("*", True), ("a,*", True), ("**", True), ("a*", False), ("*a*", False), ("a", False)]
)
def test_only_a_star_includes_all_services(text: str, every: bool) -> None:
    assert Scope.parse(text).includes("*") is every


@pytest.mark.parametrize(
    ("text", "only"),
    [("shop", "shop"), ("shop,shop", "shop"), ("shop,pay", None), ("shop*", None), ("*", None)],
)
def test_the_only_service_of_a_scope(text: str, only: str | None) -> None:
    assert Scope.parse(text).only_service == only
