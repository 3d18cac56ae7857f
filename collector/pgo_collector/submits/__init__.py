"""Submits: the way of a profile from a request to the disk, the same for every API and every size.

Start with `submits.Submits`, which the routes call. A `body` is read within bounds, validated in a worker
together with others, and `commit` stores and counts it, many at once. `quotas` refuses
the submits of a service that is over its quota, and `captures` takes profiles from targets, for the pages.
"""
