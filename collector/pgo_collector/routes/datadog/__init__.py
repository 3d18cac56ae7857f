"""The intake of Datadog's agent, as its tracers upload profiles to it.

`api` has the routes, `upload` takes a body apart in a worker, `naming` says which series its parts belong to,
and `errors` how a refusal is answered.
"""
