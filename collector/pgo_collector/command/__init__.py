"""The command `pgo-collector`: it starts at `cli.main`.

`backup`, `check`, `copy` and `trace` are its longer subcommands.
"""
