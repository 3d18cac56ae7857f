"""The command `pprof-merge`: reads files, writes their merge. It starts in `cli.main`.

`options` are those of a command line, which `parser` parses if there are more than `-o` and files.
`files` opens inputs and outputs, `parallel` reads inputs in several processes, and `report_file` writes the
report of the option --report.
"""
