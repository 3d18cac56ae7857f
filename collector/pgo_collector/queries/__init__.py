"""Queries: what a service, or the whole fleet, spends its time on. The API and the pages show the results.

`fleet.Fleet` runs a query on the workers, service by service. `tables`, `flames` and `timelines` combine the
results, and `overviews` has the whole fleet at one look. `tops` and `diffs` turn tables into answers,
`listings` turns catalog rows into answers, and `answers` has the JSON models.
`grafana/` answers the calls of Grafana's Pyroscope data source.
"""
