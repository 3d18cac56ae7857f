"""Connections: the sockets below HTTP and gRPC, each with its bounds of time, size and number.

`connection` is one TCP connection of HTTP/1.1, and `requests` what it parses, for so long in each of the
loop's `turns`. `connection_pool` counts these connections and says which may stay, and `drained_body` is an
ASGI layer that reads what a route has left of a body before the answer ends. `http2` is a connection of the
gRPC port.
"""
