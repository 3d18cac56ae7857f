"""Serve: the server process, from its settings to a clean stop.

`server` starts and stops everything, `listener` opens the socket, `start_gate` answers while the store is
opening, and `app` builds the application from the routes.
"""
