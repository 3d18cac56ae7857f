"""Store: the data folder, its blobs and its catalog. A profile that was answered with success is on disk and
counts once.

Start with `store.Store`: it has the threads on which all changes run. `folder` is the locked data folder, and
`claim` keeps the collectors of other catalogs out of a bucket; `locks` keep changes of a service apart, also
those of several collectors; `garbage` deletes the blobs that don't count any more. `binaries` and
`start_lines` keep programs and start lines beside the blobs, and `readiness` tells /readyz whether all parts
work.
"""
