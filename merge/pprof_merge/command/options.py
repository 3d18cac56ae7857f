"""The options of the command. Most calls are understood without argparse, whose import takes longer."""

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from pprof_merge.command.files import STANDARD_STREAM
from pprof_merge.merging.weights import PLAIN_WEIGHTING


class Options(NamedTuple):
    """The options, by the names and with the defaults that the parser has; `half_life` is in ns."""

    files: Sequence[str]
    output: str = STANDARD_STREAM
    format: str = "pprof"
    binary: str | None = None
    symbolize: Sequence[str] | None = None
    rules: str | None = None
    weight: str = PLAIN_WEIGHTING.by
    half_life: int = PLAIN_WEIGHTING.half_life
    sample_labels: str = "all"
    report: str | None = None
    symbols: str | None = None
    against: str | None = None
    jobs: int = 1


def read_options(arguments: Sequence[str]) -> Options:
    """Return the options of a command line. Ends the command with a message if they are wrong."""
    return _plain(arguments) or _parsed(arguments)


def _plain(arguments: Sequence[str]) -> Options | None:
    """Return the options `[-o OUT] FILE...`, None for any others."""
    output, files = STANDARD_STREAM, arguments
    if arguments[:1] == ["-o"]:
        output, files = arguments[1] if len(arguments) > 1 else "", arguments[2:]
    if not files or any(name.startswith("-") and name != STANDARD_STREAM for name in (output, *files)):
        return None
    return Options(files, output)


def _parsed(arguments: Sequence[str]) -> Options:
    from pprof_merge.command.parser import parser  # noqa: PLC0415 - imports argparse

    return Options(**vars(parser().parse_args(arguments)))


def refuse_usage(reason: str) -> NoReturn:
    """End the command with how it is used, and the reason why these options don't go together."""
    from pprof_merge.command.parser import parser  # noqa: PLC0415 - imports argparse

    parser().error(reason)
