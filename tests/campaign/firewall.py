"""Cuts between processes of this machine: rules of iptables for ports of loopback, in a chain of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from threading import Lock
from typing import Final, NamedTuple, Self

_PREFIX: Final = "campaign-"
_TABLES: Final = ("iptables", "-w", "20")


class Place(NamedTuple):
    """An address and a port that something listens on."""

    address: str
    port: int


class Cut(NamedTuple):
    """A way to cut connections: packets are lost or refused, in both directions or only those of answers."""

    refused: bool
    answers_only: bool

    @classmethod
    def any(cls, random: Random) -> Cut:
        """Return one of the ways."""
        return cls(refused=random.random() < 0.5, answers_only=random.random() < 0.3)

    def __str__(self) -> str:
        return f"{'refuse' if self.refused else 'lose'} {'answers' if self.answers_only else 'all packets'}"


class NoFirewall(Exception):
    """No rules can be set here; the message has the reason."""


class Firewall:
    """The rules of this process, as a context manager that removes them. Raises NoFirewall at its begin."""

    def __init__(self) -> None:
        self._chain = f"{_PREFIX}{os.getpid()}"
        self._lock = Lock()

    def __enter__(self) -> Self:
        if shutil.which("iptables") is None:
            raise NoFirewall("iptables (Debian: iptables) is missing")
        try:
            self._forget_ended()
            _run("-N", self._chain)
            _run("-I", "INPUT", "-i", "lo", "-p", "tcp", "-j", self._chain)
        except subprocess.CalledProcessError as error:
            raise NoFirewall(str(error.stderr).strip()) from error
        return self

    def __exit__(self, *_: object) -> None:
        _remove(self._chain)

    def cut(self, places: Sequence[Place], way: Cut, seconds: float) -> None:
        """Cut connections to all of these places for so long."""
        rules = [rule for place in places for rule in self._rules(place, way)]
        try:
            self._change("-A", rules)
            time.sleep(seconds)
        finally:
            self._change("-D", rules)

    def _rules(self, place: Place, way: Cut) -> list[list[str]]:
        # A reset is what refuses, so it passes.
        verdict = ["!", "--tcp-flags", "RST", "RST", "-j", "REJECT", "--reject-with", "tcp-reset"]
        verdict = verdict if way.refused else ["-j", "DROP"]
        ends = [("-s", "--sport")] if way.answers_only else [("-s", "--sport"), ("-d", "--dport")]
        return [
            [self._chain, address, place.address, "-p", "tcp", port, str(place.port), *verdict]
            for address, port in ends
        ]

    def _change(self, how: str, rules: Sequence[Sequence[str]]) -> None:
        with self._lock:
            for rule in rules:
                _run(how, *rule)

    @staticmethod
    def _forget_ended() -> None:
        """Remove the rules of processes that were killed."""
        for line in _run("-S").splitlines():
            match line.split():
                case ["-N", chain] if chain.startswith(_PREFIX):
                    if not Path(f"/proc/{chain.removeprefix(_PREFIX)}").exists():
                        _remove(chain)
                case _:
                    pass


def _remove(chain: str) -> None:
    for arguments in (("-D", "INPUT", "-i", "lo", "-p", "tcp", "-j", chain), ("-F", chain), ("-X", chain)):
        subprocess.run([*_TABLES, *arguments], check=False, capture_output=True)


def _run(*arguments: str) -> str:
    done = subprocess.run([*_TABLES, *arguments], check=True, capture_output=True, text=True)
    return done.stdout
