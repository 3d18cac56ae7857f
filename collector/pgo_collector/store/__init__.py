"""Store: the data folder, its blobs and its catalog. A profile that was answered with success is on disk and
counts once.

Start with `store.Store`. `folder` is the locked data folder, `blobs` the files in it, and `claim` keeps the
collectors of other catalogs out of a bucket; `group_commit` stores many profiles with one sync and one
transaction; `locks` keep changes of a service apart, also those of several collectors; `garbage` deletes the
blobs that don't count any more. At a start `reconcile` makes catalog and blobs agree, from the differences
that `disk_diff` finds, `sealing` seals combined blobs that have no seal, and `pgo_fleet_files` imports the
files of a pgo-fleet server. `quotas` refuses submits of a service over its quota, and `readiness` tells
/readyz whether all parts work.
"""
