"""Serve: the server process, from its settings to a clean stop.

`server` listens, and then opens what is in `opened`; `listener` opens the sockets, and `grpc_listener` turns
the calls on the gRPC port into requests; `root_path` is for a proxy that serves it below a path, `start_gate`
answers while the store is opening, `app` builds the application from the routes, and `traced` sets up
tracing.
`first_look` makes keys, and prints how to use them, where nobody else can connect; `view` prints the link to
the files that `pprof-merge view` shows.
"""
