"""Queries: what a service, or the whole fleet, spends its time on. The API and the pages show the results.

`fleet.Fleet` runs a query on the workers, service by service. `fleet_tables`, `flames`, `functions`,
`timelines` and `histograms` combine the results, and `overviews` has the whole fleet at one look; `activity`
asks the catalog alone. `tops` and `diffs` turn tables into answers, `listings` turns catalog rows into
answers, and `answers` has the JSON models; `unnamed` says which programs' functions have no names. `kept`
keeps answers for the pages, `traces` reads the trace store, and `meanwhile` finds the profiles that were
being taken during a trace. `grafana/` answers the calls of Grafana's Pyroscope data source.
"""
