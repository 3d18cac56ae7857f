"""The intake of Datadog's agent, as its tracers upload profiles to it.

`api` has the routes, `upload` takes a body apart in a worker, `compression` inflates its parts, `naming` says
which series they belong to, and `errors` how a refusal is answered.
"""
