"""The command `pprof-merge`: reads files, writes their merge. It starts in `cli.main`.

`files` opens inputs and outputs, `parallel` reads inputs in several processes, and `report_file` writes the
report of the option --report.
"""
