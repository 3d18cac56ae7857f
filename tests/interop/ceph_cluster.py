"""Ceph from Debian, at free ports of loopback: monitor, OSD in memory, and the gateway, which speaks S3."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import formatdate
from pathlib import Path

import httpx

from tests.interop.listening import free_port

_PROGRAMS = "ceph-mon", "ceph-osd", "radosgw", "ceph"
_DEADLINE_SECONDS = 240.0
_CONFIGURATION = """
[global]
fsid = {fsid}
mon initial members = a
mon host = [v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
run dir = {folder}
admin socket = {folder}/$name.sock
pid file =
log file = {folder}/log
keyring = {folder}/keyring
mon data = {folder}/mon
mon data avail warn = 1
mon data avail crit = 1
mon allow pool size one = true
mon max pg per osd = 1000
auth allow insecure global id reclaim = false
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 4294967296
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
rgw data = {folder}
rgw enable usage log = false
rgw enable gc threads = false
rgw enable lc threads = false
rgw enable quota threads = false
rgw run sync thread = false
rgw thread pool size = 64
"""
MISSING = (
    ""
    if all(map(shutil.which, _PROGRAMS))
    else "Ceph (Debian: ceph-mon ceph-osd radosgw ceph-common) is missing"
)


class Gateway:
    """The S3 gateway of a running cluster."""

    scheme = "s3"
    access_key, secret_key = "access", "secret"

    def __init__(self, folder: Path, *addresses: str) -> None:
        """Use the cluster in a folder; listen on 127.0.0.1, and on more addresses of loopback if given."""
        self.port = free_port()
        self._folder = folder
        self._addresses = ("127.0.0.1", *addresses)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which clients find it, as those of Amazon's programs."""
        return self.environment_at("127.0.0.1")

    def environment_at(self, address: str) -> Mapping[str, str]:
        """The same variables for clients that reach it by another of its addresses."""
        return {
            "AWS_ENDPOINT_URL": f"http://{address}:{self.port}",
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command: list[str | Path] = ["radosgw", "-f", "-c", self._folder / "ceph.conf", "-n", "client.admin"]
        command += ["--admin-socket", ""]  # of several gateways, only one could have it
        endpoints = " ".join(f"endpoint={address}:{self.port}" for address in self._addresses)
        frontend = f"beast {endpoints} tcp_nodelay=1"
        log = self._folder / f"gateway-{self.port}"
        with log.open("wb") as output:
            self._process = subprocess.Popen([*command, "--rgw-frontends", frontend], stderr=output)
        _wait_for(self.answers, log, self._process)

    def answers(self) -> bool:
        """Whether it answers HTTP."""
        with suppress(httpx.HTTPError):
            return httpx.get(self.url, timeout=5, verify=False).is_success  # noqa: S501 - plain HTTP
        return False

    def send(self, number: signal.Signals) -> None:
        """Send it a signal: SIGKILL, SIGSTOP or SIGCONT; wait until it is dead or stopped."""
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def new_user(self) -> Mapping[str, str]:
        """Make a user without a bucket, whose id is its access key; return the variables of its clients."""
        name = f"u{secrets.token_hex(8)}"
        keys = f"--access-key={name}", f"--secret-key={name}"
        conf = "-c", str(self._folder / "ceph.conf")
        _run("radosgw-admin", *conf, "user", "create", f"--uid={name}", f"--display-name={name}", *keys)
        return {**self.environment, "AWS_ACCESS_KEY_ID": name, "AWS_SECRET_ACCESS_KEY": name}

    def new_bucket(self) -> str:
        """Make a bucket, and return its name."""
        name = f"b{secrets.token_hex(8)}"
        self.request("PUT", f"/{name}").raise_for_status()
        return name

    def request(self, method: str, path: str, content: bytes = b"") -> httpx.Response:
        """Send a request with the old signature of S3, which a few lines make."""
        date = formatdate(usegmt=True)
        text = f"{method}\n\n\n{date}\n{path}".encode()
        signature = base64.b64encode(hmac.digest(self.secret_key.encode(), text, hashlib.sha1)).decode()
        headers = {"Date": date, "Authorization": f"AWS {self.access_key}:{signature}"}
        url = f"{self.url}{path}"
        return httpx.request(method, url, content=content, headers=headers, timeout=60, verify=False)  # noqa: S501 - plain HTTP


@contextmanager
def running_ceph(*addresses: str) -> Iterator[Gateway]:
    """A cluster of one node, whose data is gone with it; `addresses` are as for its gateway."""
    with running_cluster() as folder, running_gateway(folder, *addresses) as gateway:
        yield gateway


@contextmanager
def running_gateway(folder: Path, *addresses: str) -> Iterator[Gateway]:
    """A gateway of the cluster in a folder."""
    gateway = Gateway(folder, *addresses)
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.send(signal.SIGKILL)


@contextmanager
def running_cluster() -> Iterator[Path]:
    """The folder of a cluster without a gateway."""
    folder = Path(tempfile.mkdtemp(prefix="ceph-"))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        _configure(folder)
        conf = "-c", str(folder / "ceph.conf")
        made = "--monmap", str(folder / "monmap"), "--keyring", str(folder / "keyring")
        _run("ceph-mon", *conf, "-i", "a", "--mkfs", *made)
        processes.append(_daemon(folder, "ceph-mon", *conf, "-i", "a"))
        osd = str(uuid.uuid4())
        ceph = "ceph", *conf, "--connect-timeout", "60"
        _run(*ceph, "osd", "new", osd)
        rights = "mon", "allow profile osd", "osd", "allow *"
        _run(*ceph, "auth", "get-or-create", "osd.0", *rights, "-o", str(folder / "osd" / "keyring"))
        own = *conf, "-i", "0", "--keyring", str(folder / "osd" / "keyring")
        _run("ceph-osd", *own, "--mkfs", "--osd-uuid", osd)
        processes.append(_daemon(folder, "ceph-osd", *own))
        user = "--uid=tests", "--display-name=tests"
        keys = f"--access-key={Gateway.access_key}", f"--secret-key={Gateway.secret_key}"
        _run("radosgw-admin", *conf, "user", "create", *user, *keys, "--max-buckets=0")
        yield folder
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
        shutil.rmtree(folder)


def _configure(folder: Path) -> None:
    fsid, v1, v2 = str(uuid.uuid4()), free_port(), free_port()
    text = _CONFIGURATION.format(folder=folder, fsid=fsid, v1=v1, v2=v2)
    (folder / "ceph.conf").write_text(text)
    for name in ("mon", "osd"):
        (folder / name).mkdir()
    keyring = str(folder / "keyring")
    every = [argument for part in ("mon", "osd", "mgr") for argument in ("--cap", part, "allow *")]
    _run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "client.admin", *every)
    _run("ceph-authtool", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    address = f"[v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]"
    _run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, str(folder / "monmap"))


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, timeout=_DEADLINE_SECONDS)
    assert done.returncode == 0, (command, done.stderr.decode())


def _daemon(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    with (folder / f"{command[0]}.out").open("wb") as log:
        return subprocess.Popen([*command, "-f"], stdout=log, stderr=log)


def _wait_for(answers: Callable[[], bool], log: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not answers():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
