"""The command `pgo-collector`: it starts at `cli.main`; `backup` and `check` are its longer subcommands."""
