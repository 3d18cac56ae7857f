"""The command `pgo-collector`: it starts at `cli.main`.

`backup`, `check`, `copy`, `settings` and `trace` are its longer subcommands. `view` is that of
`pprof-merge view`.
"""
