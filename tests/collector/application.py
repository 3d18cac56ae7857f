"""The application with all its routes, without the layers around them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pgo_collector.background import BackgroundTasks
from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.http.keys import KeyFile, Keys
from pgo_collector.merges.kept import KeptMerges
from pgo_collector.merges.warming import Warming
from pgo_collector.serve.app import AppDependencies, OpenStore, create_app
from pgo_collector.settings import Settings
from pgo_collector.store.binaries import Binaries
from pgo_collector.store.folder import DataFolder, folder_storage
from pgo_collector.store.locks import Locks
from pgo_collector.store.start_lines import StartLineTables
from pgo_collector.store.store import Store
from pgo_collector.submits.commit import Commits
from pgo_collector.submits.opened_files import OpenedFiles
from pgo_collector.ui.sessions import SessionTokens
from pgo_collector.workers.blob_tasks import BlobTasks
from pgo_collector.workers.bulk import OwnWorkers
from pgo_collector.workers.pool import Workers
from pprof_merge import Limits
from starlette.applications import Starlette

from tests.collector.bounds import BOUNDS


def application(home: Path) -> Starlette:
    """Return all routes, on a store in a folder that is closed again."""
    file = home / "keys"
    file.write_text("")
    keys = KeyFile(file)
    with (
        DataFolder(home / "data") as folder,
        Store(folder, SQLite(folder.catalog), folder_storage(folder.path)) as store,
    ):
        workers = Workers(1, BOUNDS, folder.rows)
        binaries = Binaries(store, workers, Settings())
        tasks = BlobTasks(workers, bulk := OwnWorkers(workers), store.catalog, binaries.symbols)
        app = create_app(
            Settings(),
            AppDependencies(
                OpenStore(store, Commits(store), tasks, binaries, bulk.progress),
                KeptMerges(folder.merged, 1),
                StartLineTables(store, workers, Settings()),
                Locks(store.catalog.database.leases),
                Warming(store, tasks),
                BackgroundTasks({}),
                Keys(keys, keys, keys),
                SessionTokens(keys, b"secret", 60),
                OpenedFiles(store, tasks, KeptMerges(folder.merged, 1), Limits(), 60),
                asyncio.Event(),
            ),
        )
    while not isinstance(app, Starlette):  # the layers around it keep what they wrap under this name
        app = vars(app)["_app"]
    return app
