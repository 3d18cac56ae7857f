# noqa: INP001 - a script, run as it stands
"""Receive pgo-collector's events, and print the share of a function in the hour of each profile.

An example to start from, with the standard library alone. docs/hooks.md explains it.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime, timedelta
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

TOLERANCE_SECONDS = 300


def is_genuine(headers: Message, body: bytes, secrets: list[bytes]) -> bool:
    """Return whether one of the secrets signed the event recently: https://www.standardwebhooks.com/."""
    sent = headers["webhook-timestamp"] or ""
    if not sent.isdecimal() or abs(time.time() - int(sent)) > TOLERANCE_SECONDS:
        return False
    content = f"{headers['webhook-id']}.{sent}.".encode() + body
    right = [base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode() for secret in secrets]
    given = (headers["webhook-signature"] or "").split()
    return any(hmac.compare_digest(f"v1,{each}", signature) for each in right for signature in given)


def share(collector: str, key: str, function: str, profile: dict[str, Any]) -> dict[str, Any]:
    """Return the point of /v1/series for the hour in which the profile was taken."""
    hour = datetime.fromisoformat(profile["time"][:19]).replace(minute=0, second=0)
    bounds = [f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in (hour, hour + timedelta(hours=1))]
    asked = {"service": profile["service"], "type": profile["type"], "function": function}
    query = urllib.parse.urlencode(asked | dict(zip(("from", "to"), bounds, strict=True)))
    request = urllib.request.Request(  # noqa: S310 - the address is the reader's own
        f"{collector}/v1/series?{query}", headers={"Authorization": f"Bearer {key}"}
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - as above
        return dict(json.load(answer)["points"][0])


def main() -> None:
    """Receive events until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("function", help="the full name of a function, as in /v1/top")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--collector", default="http://127.0.0.1:8080")
    parser.add_argument("--key-file", type=Path, default=Path("profiles/merge_keys"))
    parser.add_argument("--secret-file", type=Path, default=Path(".dev/webhook_secret"))
    given = parser.parse_args()
    key = given.key_file.read_text().split()[0]
    lines = given.secret_file.read_text().split()
    secrets = [base64.b64decode(line.removeprefix("whsec_")) for line in lines]

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(self.taken(body))
            self.end_headers()

        def taken(self, body: bytes) -> HTTPStatus:
            """Return the status to answer; after anything but a 2xx, the collector sends the event again."""
            if not is_genuine(self.headers, body, secrets):
                return HTTPStatus.UNAUTHORIZED
            profile = json.loads(body)["data"]
            try:
                point = share(given.collector, key, given.function, profile)
            except urllib.error.URLError as error:
                sys.stderr.write(f"{error}\n")
                return HTTPStatus.BAD_GATEWAY
            # A later profile of the same hour changes the share: keep the last line for each hour.
            sys.stdout.write(
                f"{point['time']} {profile['service']} {given.function} {point['cum_share']:.4f}\n"
            )
            sys.stdout.flush()
            return HTTPStatus.NO_CONTENT

        def log_message(self, *_: object) -> None:
            """Print nothing: standard output is for the series."""

    HTTPServer(("127.0.0.1", given.port), Receiver).serve_forever()


if __name__ == "__main__":
    main()
