"""Serve: one process from its settings to a clean stop.

`server` starts and stops everything, `listener` opens the sockets, `start_gate` answers while the store is
opening, and `app` builds the routes.
"""
