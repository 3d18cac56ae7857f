"""The command `pprof-merge`: reads files, writes their merge. It starts in `cli.main`."""
