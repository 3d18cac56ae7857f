"""Implement the commands of `pgo-agent` that have a module of their own; `cli` adds them to its parser.

Each function `add_NAME` describes a command's arguments and sets the function to run: `capture`, `doctor`,
`latency`, `scrape` and `serve` have the command of that name, `uploads` has `binary` and `symbols`.
`arguments` has what several commands share.
"""
