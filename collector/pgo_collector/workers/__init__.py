"""Workers: the processes that run the engine, and how the server calls them.

Start with `pool.Workers`: `run` calls a function in any worker, `run_for` in the one that has the rows of a
service and type. A `process` runs one task at a time and answers over a `channel`. `batcher` collects small
submitted bodies, so that one task validates many.
"""
