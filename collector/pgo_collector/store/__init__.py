"""Store: the data folder, its blobs and its catalog, so that what was answered with success is on disk and
counts once.

`store.Store` is the door. `folder` is the locked data folder, `blobs` the files in it; `group_commit` stores
many profiles with one sync and one transaction; `garbage` deletes what a combine replaced. At a start
`reconcile` makes catalog and blobs agree, from what `disk_diff` finds, `sealing` writes each combined blob's
inputs into it, and `pgo_fleet_files` takes in the files of a pgo-fleet server. `quotas` and `readiness` look
at how much room there is.
"""
