"""The command `pprof-merge`: files in, their merge out. `cli.main` is where it starts."""
