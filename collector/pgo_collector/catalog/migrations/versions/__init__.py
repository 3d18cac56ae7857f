"""The steps, a file for each version, with the tables as they were then: see `catalog.migrations`."""
