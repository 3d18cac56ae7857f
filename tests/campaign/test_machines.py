"""The campaign of several collectors finds planted faults, and its cuts cut what they say."""

from __future__ import annotations

import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import obstore
import pytest
from obstore.store import from_url

from tests.campaign.firewall import Cut, Firewall, NoFirewall, Place
from tests.campaign.machine_clients import OWNERS, Clients
from tests.campaign.machine_parts import Machines
from tests.campaign.machines import SETTINGS
from tests.interop import ceph_cluster, postgres_cluster

_LOST_SECONDS = 3.0
_ENOUGH = 10


def connects(place: Place) -> bool:
    """Return whether a connection is taken, and answered."""
    try:
        with socket.create_connection(place, timeout=0.5) as connection:
            return connection.recv(1) == b"x"
    except OSError:
        return False


@pytest.mark.system("root", "iptables")
@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("answers_only", [False, True])
def test_connections_are_cut_and_healed(*, refused: bool, answers_only: bool) -> None:
    with socket.create_server(("127.0.0.17", 0)) as listening:

        def answer() -> None:
            with suppress(OSError):  # at its end
                while True:
                    connection, _ = listening.accept()
                    with connection, suppress(OSError):
                        connection.sendall(b"x")

        Thread(target=answer, daemon=True).start()
        place = Place(*listening.getsockname())
        try:
            with Firewall() as firewall:
                assert connects(place)
                cutting = Thread(
                    target=firewall.cut, args=([place], Cut(refused, answers_only), _LOST_SECONDS)
                )
                cutting.start()
                deadline = time.monotonic() + _LOST_SECONDS
                while connects(place):
                    assert time.monotonic() < deadline
                cutting.join()
                assert connects(place)
        except NoFirewall as reason:
            pytest.skip(str(reason))


@pytest.mark.exhaustive
@pytest.mark.system
@pytest.mark.skipif(bool(ceph_cluster.MISSING), reason=ceph_cluster.MISSING)
@pytest.mark.skipif(bool(postgres_cluster.MISSING), reason=postgres_cluster.MISSING)
@pytest.mark.alike(1, family="a lost profile")
@pytest.mark.long
def test_a_lost_profile_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes over half a minute: a Ceph, PostgreSQL and three collectors have to start."""
    faults: list[str] = []
    owner = OWNERS[0]
    with Machines(tmp_path, SETTINGS, faults.append) as machines:
        clients = Clients(machines, 1, time.time_ns(), faults.append, deleters=0, askers=0)
        with clients:
            deadline = time.monotonic() + 60
            while len(clients.ledger.must(owner)) < _ENOUGH:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        for member in machines.members:
            assert clients.check_merge(member.address, owner)
        assert not faults
        for member in machines.members:
            member.kill()
            shutil.rmtree(member.collector.data)  # it has the rows and the merge
        for name, value in machines.gateway.environment.items():
            monkeypatch.setenv(name, value)
        store = from_url(f"s3://{machines.bucket}", client_options={"allow_http": True})
        objects = [meta["path"] for page in obstore.list(store, f"profiles/{owner[0]}/") for meta in page]
        # Half of them: a few may be of submits that were cut short, and nobody was told that they are stored.
        obstore.delete(store, objects[::2])
        for member in machines.members:
            member.start()
        assert clients.check_merge(machines.url, owner)
        assert any("profiles lost" in fault for fault in faults), faults
