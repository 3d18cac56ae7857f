"""Serve the services of Nomad's or Consul's HTTP API as they are documented: JSON, indexes and tokens."""

from __future__ import annotations

import json
import threading
import time
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import NAMESPACE_DNS, uuid5

from tests.loopback import QuietHandler

TOKEN = "b1946ac9-2492-d234-7c6b-235b4d2611184"  # noqa: S105 - of no real catalog


class ServiceCatalog(ThreadingHTTPServer):
    """Serve one of the two APIs, `nomad` or `consul`.

    A question with an index waits until the list of services changes, or for `wait`; `waiting` counts these.
    `asked` has the path and query of all. If `answer` is set, it is the status and the body of every answer.
    If `has_token`, questions need TOKEN. Like a real list of services, Consul's doesn't change when an
    instance of a service that is there comes or goes.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, kind: str) -> None:
        super().__init__(("127.0.0.1", 0), CatalogHandler)
        self.kind = kind
        self.has_token = False
        self.has_index = True
        self.answer: tuple[int, bytes] | None = None
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.waiting = 0
        self.index = 100
        self.changed = threading.Condition()
        self.instances: dict[str, dict[str, Any]] = {}

    def put(self, name: str, service: str, tags: list[str], **fields: Any) -> None:
        """Add an instance of a service; `fields` override those of the API."""
        make = _registration if self.kind == "nomad" else _entry
        self._change({**self.instances, name: make(name, service, tags) | fields})

    def remove(self, name: str) -> None:
        """Remove an instance."""
        self._change({key: instance for key, instance in self.instances.items() if key != name})

    def restart(self) -> None:
        """Begin the index again, as a catalog that was restored from a backup does."""
        with self.changed:
            self.index = 1
            self.changed.notify_all()

    def _change(self, instances: dict[str, dict[str, Any]]) -> None:
        with self.changed:
            before, self.instances = self.listed(), instances
            if self.kind == "nomad" or self.listed() != before:
                self.index += 1
                self.changed.notify_all()

    def listed(self, query: dict[str, str] | None = None) -> Any:
        """Return the list of services."""
        namespace = (query or {}).get("namespace", "*")
        tags: dict[tuple[str, str], set[str]] = {}
        for instance in self.instances.values():
            at = instance.get("Namespace", "default")
            if namespace in {"*", at}:
                own = instance["Tags"] if self.kind == "nomad" else instance["ServiceTags"]
                tags.setdefault((at, instance["ServiceName"]), set()).update(own or [])
        if self.kind == "consul":
            return {"consul": [], **{name: sorted(of) for (_, name), of in tags.items()}}
        return [
            {
                "Namespace": space,
                "Services": [
                    {"ServiceName": name, "Tags": sorted(of) or None}
                    for (at, name), of in tags.items()
                    if at == space
                ],
            }
            for space in sorted({at for at, _ in tags})
        ]

    def read(self, service: str, query: dict[str, str]) -> list[dict[str, Any]]:
        """Return the instances of a service."""
        return [
            instance
            for instance in self.instances.values()
            if instance["ServiceName"] == service
            and query.get("namespace", "default") == instance.get("Namespace", "default")
        ]


class CatalogHandler(QuietHandler):
    server: ServiceCatalog

    def do_GET(self) -> None:
        catalog, parts = self.server, urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        catalog.asked.append((parts.path, query))
        header = f"X-{catalog.kind.title()}-Token"
        if catalog.has_token and self.headers[header] != TOKEN:
            self._answer(403, b"Permission denied")
            return
        if "index" in query and catalog.answer is None:
            self._wait(int(query["index"]), float(query["wait"].removesuffix("s")))
        if catalog.answer is not None:
            self._answer(*catalog.answer)
            return
        first, _, service = parts.path.removeprefix("/base").removeprefix("/v1/").rpartition("/")
        with catalog.changed:
            if parts.path.endswith("/services"):
                content = catalog.listed(query)
            else:
                assert first in {"service", "catalog/service"}
                content = catalog.read(unquote(service), query)
        self._answer(200, json.dumps(content).encode())

    def _wait(self, index: int, seconds: float) -> None:
        catalog, end = self.server, time.monotonic() + seconds
        with catalog.changed:
            catalog.waiting += 1
            while catalog.index == index and catalog.answer is None and time.monotonic() < end:
                catalog.changed.wait(0.1)
            catalog.waiting -= 1

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if self.server.has_index:
            self.send_header(f"X-{self.server.kind.title()}-Index", str(self.server.index))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _registration(name: str, service: str, tags: list[str]) -> dict[str, Any]:
    """Return a registration of Nomad: see its documentation of /v1/service/:service_name."""
    allocation = str(uuid5(NAMESPACE_DNS, name))
    return {
        "Address": "127.0.0.1",
        "AllocID": allocation,
        "CreateIndex": 97,
        "Datacenter": "dc1",
        "ID": f"_nomad-task-{allocation}-{name}",
        "JobID": "example",
        "ModifyIndex": 97,
        "Namespace": "default",
        "NodeID": "7406e90b-de16-d118-80fe-60d0f2730cb3",
        "Port": 29_702,
        "ServiceName": service,
        "Tags": tags,
    }


def _entry(name: str, service: str, tags: list[str]) -> dict[str, Any]:
    """Return an entry of Consul's catalog: see its documentation of /v1/catalog/service/:service_name."""
    return {
        "ID": "40e4a748-2192-161a-0510-9bf59fe950b5",
        "Node": "t2.320",
        "Address": "127.0.0.1",
        "Datacenter": "dc1",
        "TaggedAddresses": {"lan": "127.0.0.1", "wan": "10.1.10.12"},
        "NodeMeta": {"somekey": "somevalue"},
        "CreateIndex": 51,
        "ModifyIndex": 51,
        "ServiceAddress": "",
        "ServiceEnableTagOverride": False,
        "ServiceID": name,
        "ServiceName": service,
        "ServicePort": 5000,
        "ServiceMeta": {"version": "1.7"},
        "ServiceTaggedAddresses": {"lan": {"address": "127.0.0.1", "port": 5000}},
        "ServiceTags": tags,
        "ServiceWeights": {"Passing": 1, "Warning": 1},
        "ServiceProxy": {"DestinationServiceName": "", "LocalServiceAddress": ""},
        "ServiceConnect": {"Native": False, "Proxy": None},
    }
