"""The real curl, and the requests that people and build pipelines make with it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path

import httpx
from pprof_merge import Limits, decode

from tests.server import Server

NOTHING_STORED = 404


@dataclass(frozen=True)
class Answer:
    """The answer; `headers` are those of the last response, found whatever their case."""

    status: int
    headers: Message
    body: bytes


@dataclass(frozen=True)
class Client:
    """Talks to a server at `url`, perhaps a proxy's; `folder` is for what it reads and writes."""

    url: str
    server: Server
    folder: Path

    def curl(self, route: str, *options: str, key: str = "") -> Answer:
        """One request; fails if curl itself does. Without a `key` there is no Authorization."""
        head, body = self.folder / "head", self.folder / "body"
        body.write_bytes(b"")
        authorization = ("--header", f"Authorization: Bearer {key}") if key else ()
        written = ("--dump-header", head, "--output", body)
        ways = ("--silent", "--show-error", "--noproxy", "*", "--max-time", "60")
        subprocess.run(["curl", *ways, *written, *authorization, *options, self.url + route], check=True)
        *_, last = head.read_text().strip().split("\n\n")
        status_line, _, headers = last.partition("\n")
        return Answer(int(status_line.split()[1]), Parser().parsestr(headers), body.read_bytes())

    def submit(self, content: bytes, *options: str, key: str | None = None) -> Answer:
        """Submits as the documentation does, with a submit key unless told another."""
        sent = self.folder / "sent"
        sent.write_bytes(content)
        key = self.server.submit_key if key is None else key
        return self.curl("/v1/submit", "--data-binary", f"@{sent}", *options, key=key)

    def merge(self, *options: str) -> Answer:
        """Fetches the merge."""
        return self.curl("/v1/merge", *options, key=self.server.merge_key)

    def total(self) -> tuple[int, ...]:
        """The sums of what the collector holds: (samples, ns)."""
        headers = {"Authorization": f"Bearer {self.server.merge_key}"}
        url = f"{self.url}/v1/merge"
        # To load the certificates that plain HTTP doesn't need takes longer than a request.
        answer = httpx.get(url, headers=headers, timeout=60, trust_env=False, verify=False)  # noqa: S501
        return (0, 0) if answer.status_code == NOTHING_STORED else total(answer.content)


def total(profile: bytes) -> tuple[int, ...]:
    """The sums over all samples: (samples, ns)."""
    return tuple(decode(profile, Limits.none()).samples.values.sum(axis=0).tolist())
