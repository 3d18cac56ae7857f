"""Serve the pods of Kubernetes' API: lists in pages, watches, versions that expire."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.agent.scrape.pods import Pod
from tests.loopback import QuietHandler, running

CLUSTER_KEY = "eyJhbGciOiJSUzI1NiJ9.k8s"
_CONFIG = """\
apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: test, cluster: {{server: "{url}"}}}}]
users: [{{name: test, user: {{token: "{token}"}}}}]
contexts: [{{name: test, context: {{cluster: test, user: test, namespace: default}}}}]
"""


class Expired(Exception):
    """The version, or the list that a page belongs to, has expired: status 410."""


class KubernetesApi(ThreadingHTTPServer):
    """Serve pages of at most `page` pods, whatever a request asks for.

    `asked` lists paths and queries. `watches` counts open watches, `expired` the watches that asked for an
    expired version. `expires_in_stream` chooses one of the two ways in which real servers refuse those.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), KubernetesHandler)
        self.page = 500
        self.expires_in_stream = True
        self.refusal: tuple[int, str] | None = None
        # What is refused, by how it begins: `LIST ` or `WATCH ` and a path. Empty for everything.
        self.refused = ""
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.watches = self.expired = 0
        self.changed = threading.Condition()
        self._version = 1000
        self._oldest = 1000
        self._pods: dict[str, Pod] = {}
        # The pod that changed at each version: before, and after.
        self._events: list[tuple[int, Pod | None, Pod | None]] = []
        self._cuts = self._ends = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def kubeconfig(self, folder: Path) -> Path:
        """Write a KUBECONFIG file for this server."""
        file = folder / "kubeconfig"
        file.write_text(_CONFIG.format(url=self.url, token=CLUSTER_KEY))
        return file

    def put(self, pod: Pod, *, is_told: bool = True) -> None:
        """Create or change a pod. With `is_told` false, watches aren't told, as over broken connections."""
        with self.changed:
            self._version += 1
            made = deepcopy(pod)
            made["metadata"]["resourceVersion"] = str(self._version)
            name = _name(made)
            if is_told:
                self._events.append((self._version, self._pods.get(name), made))
            self._pods[name] = made
            self.changed.notify_all()

    def delete(self, pod: Pod) -> None:
        """Delete a pod."""
        with self.changed:
            self._version += 1
            gone = self._pods.pop(_name(pod))
            gone["metadata"]["resourceVersion"] = str(self._version)
            self._events.append((self._version, gone, None))
            self.changed.notify_all()

    def forget(self) -> None:
        """Let all versions so far expire, and end open watches, as a real server does after some minutes."""
        with self.changed:
            self._version += 1
            self._oldest = self._version
            self._ends += 1
            self.changed.notify_all()

    def cut(self) -> None:
        """End all watches in the middle of an answer, like a broken connection."""
        with self.changed:
            self._cuts += 1
            self.changed.notify_all()

    def listed(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        """Return a page of a list. Raises Expired if the list has expired."""
        with self.changed:
            version, after = self._version, ""
            if "continue" in query:
                version, after = json.loads(base64.b64decode(query["continue"]))
                if version < self._oldest:
                    raise Expired
            found = [self._pods[name] for name in sorted(self._pods) if name > after]
            found = [pod for pod in found if _selected(pod, path, query)]
            size = min(int(query.get("limit", 1 << 30)), self.page)
            page, rest = found[:size], found[size:]
            metadata: dict[str, Any] = {"resourceVersion": str(version)}
            if rest:
                token = json.dumps([version, _name(page[-1])]).encode()
                metadata |= {
                    "continue": base64.b64encode(token).decode(),
                    "remainingItemCount": len(rest),
                }
            return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": deepcopy(page)}

    def events(self, path: str, query: dict[str, str]) -> Iterator[dict[str, Any] | None]:
        """Yield the events of a watch, and None while there is none. Raises Expired for an expired version.

        Ends when watches are ended, and with ConnectionError when they are cut.
        """
        version = int(query["resourceVersion"])
        if version < self._oldest:
            self.expired += 1
            raise Expired
        with self.changed:
            cuts, ends, self.watches = self._cuts, self._ends, self.watches + 1
        try:
            while True:
                with self.changed:
                    if cuts != self._cuts:
                        raise ConnectionError
                    if ends != self._ends:
                        return
                    news = [event for event in self._events if event[0] > version]
                    if not news:
                        self.changed.wait(0.1)
                for version, before, after in news:  # noqa: B007 - it is the version from which to go on
                    was = before is not None and _selected(before, path, query)
                    if after is not None and _selected(after, path, query):
                        yield _event("MODIFIED" if was else "ADDED", after)
                    elif was:
                        # The pod as it is now, although it isn't selected any more.
                        yield _event("DELETED", after or before)
                yield None
        finally:
            with self.changed:
                self.watches -= 1


class KubernetesHandler(QuietHandler):
    server: KubernetesApi

    def do_GET(self) -> None:
        api, parts = self.server, urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        api.asked.append((parts.path, query))
        asked = f"{'WATCH' if 'watch' in query else 'LIST'} {parts.path}"
        if self.headers["Authorization"] != f"Bearer {CLUSTER_KEY}":
            self.answer(401, _status(401, "Unauthorized", "Unauthorized"))
        elif api.refusal is not None and asked.startswith(api.refused):
            self.answer(api.refusal[0], _status(api.refusal[0], "Refused", api.refusal[1]))
        elif "watch" in query:
            self.watch(parts.path, query)
        else:
            try:
                self.answer(200, api.listed(parts.path, query))
            except Expired:
                self.answer(410, _expired())

    def watch(self, path: str, query: dict[str, str]) -> None:
        events = self.server.events(path, query)
        try:
            first = next(events)
        except Expired:
            if not self.server.expires_in_stream:
                self.answer(410, _expired())
                return
            first, events = {"type": "ERROR", "object": _expired()}, iter(())
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.tell(first)
        for event in events:
            self.tell(event)
        self.wfile.write(b"0\r\n\r\n")

    def tell(self, event: dict[str, Any] | None) -> None:
        if event is None:
            return
        line = json.dumps(event).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def kubernetes_api(port: int = 0) -> Iterator[KubernetesApi]:
    """Run a server within the block."""
    with running(KubernetesApi(port)) as api:
        try:
            yield api
        finally:
            api.cut()


def _name(pod: Pod) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _selected(pod: Pod, path: str, query: dict[str, str]) -> bool:
    """Return whether a pod matches namespace, phase and labels, in the label syntax that tests use."""
    parts = path.split("/")
    if "namespaces" in parts and pod["metadata"]["namespace"] != parts[parts.index("namespaces") + 1]:
        return False
    fields = [part.split("=") for part in query.get("fieldSelector", "").split(",") if part]
    assert all(name == "status.phase" for name, _ in fields)
    labels = pod["metadata"]["labels"]
    wanted = [part for part in query.get("labelSelector", "").split(",") if part]
    return all(pod["status"]["phase"] == phase for _, phase in fields) and all(
        labels.get(part.split("!=")[0]) != part.split("!=")[1]
        if "!=" in part
        else labels.get(part.split("=")[0]) == part.split("=")[1]
        for part in wanted
    )


def _event(kind: str, pod: Pod | None) -> dict[str, Any]:
    # Items of a list have no kind; objects in watch events do.
    return {"type": kind, "object": {"kind": "Pod", "apiVersion": "v1", **(pod or {})}}


def _expired() -> dict[str, Any]:
    return _status(410, "Expired", "too old resource version: 1000 (1002)")


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
