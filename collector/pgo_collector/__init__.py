"""The collector: an HTTP service that stores the profiles of a fleet and serves their merges."""
