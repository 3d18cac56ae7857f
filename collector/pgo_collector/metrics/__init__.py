"""Metrics for Prometheus: counts and times of requests and tasks, and gauges read from a running server.

`metrics` has the interface that others use, and a null implementation; `prometheus` implements it with
`metering`, which measures requests, and `gauges`, which reads the server's state on each scrape.
"""
