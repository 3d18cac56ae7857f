"""The command `pgo-collector`: it starts at `cli.main`.

`backup`, `check`, `copy` and `trace` are its longer subcommands. `view` is the one of `pprof-merge view`.
"""
