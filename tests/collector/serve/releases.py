"""The stores that releases left, a data folder or a bucket and PostgreSQL: `testdata/releases`.

Made once by its wheels, in a clone of its commit: `make dist`, then
`python -m tests.collector.serve.releases VERSION`.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import httpx
from pprof_merge import decode, encode, inflate, merge

from tests.collector.webhooks import SECRET, send
from tests.faults.stacks import DAY, EPOCH, profile_of, tally
from tests.server import Process, Server, bearer
from tests.shared_parts import SharedParts

ROOT: Final = Path(__file__).parents[3]
_TESTDATA: Final = ROOT / "tests" / "testdata"
LEFT: Final = _TESTDATA / "releases"
# The commit of each release that data is kept of. Its code is in the history of a clone.
COMMITS: Final = {"1.0.0": "9e3492274438320a065a37156461e652fba17c14"}
_REAL: Final = sorted((_TESTDATA / "profiles").glob("lintd-*.pb.gz"))
_SYMBOLS: Final = _TESTDATA / "otlp" / "ebpf-go.symbols.pb.gz"
# Events of these profiles wait, since nobody listens there.
_NOBODY: Final = "http://127.0.0.1:9/"
EVENTS: Final = 5 + len(_REAL)
_PROGRAM: Final = "import sys; from pgo_collector.command.cli import main; sys.exit(main())"
# The schema in the kept text of PostgreSQL's, which is another where it is read.
_SCHEMA: Final = "of_a_release"


class Code:
    """Another version of the collector, from folders with its packages; it launches servers."""

    def __init__(self, *folders: Path) -> None:
        self._path = ":".join(map(str, folders))

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Process:
        return subprocess.Popen(
            self._command(arguments), stderr=subprocess.PIPE, env={**environment, "PYTHONPATH": self._path}
        )

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(arguments),
            env={**environment, "PYTHONPATH": self._path},
            capture_output=True,
            text=True,
            check=False,
        )

    @staticmethod
    def _command(arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-c", _PROGRAM, *arguments]


def code_of(version: str, folder: Path) -> Code | None:
    """Return the code of a release, put into a folder; None if this clone hasn't so much history."""
    packages = ("proto", "merge", "collector")
    command = ["git", "-C", str(ROOT), "archive", COMMITS[version], *packages]
    archive = subprocess.run(command, check=False, capture_output=True)
    if archive.returncode:
        return None
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as members:
        members.extractall(folder, filter="data")
    return Code(*(folder / package for package in packages))


def with_webhook(server: Server, url: str = _NOBODY) -> Server:
    """Set a webhook, to which the server sends its events from its next start on."""
    file = server.home / "webhook_secret"
    file.write_text(f"{SECRET}\n")
    server.environment |= {"PGOF_WEBHOOK_SECRET_FILE": str(file), "PGOF_WEBHOOK_URL": url}
    return server


def fill(server: Server) -> None:
    """Have a running server keep what each kind of its tables and files is for."""
    send(server, *"abc", labels="version=1")
    assert server.combine().status_code == 200
    for name in "de":
        assert server.submit(profile_of(name, time_nanos=EPOCH + DAY)).status_code == 204
    for number, file in enumerate(_REAL):
        of_one = {"service": "lintd", "labels": f"instance={number}"}
        assert server.submit(file.read_bytes(), query=of_one).status_code == 204
    assert server.release().status_code == 200
    assert _send_symbols(server).status_code == 200


def check(server: Server, more: Sequence[str] = ()) -> None:
    """Check that a running server has all that `fill` made, and the stacks submitted since, each once."""
    assert tally(server.merge().content) == dict.fromkeys([*"abcde", *more], 1)
    real = server.merge(query={"service": "lintd"}).content
    assert inflate(real) == encode(merge(decode(file.read_bytes()) for file in _REAL))
    assert tally(server.release(1).content) == dict.fromkeys("abcde", 1)
    known = _start_lines(server)
    assert _send_symbols(server).status_code == 200
    assert known == _start_lines(server)  # so nothing of it was new


def _start_lines(server: Server) -> list[bytes]:
    return [table.read_bytes() for table in server.area("start_lines").rglob("*.sqlite3")]


def _send_symbols(server: Server) -> httpx.Response:
    return server.client.post(
        "/v1/symbols",
        content=_SYMBOLS.read_bytes(),
        params={"service": "ebpf"},
        headers=bearer(server.submit_key),
    )


def put_folder(server: Server, version: str) -> None:
    """Give a server that isn't running the data folder of a release."""
    with tarfile.open(LEFT / version / "folder.tar.gz") as archive:
        archive.extractall(server.home, filter="data")


def put_shared(server: Server, version: str) -> None:
    """Put what a release left in a bucket and PostgreSQL where a server looks for both."""
    settings = server.variables  # which makes the schema
    root = server.storages.area(server.data, "x").parent
    with tarfile.open(LEFT / version / "bucket.tar.gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            (root / member.name).write_bytes(content.read())
    schema = re.findall(r"search_path%3D(\w+)", settings["PGOF_CATALOG"])[0]
    text = (LEFT / version / "postgresql.sql").read_text().replace(_SCHEMA, schema)
    server.drop_catalog()
    with server.catalog() as catalog:
        catalog.exec_driver_sql(text)


def _keep_folder(server: Server, folder: Path) -> None:
    with tarfile.open(folder / "folder.tar.gz", "w:gz") as archive:
        archive.add(server.data, "data")


def _keep_shared(server: Server, folder: Path) -> None:
    root = server.storages.area(server.data, "x").parent
    with tarfile.open(folder / "bucket.tar.gz", "w:gz") as archive:
        for path in root.rglob("*"):
            content = path.read_bytes()
            member = tarfile.TarInfo(str(path.relative_to(root)))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    url = server.variables["PGOF_CATALOG"]
    schema = re.findall(r"search_path%3D(\w+)", url)[0]
    dump = ["pg_dump", "--inserts", "--no-owner", "--schema", schema, "--dbname", url.partition("?")[0]]
    text = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    # Lines of psql's own, and comments.
    lines = [line for line in text.splitlines() if line and not line.startswith(("\\", "--"))]
    (folder / "postgresql.sql").write_text("\n".join(lines).replace(schema, _SCHEMA) + "\n")


def main() -> None:
    """Make the data of a release from its wheels in dist/."""
    version = sys.argv[1]
    folder = LEFT / version
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps")
        wanted = [f"{name}=={version}" for name in ("pgo-collector", "pprof-merge", "pprof-proto")]
        wheels = ("--find-links", ROOT / "dist", "--target", home / "code")
        subprocess.run([*install, *wheels, *wanted], check=True)
        for storage, catalog, keep in (
            ("folder", "sqlite", _keep_folder),
            ("s3", "postgresql", _keep_shared),
        ):
            parts = SharedParts(storage, catalog, None)
            assert not parts.missing, parts.missing
            Server.storages, Server.catalogs = parts.storages, parts.catalogs
            server = with_webhook(Server(home / storage, launcher=Code(home / "code")))
            with server:
                fill(server)
                check(server)
                assert server.stop() == 0
            keep(server, folder)
            parts.close()


if __name__ == "__main__":
    main()
