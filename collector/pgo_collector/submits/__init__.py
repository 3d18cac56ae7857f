"""Submits: the way of a profile from a request to the disk, the same for every API and every size.

Start with `submits.Submits`, which the routes call. A `body` is read within bounds, validated in a worker
together with others, and `commit` stores and counts it, many at once; `clocks` knows the senders whose times
can't be right, and `function_metrics` counts the seconds of functions in what is stored. `programs` takes
programs in place of profiles. `captures` takes profiles from targets, for the pages, and `example` has some
to look at before there are others. `opened_files` has those that somebody looks at without storing them.
"""
