"""The collector: an HTTP service that stores CPU profiles of a fleet and serves their merge."""
