"""GitHub and GitLab, as far as pull requests need them: their REST APIs, and git's own server for pushes."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.loopback import QuietHandler, running

TOKEN = "token-of-the-forge"  # noqa: S105 - of a test
REPOSITORY = "team/checkout"


@dataclass
class Forge:
    """One repository, `team/checkout`, on one forge, and the pull requests in it.

    `faults` are answers (status, headers) to what is asked next, instead of what is so.
    """

    kind: str
    repository: Path
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    faults: list[tuple[int, dict[str, str]]] = field(default_factory=list)

    @property
    def api(self) -> str:
        return f"{self.url}/{'api/v4' if self.kind == 'gitlab' else 'api'}"

    @property
    def git_url(self) -> str:
        return f"{self.url}/{REPOSITORY}.git"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a job of the forge has."""
        if self.kind == "github":
            return {"GITHUB_API_URL": self.api, "GITHUB_REPOSITORY": REPOSITORY}
        return {"CI_API_V4_URL": self.api, "CI_PROJECT_ID": REPOSITORY}

    def git(self, *words: str) -> str:
        """Run git in the repository of the forge; return what it prints."""
        return run_git(self.repository, *words)

    def close(self, number: int, *, merged: bool = False) -> None:
        request = self.requests[number - 1]
        request["state"] = "merged" if merged else "closed"

    def text(self, number: int) -> str:
        return str(self.requests[number - 1]["text"])

    def changes(self) -> list[tuple[str, str]]:
        """Return the calls that changed something."""
        return [call for call in self.calls if call[0] != "GET"]

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        name = "merge_requests" if self.kind == "gitlab" else "pulls"
        root = "/api/v4/projects/team%2Fcheckout" if self.kind == "gitlab" else f"/api/repos/{REPOSITORY}"
        item = path.removeprefix(f"{root}/{name}")
        if (method, path) == ("GET", root):
            return 200, {"default_branch": "main"}
        if (method, item) == ("GET", ""):
            return 200, [self.shown(each) for each in reversed(self.requests) if self.is_asked(each, query)]
        if (method, item) == ("POST", ""):
            return self.create(body)
        if method == ("PUT" if self.kind == "gitlab" else "PATCH") and item[1:].isdecimal():
            request = self.requests[int(item[1:]) - 1]
            request |= {"title": body["title"], "text": body[self.text_field]}
            return 200, self.shown(request)
        return 404, {"message": "404 Project Not Found" if self.kind == "gitlab" else "Not Found"}

    @property
    def text_field(self) -> str:
        return "description" if self.kind == "gitlab" else "body"

    def create(self, body: dict[str, Any]) -> tuple[int, Any]:
        head = body["source_branch" if self.kind == "gitlab" else "head"]
        base = body["target_branch" if self.kind == "gitlab" else "base"]
        for each in self.requests:
            if (each["head"], each["base"], each["state"]) == (head, base, "open"):
                if self.kind == "gitlab":
                    return 409, {
                        "message": ["Another open merge request already exists for this source branch"]
                    }
                errors = [{"message": f"A pull request already exists for team:{head}."}]
                return 422, {"message": "Validation Failed", "errors": errors}
        if head not in self.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").split():
            return 422, {"message": "Validation Failed", "errors": [{"field": "head", "code": "invalid"}]}
        self.requests.append(
            {
                "head": head,
                "base": base,
                "title": body["title"],
                "text": body[self.text_field],
                "state": "open",
            }
        )
        return 201, self.shown(self.requests[-1])

    def is_asked(self, request: dict[str, Any], query: dict[str, str]) -> bool:
        if self.kind == "gitlab":
            states = {"opened": {"open"}, "closed": {"closed"}}[query["state"]]
            return request["state"] in states and query["source_branch"] == request["head"]
        states = {"open": {"open"}, "closed": {"closed", "merged"}}[query["state"]]
        return request["state"] in states and query["head"] == f"team:{request['head']}"

    def shown(self, request: dict[str, Any]) -> dict[str, Any]:
        number = self.requests.index(request) + 1
        page = f"{self.url}/{REPOSITORY}/{number}"
        if self.kind == "gitlab":
            shown = {"iid": number, "description": request["text"], "web_url": page}
        else:
            merged = "2026-01-01T00:00:00Z" if request["state"] == "merged" else None
            shown = {"number": number, "body": request["text"], "html_url": page, "merged_at": merged}
        return {"title": request["title"], "state": request["state"], **shown}


def run_git(folder: Path, *words: str) -> str:
    """Run git in a folder; return what it prints."""
    identity = {
        f"GIT_{role}_{what}": "t@example.net"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    finished = subprocess.run(
        ["git", *words], cwd=folder, env=os.environ | identity, capture_output=True, text=True, check=True
    )
    return finished.stdout.strip()


class ForgeServer(ThreadingHTTPServer):
    """Serves one forge."""

    def __init__(self, forge: Forge, folder: Path) -> None:
        self.forge, self.folder = forge, folder
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(QuietHandler):
    server: ForgeServer

    def do_GET(self) -> None:
        self.handle_any()

    def do_POST(self) -> None:
        self.handle_any()

    do_PATCH = do_PUT = do_POST  # noqa: N815 - http.server's

    def handle_any(self) -> None:
        body = self.read_body()
        parts = urlsplit(self.path)
        if parts.path.startswith("/api"):
            self.answer_api(parts.path, dict(parse_qsl(parts.query)), body)
        elif not self.has_password():
            self.send(401, b"", {"WWW-Authenticate": "Basic"})
        else:
            self.run_backend(self.server.folder, unquote(parts.path), parts.query, body)

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def has_password(self) -> bool:
        _, _, given = self.headers.get("Authorization", "").partition(" ")
        return base64.b64decode(given).decode().endswith(f":{TOKEN}")

    def answer_api(self, path: str, query: dict[str, str], body: bytes) -> None:
        self.server.forge.calls.append((self.command, path))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.send(401, b'{"message": "Bad credentials"}', {})
            return
        if self.server.forge.faults and self.command == "GET":
            status, headers = self.server.forge.faults.pop(0)
            self.send(status, b"<html>", headers)
            return
        status, answer = self.server.forge.answer(self.command, path, query, json.loads(body or b"{}"))
        self.send(status, json.dumps(answer).encode(), {})

    def run_backend(self, root: Path, path: str, query: str, body: bytes) -> None:
        """Let git's CGI answer (RFC 3875)."""
        variables = {
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "script",
        }
        made = subprocess.run(
            ["git", "http-backend"],
            input=body,
            env=os.environ | variables,
            capture_output=True,
            check=True,
        ).stdout
        head, _, content = made.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send(int(headers.pop("Status", "200").split()[0]), content, headers)

    def send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving(kind: str, folder: Path) -> Iterator[Forge]:
    """Serve a forge, `github` or `gitlab`, whose repository has one commit on `main`."""
    repository = folder / f"{REPOSITORY}.git"
    repository.mkdir(parents=True)
    run_git(repository, "init", "--quiet", "--bare", "--template=", "--initial-branch=main")
    run_git(repository, "config", "http.receivepack", "true")
    tree = run_git(repository, "mktree")
    run_git(
        repository, "update-ref", "refs/heads/main", run_git(repository, "commit-tree", tree, "-m", "First")
    )
    forge = Forge(kind, repository)

    with running(ForgeServer(forge, folder)) as server:
        forge.url = f"http://127.0.0.1:{server.server_port}"
        yield forge
