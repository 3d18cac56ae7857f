"""Connections: the sockets below HTTP, each with its bounds of time, size and number.

`connection` is one TCP connection, and `requests` what it parses, for so long in each of the loop's `turns`.
`connection_pool` counts all connections and says which may stay, and `drained_body` is an ASGI layer that
reads what a route has left of a body before the answer ends.
"""
