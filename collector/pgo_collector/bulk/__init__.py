"""Bulk: reads very many blobs at once, with this server's own workers or on a Dask cluster.

Start with `bulk.Bulk`, the seam. `open_bulk` yields the side of it that the settings ask for: `OwnWorkers`,
or `dask_cluster.DaskCluster`. `parts` has the tasks of the cluster's workers, `processes` starts them. The
own workers do what a cluster fails to do.
"""
