"""Test targets in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from pgo_agent.errors import NotReadable
from pgo_agent.scrape.target import Profile, TargetDefaults
from pgo_agent.scrape.targets_file import read_targets

WANTED = TargetDefaults(("cpu",), 30)
LEAST = '[[target]]\nservice = "shop"\nurl = "http://shop:6060/debug/pprof"\n'


def test_what_is_not_said_has_defaults(tmp_path: Path) -> None:
    file = tmp_path / "targets.toml"
    file.write_text(LEAST)
    (target,) = read_targets(file, WANTED)
    assert (target.name, target.service, target.labels) == ("http://shop:6060/debug/pprof", "shop", ())
    assert target.profiles == (Profile("cpu", "http://shop:6060/debug/pprof/profile?seconds=30"),)
    assert (target.seconds, target.token_file, target.ca_file) == (30, None, None)


def test_all_may_be_said(tmp_path: Path) -> None:
    file = tmp_path / "targets.toml"
    file.write_text(
        LEAST
        + """
[[target]]
service = "till"
url = "https://till/debug/pprof/"
labels = { version = "1.7", region = "eu" }
types = ["cpu", "heap", "allocs", "goroutine"]
seconds = 5
token_file = "token"
ca_file = "/etc/ca.pem"
"""
    )
    _, till = read_targets(file, WANTED)
    assert till.labels == (("region", "eu"), ("version", "1.7"))
    assert [profile.url for profile in till.profiles] == [
        "https://till/debug/pprof/profile?seconds=5",
        "https://till/debug/pprof/heap",
        "https://till/debug/pprof/allocs?seconds=5",
        "https://till/debug/pprof/goroutine",
    ]
    assert (till.seconds, till.token_file, till.ca_file) == (5, tmp_path / "token", Path("/etc/ca.pem"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[[target]", "Expected"),
        ("\xff", "utf-8"),
        ("target = 1", "tables"),
        ("[[targets]]", "tables"),
        ('[[target]]\nservice = "a"', "no url"),
        ('[[target]]\nurl = "http://a"', "no service"),
        (f'{LEAST}scheme = "http"', "unknown setting 'scheme'"),
        (f"{LEAST}seconds = true", "'seconds' must be a whole number"),
        (f"{LEAST}seconds = 0", "seconds"),
        (f'{LEAST}seconds = "5"', "'seconds'"),
        (f"{LEAST}types = []", "types"),
        (f'{LEAST}types = ["cpu", "memory"]', "'memory'"),
        (f"{LEAST}types = [[]]", "unknown type"),
        (f"{LEAST}labels = {{ a = 1 }}", "labels"),
        (f'{LEAST}labels = {{ "" = "b" }}', "labels"),
        (LEAST.replace("http:", "ftp:"), "not an http or https URL"),
        (LEAST.replace("//shop", "//\\u0001shop"), "not a URL"),
        (LEAST + LEAST, "two targets"),
    ],
)
def test_a_mistake_is_told_with_its_file(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "targets.toml"
    file.write_text(content, encoding="latin-1")
    with pytest.raises(NotReadable, match=reason) as raised:
        read_targets(file, WANTED)
    assert raised.value.path == file


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotReadable, match="No such file"):
        read_targets(tmp_path / "missing", WANTED)
