"""The command `pgo-collector`. `cli.main` is where it starts; `backup` and `check` are its longer
subcommands.
"""
