"""Logs: one JSON object a line on standard error, for the collector's events and those of its libraries."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

import structlog


class _Lines(structlog.WriteLogger):
    """Writes log lines. Requests are answered even if standard error is closed or full."""

    def msg(self, message: str) -> None:
        """Write a line, if that is possible."""
        with suppress(OSError):
            super().msg(message)

    debug = info = warning = error = msg


def set_up_logs(level: str) -> None:
    """Log everything of a level and above, a name such as `info`, to standard error."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper("iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer = structlog.processors.JSONRenderer()
    # The collector's own events bypass `logging`, which costs several times as much as writing the line.
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Lines(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # The access log and `serve` already log what uvicorn logs at info.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    # httpx logs the webhook's URL with each request, and there may be a secret in it.
    logging.getLogger("httpx").setLevel(logging.WARNING)
