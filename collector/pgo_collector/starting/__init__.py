"""Starting: what a start finds in the data folder or the bucket, and mends.

`progress` says how far it is. `reconcile` makes catalog and blobs agree, from the differences that
`disk_diff` finds. `pgo_fleet_files` imports the files of a pgo-fleet server.
"""
