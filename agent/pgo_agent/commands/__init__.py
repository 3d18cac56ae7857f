"""Implement the commands of `pgo-agent`; `cli` adds them to its parser.

Each function `add_NAME` describes a command's arguments and sets the function to run: `capture`, `doctor`,
`latency`, `scrape` and `serve` have the command of that name, `files` has `convert` and `submit`, and
`uploads` has `binary` and `symbols`. `arguments` has what several commands share.
"""

from pgo_agent.commands.capture import add_capture
from pgo_agent.commands.doctor import add_doctor
from pgo_agent.commands.files import add_convert, add_submit
from pgo_agent.commands.latency import add_latency
from pgo_agent.commands.scrape import add_scrape
from pgo_agent.commands.serve import add_serve
from pgo_agent.commands.uploads import add_binary, add_symbols

__all__ = [
    "add_binary",
    "add_capture",
    "add_convert",
    "add_doctor",
    "add_latency",
    "add_scrape",
    "add_serve",
    "add_submit",
    "add_symbols",
]
