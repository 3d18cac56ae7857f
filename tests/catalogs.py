"""Where the catalogs of collectors under test are: in their data folders, or all in one PostgreSQL."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa


class Catalogs(Protocol):
    """Knows the catalog that belongs to a data folder."""

    def settings(self, data: Path) -> Mapping[str, str]:
        """Return the settings with which a collector uses it."""

    def changing(self, data: Path) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction on it, for what no collector does."""

    def drop(self, data: Path) -> None:
        """Delete it, while no collector uses it."""


class Files:
    """A file of SQLite in each data folder."""

    def settings(self, data: Path) -> Mapping[str, str]:
        del data
        return {}

    def changing(self, data: Path) -> AbstractContextManager[sa.Connection]:
        return sa.create_engine(f"sqlite:///{data / 'catalog.sqlite3'}", poolclass=sa.NullPool).begin()

    def drop(self, data: Path) -> None:
        for path in data.glob("catalog.sqlite3*"):
            path.unlink()


class Schemas:
    """A schema for each data folder, in the PostgreSQL at a port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._engine = sa.create_engine(
            f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres", poolclass=sa.NullPool
        )

    def settings(self, data: Path) -> Mapping[str, str]:
        schema = _schema(data)
        with self._engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres?options=-csearch_path%3D{schema}"
        return {"PGOF_CATALOG": url}

    def changing(self, data: Path) -> AbstractContextManager[sa.Connection]:
        engine = sa.create_engine(
            self._engine.url,
            poolclass=sa.NullPool,
            connect_args={"options": f"-csearch_path={_schema(data)}"},
        )
        return engine.begin()

    def drop(self, data: Path) -> None:
        with self._engine.begin() as connection:
            connection.exec_driver_sql(f"DROP SCHEMA IF EXISTS {_schema(data)} CASCADE")


class SharedSchema(Schemas):
    """One schema for the data folders of several collectors, named after the folder `shared`."""

    def __init__(self, port: int, shared: Path) -> None:
        super().__init__(port)
        self._shared = shared

    def settings(self, data: Path) -> Mapping[str, str]:
        del data
        return super().settings(self._shared)

    def changing(self, data: Path) -> AbstractContextManager[sa.Connection]:
        del data
        return super().changing(self._shared)

    def drop(self, data: Path) -> None:
        del data
        super().drop(self._shared)


def _schema(data: Path) -> str:
    return f"of_{hashlib.sha256(str(data).encode()).hexdigest()[:32]}"
