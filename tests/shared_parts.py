"""The storage and the catalogs that collectors under test share, as `--storage` and `--catalog` say."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.catalogs import Catalogs, Files, Schemas
from tests.interop import azurite, ceph_cluster, postgres_cluster
from tests.interop.azurite import Azurite, running_azurite
from tests.interop.ceph_cluster import Gateway, running_cluster, running_gateway
from tests.interop.postgres_cluster import running_postgres
from tests.storages import Folders, Storages


class SharedParts:
    """A gateway, an Azurite and a PostgreSQL of this process, started when they are first needed.

    `missing` says why collectors can't have what the options ask for; it is empty if they can.
    """

    def __init__(self, storage: str, catalog: str, ceph: Path | None) -> None:
        """Use a storage and a catalog by these names, and the Ceph cluster in a folder if there is one."""
        self.missing = (
            (storage == "s3" and ceph_cluster.MISSING)
            or (storage == "azure" and azurite.MISSING)
            or (catalog == "postgresql" and postgres_cluster.MISSING)
        )
        self._storage, self._catalog, self._ceph = storage, catalog, ceph
        self._stack = ExitStack()
        self._gateway: Gateway | None = None
        self._azurite: Azurite | None = None
        self._storages: Storages | None = None
        self._catalogs: Catalogs | None = None

    @property
    def gateway(self) -> Gateway:
        """The S3 gateway."""
        if self._gateway is None:
            ceph = self._ceph or self._stack.enter_context(running_cluster())
            self._gateway = self._stack.enter_context(running_gateway(ceph))
        return self._gateway

    @property
    def azurite(self) -> Azurite:
        """Azurite."""
        if self._azurite is None:
            self._azurite = self._stack.enter_context(running_azurite())
        return self._azurite

    @property
    def storages(self) -> Storages:
        """Where collectors keep their blobs."""
        if self._storages is None:
            if self._storage == "folder":
                self._storages = Folders()
            else:
                from tests.bucket_storages import Prefixes  # noqa: PLC0415 - it needs an extra

                self._storages = Prefixes(self.gateway if self._storage == "s3" else self.azurite)
        return self._storages

    @property
    def catalogs(self) -> Catalogs:
        """Where collectors have their catalogs."""
        if self._catalogs is None:
            if self._catalog == "postgresql":
                cluster = self._stack.enter_context(running_postgres(scale=0))
                self._catalogs = Schemas(cluster.port)
            else:
                self._catalogs = Files()
        return self._catalogs

    def close(self) -> None:
        """Stop what was started."""
        self._stack.close()
