"""Logs: one JSON object a line on standard error, and the table of the collector's events."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
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
    # httpx logs the URLs of webhooks and debuginfod servers, and there may be a secret in them.
    logging.getLogger("httpx").setLevel(logging.WARNING)


# What each event means, by its key. `make docs` writes docs/reference/events.md from this table and from the
# calls in the code. Each event is logged in one place.
EVENTS: Mapping[str, str] = {
    # serve, http, connections
    "listening": "The server accepts connections at this address. Until `serving` follows, requests wait,"
    " except for `/healthz` and `/readyz`. `engine` says whether the merge engine is compiled; an"
    " interpreted one is some thirty times slower.",
    "listening for gRPC": "The server takes gRPC calls of OTLP at this address.",
    "serving": "The catalog matches the stored blobs, and requests are answered.",
    "check found": "What [`pgo-collector check`](../operations.md#check) says of the settings, of the files"
    " that they name, or of the disk: `detail` is what is wrong with the `part`, `fix` what to do. The server"
    " runs all the same.",
    "waiting for catalog": "The catalog's database can't be reached, or refuses the connection; or another"
    " collector uses the catalog alone, since it compares the stored profiles with it, or can't share it. The"
    " start goes on when that is over. Each `reason` is logged once.",
    "request": "A request has ended. [Operations](../operations.md#what-the-logs-say) lists the fields.",
    "unexpected error": "A fault of the collector, with its traceback. Please report it.",
    "requests refused": "Requests or connections beyond the bounds on connections and heads were refused."
    " `reasons` counts them since the last such line; there is at most one line a minute.",
    "connection limit lowered": "The process may not open enough file descriptors for"
    " `PGOF_MAX_CONNECTIONS`. Raise the hard limit (`LimitNOFILE`, `ulimit -Hn`), or lower the setting.",
    "keys read": "A keys file has changed, and has this many keys now.",
    "keys unreadable": "A keys file or a file of trace keys is missing or can't be read. The last keys stay"
    " valid.",
    "keys not replaced": "A keys file has changed, and no line of it is a key. The last keys stay valid.",
    "key malformed": "A keys file has changed, and this line isn't a key with fields. The line is skipped."
    " The next start will fail.",
    "key has blanks": "This whole line of a keys file is one key. A misspelled field has this effect.",
    "function rules read": "`PGOF_FUNCTION_METRICS_FILE` has this many rules, at a start or after a change.",
    "function rules not used": "`PGOF_FUNCTION_METRICS_FILE` can't be read, or has something that isn't a"
    " rule. The rules before hold; after a start there are none.",
    # store
    "not ready": "Somebody asked `/readyz`, and parts that requests need fail.",
    "ready again": "Somebody asked `/readyz`, and nothing fails any more.",
    "unknown file ignored": "The collector didn't make this file or object, and leaves it alone.",
    "data folder made private": "Others than the server's user had rights to the data folder, or to what is"
    " directly in it (`opened`). They have none now. What they have read, they know.",
    "lock file replaced": "Somebody deleted or replaced `lock`. No other process could use the folder"
    " meanwhile.",
    "folder lock unsupported": "The file system can't lock the data folder, only files in it. Don't delete"
    " `lock`.",
    "symbols stored": "Symbols of a program of the service were uploaded.",
    "program stored": "A program of the service was uploaded.",
    "program deleted": "An uploaded program was deleted: on request, for a newer one, or by age.",
    "blob not deleted": "A blob that no longer counts could not be deleted. It does no harm; the next upkeep"
    " tries again.",
    "opened file not deleted": "A file that somebody looked at could not be deleted. Nobody sees it any more,"
    " and it is deleted at the next start.",
    "file not deleted": "A file that isn't needed any more could not be deleted: of a body, of a merge, or"
    " one too many. It takes disk, and does no other harm. Later deletions and the next start try again.",
    "deletion interrupted": "Blobs that no longer count could not be deleted, or their rows. They do no"
    " harm; the next upkeep goes on.",
    "deletion postponed": "A request to the bucket failed, or a collector died while it changed profiles of"
    " the service; with SQLite and a bucket, every start counts as that. The next upkeep that is more than"
    " two minutes later deletes these rows, and the files that a combine replaced.",
    "retired profile kept": "The combined blob that replaced this one is missing. Restore it from a backup.",
    "lease lost": "This collector was paused, or PostgreSQL didn't answer. Its change is dropped, and"
    " another collector goes on.",
    "lease not renewed": "PostgreSQL didn't answer. The collector tries again.",
    "lease not released": "PostgreSQL didn't answer. The lease ends by itself.",
    "waiting for bucket": "The last collector of this prefix had another catalog, and ran on the machine in"
    " `by`. If it still runs, the start fails after this many seconds.",
    "bucket taken over": "The collector with another catalog doesn't run any more. The catalog is made from"
    " the bucket.",
    "bucket lost": "This collector was cut off or asleep, and one with another catalog has started"
    " meanwhile. Stop one of them.",
    "bucket claim not renewed": "The object store didn't answer. The collector tries again.",
    # catalog
    "catalog damaged": "SQLite has found damage. Stop the server and run `pgo-collector reindex`, unless"
    " `catalog not damaged` follows.",
    "catalog not damaged": "The catalog seemed damaged, and a later check found no damage: the disk had"
    " failed to read it for a moment. Look at the disk.",
    "catalog tables replaced": "The tables were of another version: a very old one, or a newer one. All"
    " blobs are read once to fill the new ones.",
    "waiting events lost": "`reindex` has replaced a damaged catalog. The events of hooks that waited in it"
    " can't be delivered.",
    # merges
    "merge made": "A merge was made of this many blobs of the service.",
    "blob left out": "A merge lacks this blob: it is damaged or missing, measures something else than most,"
    " or has no duration to be weighed by.",
    "kept merge damaged": "The SHA-256 of a file in `merged/`, or of its record, is wrong. The merge is made"
    " again.",
    "rules read": "A start has read a rules file with this many rules.",
    "rules unreadable": "A rules file has a line that isn't a rule, or can't be read. Merges of its services"
    " fail until it is repaired.",
    "profiles combined": "This many blobs were replaced by their merge, `blob`.",
    "combine postponed": "The client got the merge, and its blobs stay. The next combine tries again.",
    "rows loaded": "After a start, a worker has read this many blobs, or found their rows on disk.",
    "warming failed": "A worker, the catalog or the storage failed while profiles were read ahead. Merges"
    " read what they need.",
    # releases
    "release made": "A merge became the current release. `overlap` compares it with the release before.",
    "release compared": "A merge was compared with the current release, which stays.",
    "release not compared": "The merge could not be made or compared. Pipelines get the current release.",
    "release pinned": "Somebody pinned this release.",
    "release unpinned": "Somebody unpinned this release.",
    "release converted": "A release was written in another format.",
    "release deleted": "There were more releases than `PGOF_RELEASES_KEPT`.",
    "release not deleted": "A file of an old release could not be deleted. It does no harm; the next release"
    " tries again.",
    "release damaged": "A file of a release is missing or damaged. Restore it from a backup.",
    "compared merge damaged": "A file in `merged/` isn't what was written there. The merge is made again.",
    "report made": "A report was made of this many blobs.",
    # hooks
    "event delivered": "The receiver of hooks accepted an event.",
    "event not delivered": "The receiver of hooks did not accept an event. The collector tries again.",
    "events dropped": "These events had waited for too long (`too_old`), or were the oldest of too many"
    " (`too_many`).",
    "receiver gone": "The receiver of hooks answered 410. No event is sent until the next start. Set another"
    " `PGOF_WEBHOOK_URL`, or none.",
    "outbox failed": "The catalog can't be read or written, for example on a full disk. Events wait in it;"
    " the collector tries again.",
    # upkeep
    "upkeep done": "A run of roll-ups and retention has finished.",
    "upkeep failed": "The disk, the catalog or a worker failed, or a service was refused. Nothing is lost;"
    " the next run tries again.",
    "upkeep skipped": "Another collector that shares the catalog runs upkeep.",
    "service upkeep failed": "A roll-up, retention or deletion of this service and type was refused, for"
    " example since a merge takes longer than `PGOF_TASK_SECONDS`. Others go on.",
    "days rolled up": "Days of the service and type became one profile each.",
    "retention refused": "The clock is `days_ahead` of what has passed since retention last ran, and by"
    " it `too_many` are too old: more than `PGOF_RETENTION_SHARE`. None is deleted because of its age."
    " Correct the clock; or, if it is right, start once with `PGOF_RETENTION_SHARE=1`.",
    "clock off": "The clock of this service's instance is `seconds` ahead, and its profiles are stored with"
    " the time at which they come; or, negative, a profile is older than `PGOF_KEEP_DAYS` keeps, and is"
    " deleted by the next run of retention. Logged once, until the clock is right.",
    "profiles expired": "Retention deleted this many blobs of the service and type.",
    "start lines learned": "Go profiles told where functions of a build begin. eBPF profiles stored from now"
    " on get these lines.",
    "start lines not learned": "Start lines could not be read or stored. The collector tries again.",
    # debuginfod
    "debug file fetched": "A debuginfod server had the debug information of a build, or the program, which"
    " now names functions in views of every service.",
    "debug file unusable": "What a debuginfod server has for a build is too large, damaged, of another build"
    " or without symbols. It isn't asked for again for a day.",
    "debug file not fetched": "A debuginfod server, the disk or a worker failed. The collector tries again,"
    " and leaves a server that fails alone for a while.",
    "profiles not looked at": "Which builds lack names in the newest profiles of this service and type can't"
    " be found out: they are too large, or a worker failed. No server is asked for their builds.",
    "names not fetched": "The catalog, the storage or the lease failed. The collector tries again.",
    # workers
    "worker died": "A worker process was killed, or crashed in a library. The task is tried again, three"
    " times in all.",
    "worker not started": "A worker process couldn't be started, or was killed meanwhile. The task is tried"
    " again, three times in all.",
    "worker terminated": "A worker process got a SIGTERM, which often goes to all processes of the server."
    " The task is tried again.",
    "worker hung": "A worker process was stopped by a signal, or has done nothing for 10 seconds. It is"
    " replaced, and the task is tried again.",
    "worker killed by kernel": "The machine or cgroup had no memory left. The task isn't tried again. Lower"
    " `PGOF_MEMORY_MEGABYTES` (or `PGOF_WORKER_MEGABYTES`), or give the collector more memory.",
    "worker memory exceeded": "A task needed more than `PGOF_MEMORY_MEGABYTES` leaves it, or than"
    " `PGOF_WORKER_MEGABYTES`, and was refused. Its worker process is replaced.",
    "task timed out": "A task took longer than `PGOF_TASK_SECONDS`, and was refused. Its worker process is"
    " replaced.",
    "task abandoned": "The client has disconnected. The worker process is replaced, as others may wait for"
    " it.",
    "fork server hung": "The process that starts workers was stopped by a signal, or has done nothing for 10"
    " seconds. It is replaced.",
    "rows not saved": "`rows/` can't be written, for example on a full disk, or a worker failed. A start"
    " reads more blobs then.",
    "bulk read started": "A Dask cluster begins to read this many blobs of an owner, a service and type.",
    "bulk read progressed": "A Dask cluster has read this many of the blobs.",
    "cluster failed": "The Dask cluster can't be reached, or a range failed. Own workers read the blobs; the"
    " cluster isn't asked for a minute.",
    "cluster skipped blob": "The Dask cluster can't read a blob; a range logs its first three. A worker"
    " tries again.",
    "background task failed": "A background task such as `upkeep` met an unexpected error. It starts again"
    " after this many seconds. Please report its `exception`.",
    # traces
    "trace keys read": "The file of trace keys has changed, and has this many keys now.",
    "trace keys malformed": "A line of the file of trace keys isn't a key. The last keys stay valid. The"
    " next start will fail.",
    "traces dropped": "This outlet can't keep traces. Logged once until it keeps some again. Requests aren't"
    " affected.",
    # starting
    "pgo-fleet file stored": "A file of pgo-fleet became a stored profile.",
    "pgo-fleet file skipped": "A file of pgo-fleet isn't a CPU profile, or can't be read. It stays.",
    "profiles recovered": "The catalog lacked these blobs: at most one after a crash, all after its loss.",
    "combined profile recovered": "The catalog lacked a profile that stands for this many others.",
    "inputs restored": "The `.inputs` of a combined profile were missing or damaged, and are complete again.",
    "profile recounted": "The catalog had lost rows of this profile. They are added again.",
    "duplicate profile deleted": "An interrupted combine left this profile behind, and another one has all"
    " of it.",
    "damaged profile deleted": "This combined profile is damaged, and all profiles inside it are stored"
    " apart.",
    "combined profile not counted": "Its `.inputs` are damaged, or counting it would count profiles twice."
    " Restore the blobs from one backup.",
    "profile not counted": "The combined profile that replaced this one is missing. Restore it from a"
    " backup.",
    "stored profile missing": "A blob is gone. Restore it from a backup, and restart.",
    "stored profile damaged": "A blob can't be read, or isn't what its name says. Merges leave it out.",
}
