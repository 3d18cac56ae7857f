"""Implement the commands of `pgo-agent` that have a module of their own; `cli` adds them to its parser.

Each module has a function `add_NAME` that describes the command's arguments and sets the function to run.
`arguments` has what several commands share.
"""
