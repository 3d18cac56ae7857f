"""What Prometheus scrapes: counted and timed of requests and tasks, and read from a running server."""
