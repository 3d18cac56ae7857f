"""Logs: one JSON object a line on standard error, for our own events and those of the libraries."""

from __future__ import annotations

import logging
import sys

import structlog


def set_up_logs(level: str) -> None:
    """Sends everything of that level and above, a name like `info`, to standard error."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper("iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # What uvicorn says at info, the access log and `serve` say better.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    # Its line of each request has the webhook's URL, in which there may be a secret.
    logging.getLogger("httpx").setLevel(logging.WARNING)
