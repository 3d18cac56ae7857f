"""The Go servers that are measured: how each is started, and the loads that it gets."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from time import sleep
from urllib.parse import quote

import httpx

from tests.gains.debian import SourcePackage, needed
from tests.gains.go import WORK, GoSource
from tests.gains.go_programs import PAGES, documents
from tests.gains.page import Latency
from tests.gains.programs import ROOT
from tests.gains.servers import Answered, GoServer, Instance, said_by
from tests.interop.listening import free_port
from tests.oracle.oracle import go_root

_PAUSE = 0.05
_SHORT, _FILES = (1500, 9000), 8
# The hours of metrics that a Prometheus has: seconds since 1970, by 15.
_TIMES = range(1_793_491_200, 1_793_512_800, 15)


def _value(query: str) -> str:
    """Return the path of a query of Prometheus at the end of its metrics."""
    return f"/api/v1/query?time={_TIMES[-1]}&query={quote(query)}"


def _graph(query: str, hours: int) -> str:
    """Return the path of a query of Prometheus for a graph of the last hours, of 60 points."""
    start, step = _TIMES[-1] - 3600 * hours, 60 * hours
    return f"/api/v1/query_range?start={start}&end={_TIMES[-1]}&step={step}&query={quote(query)}"


def _metrics() -> Iterator[str]:
    """Yield lines of OpenMetrics of 40 instances, whose counters grow by draws that are always the same."""
    draw, jobs = Random(1), ("shop", "search", "mail", "login")  # noqa: S311 - nothing secret
    fleet = [f'job="{jobs[number % 4]}",instance="host-{number}"' for number in range(40)]
    bounds = ("0.01", "0.03", "0.1", "0.3", "1", "3", "10", "+Inf")
    families = {
        "http_requests": ("counter", "_total", [f'code="{code}"' for code in (200, 204, 302, 400, 404, 500)]),
        "http_seconds": ("histogram", "_bucket", [f'le="{bound}"' for bound in bounds]),
        "memory_bytes": ("gauge", "", ['kind="heap"', 'kind="stack"']),
    }
    for family, (kind, suffix, labels) in families.items():
        yield f"# TYPE {family} {kind}"
        for instance in fleet:
            counts = [0] * len(labels)
            for time in _TIMES:
                grown = draw.randrange(30)
                for number, label in enumerate(labels):
                    counts[number] += grown * (number + 1)
                    value = draw.randrange(2 * 10**9) if kind == "gauge" else counts[number]
                    yield f"{family}{suffix}{{{instance},{label}}} {value} {time}"


class Pages(GoServer):
    """HTML of Markdown and code in templates, gzipped, over TLS, by `wrk`."""

    source = PAGES
    how = (
        "It renders Markdown and code into templates, gzips and encrypts. One instance is profiled with\n"
        "pages of these docs, one with sources of Go's `net/http`, one with the list of all files as HTML\n"
        "and JSON; other pages, other sources and the list are measured, by `wrk` with 8 connections."
    )

    def __init__(self, seconds: int = 2) -> None:
        self._seconds = seconds
        library = go_root() / "src"
        trained, measured = (_short(pages) for pages in documents())
        codes = [
            _short(str(file) for file in sorted((library / package).glob("*.go")))
            for package in ("net/http", "encoding/json")
        ]
        lists = ("/list", "/api")
        self._files = (*trained, *measured, *codes[0], *codes[1])
        self.profiled = (_paths(trained), _paths(codes[0]), lists)
        self.measured = (*_paths(measured), *_paths(codes[1]), *(4 * lists))

    def prepare(self, folder: Path) -> None:
        """Prepare as `GoServer` documents."""
        needed("wrk", "openssl")
        self._folder = folder
        asked = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        asked += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        asked += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
        subprocess.run(asked, check=True, capture_output=True)

    def command(self, binary: Path, port: int) -> list[str]:
        """Return as `GoServer` documents."""
        names = [str(self._folder / name) for name in ("certificate.pem", "key.pem")]
        return [str(binary), "serve", f"127.0.0.1:{port}", *names, *self._files]

    def target(self, port: int) -> dict[str, str]:
        """Return as `GoServer` documents."""
        certificate = str(self._folder / "certificate.pem")
        return {"url": f"https://127.0.0.1:{port}/debug/pprof", "ca_file": certificate}

    def answered(self, port: int, load: Sequence[str]) -> Answered:
        """Return as `GoServer` documents."""
        return _by_wrk(f"https://127.0.0.1:{port}", load, self._folder / f"{port}.lua", self._seconds)


def _by_wrk(url: str, paths: Sequence[str], script: Path, seconds: int) -> Answered:
    """Ask for paths in turn with 8 connections, as a script says that is written."""
    listed = ", ".join(json.dumps(path) for path in paths)
    script.write_text(
        f"local paths, sent = {{ {listed} }}, 0\n"
        "function request()\n"
        "    sent = sent + 1\n"
        '    return wrk.format("GET", paths[sent % #paths + 1])\n'
        "end\n"
    )
    wrk = ["wrk", "--threads", "1", "--connections", "8", "--duration", f"{seconds}s", "--latency"]
    said = said_by([*wrk, "--timeout", "60s", "--script", str(script), url])
    assert "Non-2xx" not in said, said
    requests = re.search(r"(\d+) requests in", said)
    times = dict(re.findall(r"(50|99)%\s+(\S+)", said))
    assert requests is not None, said
    return Answered(int(requests[1]), Latency(milliseconds(times["50"]), milliseconds(times["99"])))


class Etcd(GoServer):
    """etcd alone, without waiting for its disk, by a client of ours."""

    source = GoSource(
        "etcd",
        "of Debian's golang-etcd-server-dev",
        ROOT,
        "go.etcd.io/etcd",
        debian=("golang-etcd-server-dev",),
    )
    profiled = (
        ("get=8", "range=2"),
        ("put=6", "txn=3", "delete=1"),
        ("lease=3", "get=5", "put=2"),
    )
    measured = ("get=10", "range=3", "put=4", "txn=2", "delete=1", "lease=1")
    how = (
        "One member, started with `--unsafe-no-fsync`, since disks differ more than builds. One instance\n"
        "is profiled with reads, one with writes and transactions, one with leases; a mix of all is\n"
        "measured, by a program of ours with etcd's client: 8 clients, and one that watches."
    )

    def __init__(self, requests: int = 8000) -> None:
        self._requests = requests

    def prepare(self, folder: Path) -> None:
        """Prepare as `GoServer` documents."""
        # Each instance's loads have the same draws in the same order.
        self._loads = Counter[int]()
        source = GoSource("etcdload", "", WORK / "etcdload", ".", debian=self.source.debian)
        self._client = source.build(folder / "etcdload").binary

    def command(self, binary: Path, port: int) -> list[str]:
        """Return as `GoServer` documents."""
        own, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
        flags = {
            "data-dir": "data",
            "listen-client-urls": own,
            "advertise-client-urls": own,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "log-level": "error",
        }
        return [str(binary), "--enable-pprof", "--unsafe-no-fsync", *(f"--{k}={v}" for k, v in flags.items())]

    def target(self, port: int) -> dict[str, str]:
        """Return as `GoServer` documents."""
        return {"url": f"http://127.0.0.1:{port}/debug/pprof"}

    def answered(self, port: int, load: Sequence[str]) -> Answered:
        """Return as `GoServer` documents."""
        self._loads[port] += 1
        words = [f"127.0.0.1:{port}", str(self._requests), "8", str(self._loads[port]), *load]
        said = json.loads(said_by([str(self._client), *words]))
        return Answered(said["requests"], Latency(said["p50"], said["p99"]))


# Of the discoveries of targets, those that ask clouds are left out: they are most of what Go would compile.
_PLUGINS = 'package plugins\n\nimport _ "github.com/prometheus/prometheus/discovery/file"\n'
_CLOUDS = "aws|azure|docker|gophercloud|hcloud|ionos|godo|ovh|scaleway|vultr|zookeeper|xmlrpc|google-api"


class Prometheus(GoServer):
    """Prometheus with some hours of a small fleet's metrics, by `wrk`."""

    source = GoSource(
        "prometheus",
        "Debian's source package, with `discovery/file` alone of its plugins",
        ROOT,
        "github.com/prometheus/prometheus/cmd/prometheus",
        origin=SourcePackage(
            "prometheus",
            "github.com/prometheus/prometheus",
            _CLOUDS,
            lambda sources: (sources / "plugins" / "plugins.go").write_text(_PLUGINS),
        ),
    )
    how = (
        "It has six hours of 640 series, and scrapes nothing. One instance is profiled with dashboards'\n"
        "graphs of them, one with single values as of rules and alerts, one with series, labels and\n"
        "federation; a mix of other queries is measured, by `wrk` with 8 connections."
    )
    profiled = (
        (
            _graph("sum by (job) (rate(http_requests_total[5m]))", 3),
            _graph('histogram_quantile(0.9, sum by (le) (rate(http_seconds_bucket{job="shop"}[5m])))', 2),
            _graph("avg by (instance) (memory_bytes)", 6),
            _graph('increase(http_requests_total{code="500"}[10m]) > 0', 1),
        ),
        (
            _value("topk(5, sum by (instance) (rate(http_requests_total[5m])))"),
            _value('sum(rate(http_requests_total{code=~"5.."}[5m])) / sum(rate(http_requests_total[5m]))'),
            _value("max_over_time(memory_bytes[1h]) > 1e9"),
            _value("absent(http_requests_total{job='none'}) or count by (job) (memory_bytes)"),
        ),
        (
            "/api/v1/series?match[]=http_requests_total",
            "/api/v1/label/instance/values",
            "/federate?match[]=" + quote('{job="shop"}'),
            _value("memory_bytes"),
        ),
    )
    measured = (
        _graph("sum by (code) (rate(http_requests_total[10m]))", 2),
        _graph("histogram_quantile(0.99, sum by (le, job) (rate(http_seconds_bucket[5m])))", 1),
        _graph("max by (job) (memory_bytes) / 1e6", 4),
        _value("bottomk(3, avg_over_time(memory_bytes[30m]))"),
        _value("sum by (job) (irate(http_requests_total[5m])) > 2"),
        _value('http_requests_total{instance=~"host-1.*", code!="200"}'),
        "/api/v1/series?match[]=memory_bytes",
        "/api/v1/label/code/values",
    )

    def __init__(self, seconds: int = 2) -> None:
        self._seconds = seconds

    def prepare(self, folder: Path) -> None:
        """Prepare as `GoServer` documents."""
        needed("wrk", "promtool")
        self._folder = folder
        (folder / "prometheus.yml").write_text("")
        metrics = folder / "metrics"
        metrics.write_text("\n".join([*_metrics(), "# EOF", ""]))
        said_by(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(metrics), str(folder / "blocks")]
        )

    def command(self, binary: Path, port: int) -> list[str]:
        """Return as `GoServer` documents."""
        flags = {
            "config.file": self._folder / "prometheus.yml",
            "storage.tsdb.path": "data",
            "storage.tsdb.retention.time": "100y",
            "web.listen-address": f"127.0.0.1:{port}",
            "log.level": "error",
        }
        started = " ".join(["exec", str(binary), *(f"--{key}={value}" for key, value in flags.items())])
        return ["sh", "-c", f"cp -r {self._folder / 'blocks'} data && {started}"]

    def target(self, port: int) -> dict[str, str]:
        """Return as `GoServer` documents."""
        return {"url": f"http://127.0.0.1:{port}/debug/pprof"}

    def wait(self, instance: Instance, log: Path) -> None:
        """Wait as `GoServer` documents, also until it has opened its metrics."""
        super().wait(instance, log)
        while not httpx.get(f"http://127.0.0.1:{instance.port}/-/ready").is_success:
            sleep(_PAUSE)

    def answered(self, port: int, load: Sequence[str]) -> Answered:
        """Return as `GoServer` documents."""
        return _by_wrk(f"http://127.0.0.1:{port}", load, self._folder / f"{port}.lua", self._seconds)


SERVERS: Mapping[str, Callable[[], GoServer]] = {
    "etcd": Etcd,
    "pages": Pages,
    "prometheus": Prometheus,
}


def _short(files: Iterable[str]) -> tuple[str, ...]:
    """Return some files that are short, so that a load has each of them many times."""
    return tuple(file for file in files if _SHORT[0] < Path(file).stat().st_size < _SHORT[1])[:_FILES]


def _paths(files: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"/file/{Path(file).name}" for file in files)


def milliseconds(text: str) -> float:
    """Return a time as wrk prints it, such as 1.50ms."""
    found = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text)
    assert found is not None, text
    return float(found[1]) * {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000}[found[2]]
