"""Logs: one JSON object a line on standard error, for our own events and those of the libraries."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

import structlog


class _Lines(structlog.WriteLogger):
    """Writes lines; whoever read them may be gone, and requests are answered all the same."""

    def msg(self, message: str) -> None:
        """Writes one."""
        with suppress(OSError):
            super().msg(message)

    debug = info = warning = error = msg


def set_up_logs(level: str) -> None:
    """Sends everything of that level and above, a name like `info`, to standard error."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper("iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer = structlog.processors.JSONRenderer()
    # Ours don't go by way of `logging`, which costs several times what a line does.
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
    # What uvicorn says at info, the access log and `serve` say better.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    # Its line of each request has the webhook's URL, in which there may be a secret.
    logging.getLogger("httpx").setLevel(logging.WARNING)
