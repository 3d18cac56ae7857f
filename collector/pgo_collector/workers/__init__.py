"""Workers: the processes that run the engine, and how the server calls them.

Start with `pool.Workers`: `Workers.run` calls a function in any worker, `Workers.run_for` in the one that has
the rows of a service and type. A `process` runs one task at a time and answers over a `channel`; the
`fork_server` forks it. `blob_tasks`
runs tasks over stored blobs in the worker that has their rows.

Very many blobs are read through the seam `bulk.Bulk`: by this server's own workers, or on a Dask cluster
(`dask_cluster`), which the own workers stand in for when it fails. `bulk_parts` has the tasks of the
cluster's workers, `bulk_answers` checks what they answer, and `dask_processes` starts them.
"""
