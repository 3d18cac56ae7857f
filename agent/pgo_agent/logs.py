"""Log the agent's events, each a short key with fields, and list what each one means."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping

_PLAIN = re.compile(r"[^\s\"'=]+")


class EventLogger:
    """Log events to the standard library's logger of this name.

    The message is the event's key with its fields, such as `profile dropped: reason="413: too large"`. For
    programs whose handlers write fields of their own, records have `event` and `fields`, too.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, /, **fields: object) -> None:
        """Log what went as it should."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Log what went wrong."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Log what keeps the agent from working."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: object) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self._log(logging.ERROR, event, fields, has_traceback=True)

    def _log(
        self, level: int, event: str, fields: Mapping[str, object], *, has_traceback: bool = False
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        text = " ".join(f"{name}={_quoted(str(value))}" for name, value in fields.items())
        self._logger.log(
            level,
            f"{event}: %s" if text else event,
            *((text,) if text else ()),
            exc_info=has_traceback,
            extra={"event": event, "fields": {**fields}},
            stacklevel=3,
        )


def _quoted(value: str) -> str:
    """Return a value on one line, in quotes unless it is one word."""
    return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)


# What each event means, by its key. `make docs` writes docs/reference/agent-events.md from this table and
# from the calls in the code. Each event is logged in one place.
EVENTS: Mapping[str, str] = {
    # profiler, outbox, spool
    "profiler already running": "Another profiler runs in this process, so this one doesn't start.",
    "thread not started": "The profiler's thread couldn't be started, so no profiles are taken.",
    "profile not taken": "Sampling was stopped before it had a sample.",
    "profile failed": "A round gave no profile. The next round tries again.",
    "profile unfinished": "The profiler was stopped, and the last profile isn't finished or sent. Only a"
    " profile in a spool isn't lost.",
    "profile sent": "The collector has a profile of this type and service. If requests are traced, it has it"
    " `ms` after the profile's first step, and `pgo-collector trace show` shows the `trace`.",
    "profiles kept": "`pgo-agent serve` ends, and the collector doesn't have this many profiles. They stay in"
    " the spool, and the next agent with this folder sends them.",
    "profile dropped": "A profile that the spool couldn't keep is lost: the collector refused it, or couldn't"
    " be reached.",
    "collector unavailable": "The collector can't be reached. Profiles stay in the spool.",
    "key refused": "The collector refuses the key for this service; without a name, for the key's."
    " Profiles stay in the spool until it is taken, or they are too old: give the agent and the"
    " collector the same key.",
    "profile larger than spool": "A profile has more bytes than the spool may have. It is sent at once, or"
    " dropped.",
    "spool full": "The spool is full, and all of it is being sent. The profile is sent at once, or dropped.",
    "profile not spooled": "A profile can't be written to the spool. It is sent at once, or dropped.",
    "spool unreadable": "The profiles in the spool can't be read, so none of them is sent.",
    "spooled profile dropped": "A profile in the spool is lost: it was refused, damaged, too old, or the"
    " oldest of a full spool.",
    # backends
    "sampling": "The profiler has begun to sample, for this many seconds.",
    "samples lost": "bcc couldn't keep this many samples.",
    "stacks lost": "This many of the samples have no functions: the kernel gave no stack, or the process"
    " ended before its memory map could be read, as [What is sampled](../compute-profiler.md#what-is-sampled)"
    " says.",
    # programs
    "program sent": "`pgo-agent serve --symbols` has sent a program that was profiled.",
    "program not sent": "A program that was profiled couldn't be sent: the collector refused it, or its file"
    " is gone. It isn't tried again.",
    "programs not sent": "The collector couldn't be reached, or takes no programs. The next profile tries"
    " again.",
    # latency, serve
    "listening": "`pgo-agent serve` answers at this address.",
    "capture failed": "A request for a profile got none, and was answered with 500.",
    "tracker not started": "A request to start a latency tracker was answered with 500.",
    "tracker failed": "A scheduled latency tracker gave no profile. It starts again with the next round.",
    "tracker profile dropped": "A profile of a latency tracker is lost: too many others are still being"
    " sent.",
    "tracker profile failed": "What a latency tracker counted couldn't be made into a profile, or sent.",
    # scrape
    "pods listed": "A namespace has this many pods to scrape.",
    "pods unreadable": "The pods of a namespace can't be watched, and are listed again. The known ones are"
    " still scraped.",
    "pod watch silent": "Nothing came of the pods of a namespace for too long, so they are listed again.",
    "pod not scraped": "The annotations of a pod can't be followed.",
    "no pods": "A namespace has no running pods that match, or it isn't there: Kubernetes answers both with"
    " an empty list. Check the names and the selector.",
    "no services": "A catalog has no service with the mark, or the agent needs a token: Nomad and Consul with"
    " ACLs leave out what it may not see.",
    "services listed": "A catalog has this many services to scrape.",
    "services unreadable": "A catalog can't be read, and is asked again. The known services are still"
    " scraped.",
    "service not scraped": "The tags of a service can't be followed.",
    "scrape failed": "A target gave no profile of this type, for the first time in a row.",
    "unexpected error": "A fault of the agent while it scraped a target, with its traceback. Please report"
    " it.",
    "scrapes dropped": "The agent ended before this many scrapes did.",
    "round ended": "The counts of a round of scrapes: [Scrape](../scrape.md#rounds) explains them.",
}
