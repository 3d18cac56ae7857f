"""Settings, in one table: name, default and help. They are read once, from the environment and a file.

Start with `table`: it has a field for each setting. Several follow another one of their family, as `families`
says. `settings` has `Settings`, which is the table with the values that are computed from it. `environment`
reads it, and knows what were settings once. `fields` says what a field takes, and `texts` checks values whose
text has a syntax.
"""

from __future__ import annotations

from pgo_collector.settings.environment import read_settings
from pgo_collector.settings.settings import BASIC, MASTERS, PREFIX, SHOWN, Settings, followers_of
from pgo_collector.settings.table import MERGE_KEYS, SUBMIT_KEYS
from pgo_collector.settings.texts import dask_address, is_loopback, split_address

__all__ = [
    "BASIC",
    "MASTERS",
    "MERGE_KEYS",
    "PREFIX",
    "SHOWN",
    "SUBMIT_KEYS",
    "Settings",
    "dask_address",
    "followers_of",
    "is_loopback",
    "read_settings",
    "split_address",
]
