"""Grafana's questions: what a selector of its Pyroscope data source means here, and the answer.

`selector` parses a selector, `matching` finds the series that it matches, and `profile_types` has Grafana's
names of our types. `profiles` asks the catalog and the workers, and `reading` reads flame graphs, profiles
and time series.
"""
