"""Metrics for Prometheus: counts and times of requests and tasks, and gauges read from a running server.

`metrics` declares each count and duration, and has the interface that others report to, with a null
implementation. `prometheus` implements it with `metering`, which measures requests, and `gauges`, which reads
the server's state on each scrape; `function_families` has what functions take.
"""
