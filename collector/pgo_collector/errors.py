"""What can go wrong in the collector. One tree; a refusal carries the status that a client sees:

    CollectorError
    ├── Refusal                 answered with `status` and the message as problem details
    │   ├── NotACPUProfile      400
    │   ├── EmptyBody           400
    │   ├── EmptyProfile        400
    │   ├── ParameterUnknown    400
    │   ├── ParameterInvalid    400
    │   │   └── LabelsInvalid
    │   ├── UnknownFormat       400
    │   ├── SymbolsUnreadable   400
    │   ├── NoSuchWeighting     400
    │   ├── CombineWeighted     400
    │   ├── KeyRefused          403
    │   ├── KeyOutOfScope       403
    │   ├── FromAnotherSite     403
    │   ├── NothingToMerge      404
    │   │   └── NothingSelected
    │   ├── NoSuchProfile       404
    │   ├── NoSuchRelease       404
    │   ├── CombineNeedsPost    405
    │   ├── BodyTooSlow         408
    │   ├── BodyTooLarge        413
    │   ├── NotOfThisProfile    422
    │   ├── AnswerTooLarge      422
    │   ├── NotComparable       422
    │   ├── TaskOutOfMemory     422
    │   ├── QuotaUsedUp         429
    │   ├── NotStored           500
    │   ├── RulesUnreadable     500
    │   ├── ReleaseDamaged      500
    │   ├── CatalogFails        503
    │   ├── IncomingFull        503
    │   ├── NotReady            503
    │   └── WorkerUnavailable   503
    │       ├── WorkerLost
    │       ├── TaskTooSlow
    │       └── WorkersBusy
    ├── InputsDamaged           which profiles are inside a combined blob can't be known
    ├── MergeDamaged            the file of a merge isn't what was written
    ├── CopyDamaged             a file that is to be copied isn't what it was
    └── CannotStart             ends the process, with the message and without a traceback
        ├── SettingsInvalid
        ├── KeysUnreadable
        ├── KeyMalformed
        ├── SecretUnusable
        ├── FolderUnusable
        ├── CatalogUnreadable
        ├── BackupUnusable
        └── AddressUnusable

A profile that can't be decoded is a `pprof_merge.ProfileError`; `problems` gives it its status.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import ClassVar, Self


class CollectorError(Exception):
    """The root of the tree."""


class Refusal(CollectorError):
    """A request is not done; the message tells the client why."""

    status: ClassVar[HTTPStatus]
    _headers: ClassVar[dict[str, str]] = {}

    @property
    def headers(self) -> dict[str, str]:
        """What the answer has besides."""
        return self._headers


class NotACPUProfile(Refusal):
    """A profile, but not of what a Go CPU profile measures."""

    status = HTTPStatus.BAD_REQUEST


class EmptyBody(Refusal):
    """A request without the body that it is about."""

    status = HTTPStatus.BAD_REQUEST


class EmptyProfile(Refusal):
    """A profile without samples, where the API that it came by takes none."""

    status = HTTPStatus.BAD_REQUEST


class ParameterUnknown(Refusal):
    """A parameter of the query that the route doesn't have."""

    status = HTTPStatus.BAD_REQUEST


class ParameterInvalid(Refusal):
    """A parameter of the query has a value that it doesn't take, or more of them than it takes."""

    status = HTTPStatus.BAD_REQUEST


class LabelsInvalid(ParameterInvalid):
    """Not labels, or too many."""


class UnknownFormat(Refusal):
    """Not a name of a format."""

    status = HTTPStatus.BAD_REQUEST


class NoSuchWeighting(Refusal):
    """Not a name of a weight, or not a half-life."""

    status = HTTPStatus.BAD_REQUEST


class CombineWeighted(Refusal):
    """What a combine stores has to be the sum, or the next merge would weigh what is weighted already."""

    status = HTTPStatus.BAD_REQUEST


class SymbolsUnreadable(Refusal):
    """A program's symbols in which there is no function."""

    status = HTTPStatus.BAD_REQUEST


class KeyRefused(Refusal):
    """No key, or none of those that the route takes. Never 401: pgo-fleet's clients know only 403."""

    status = HTTPStatus.FORBIDDEN


class KeyOutOfScope(Refusal):
    """A key that the route takes, but not for the service that the request is about."""

    status = HTTPStatus.FORBIDDEN


class FromAnotherSite(Refusal):
    """A form of another site, which a browser was made to send."""

    status = HTTPStatus.FORBIDDEN


class NothingToMerge(Refusal):
    """No profile is stored, or none that can be read."""

    status = HTTPStatus.NOT_FOUND


class NothingSelected(NothingToMerge):
    """No profile that is stored fits the selection."""

    def __init__(self) -> None:
        super().__init__("no such profile is stored")


class NoSuchProfile(Refusal):
    """No profile has that id, or can be had by itself any more."""

    status = HTTPStatus.NOT_FOUND


class NoSuchRelease(Refusal):
    """No release has that number, or has it any more."""

    status = HTTPStatus.NOT_FOUND


class CombineNeedsPost(Refusal):
    """A combine changes what is stored, which GET and HEAD must not."""

    status = HTTPStatus.METHOD_NOT_ALLOWED
    _headers: ClassVar = {"Allow": "POST"}


class BodyTooSlow(Refusal):
    """The body did not arrive in time; what is left of it isn't waited for."""

    status = HTTPStatus.REQUEST_TIMEOUT
    _headers: ClassVar = {"Connection": "close"}


class BodyTooLarge(Refusal):
    """The body is larger than any profile may be."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class NotOfThisProfile(Refusal):
    """The merge lacks what the format can't do without."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY


class AnswerTooLarge(Refusal):
    """The answer, or what it is made from, would take more memory than the settings allow."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY


class NotComparable(Refusal):
    """Two selections that measure different things."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY


class QuotaUsedUp(Refusal):
    """So many profiles of the service came today, or so much of it is stored, as the settings allow."""

    status = HTTPStatus.TOO_MANY_REQUESTS

    def __init__(self, message: str, retry_seconds: int) -> None:
        super().__init__(message)
        self._retry_seconds = retry_seconds

    @property
    def headers(self) -> dict[str, str]:
        """When to come again."""
        return {"Retry-After": str(self._retry_seconds)}


class NotStored(Refusal):
    """Disk or catalog failed; nothing of the profile is kept."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR


class RulesUnreadable(Refusal):
    """A rules file can't be read, or has a line that is none."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR


class ReleaseDamaged(Refusal):
    """A file of a release isn't what was written, and nobody is to build with another."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR


class TaskOutOfMemory(Refusal):
    """A task needs more memory than its worker process may have. It isn't tried again."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY

    @classmethod
    def over(cls, memory_bytes: int) -> Self:
        """Return the refusal of a task that needs more than so many bytes."""
        return cls(
            f"this takes more than the {memory_bytes >> 20:,} MiB of memory that a worker process may use for"
            " it (PGOF_WORKER_MEGABYTES); send or select less"
        )


class CatalogFails(Refusal):
    """The catalog can't be read or written; the message says why, and what to do if it is damaged."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    _headers: ClassVar = {"Retry-After": "30"}


class IncomingFull(Refusal):
    """The bodies that are arriving take as much of the disk as they may."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    _headers: ClassVar = {"Retry-After": "5"}


class NotReady(Refusal):
    """The server has started, and still compares its catalog with what is on disk."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    _headers: ClassVar = {"Retry-After": "5"}


class WorkerUnavailable(Refusal):
    """No worker process did the task; a later attempt may succeed."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    _headers: ClassVar = {"Retry-After": "5"}


class WorkerLost(WorkerUnavailable):
    """Each worker process that got the task died under it, or hung."""


class TaskTooSlow(WorkerUnavailable):
    """A task took longer than PGOF_TASK_SECONDS, and its worker process was replaced."""


class WorkersBusy(WorkerUnavailable):
    """A task waited longer than PGOF_TASK_SECONDS for its turn."""


class InputsDamaged(CollectorError):
    """An .inputs file doesn't say what it said when it was written."""


class MergeDamaged(CollectorError):
    """A file of merged/ isn't what was written there."""


class CopyDamaged(CollectorError):
    """A file of a data folder or a backup isn't what was written there."""


class CannotStart(CollectorError):
    """What the process needs is missing or unusable."""


class SettingsInvalid(CannotStart):
    """An environment variable has a value that its setting doesn't take."""


class KeysUnreadable(CannotStart):
    """A keys file is missing, or can't be read or added to."""


class KeyMalformed(CannotStart):
    """A line of a keys file, or what is to become one, isn't a key and its fields."""


class SecretUnusable(CannotStart):
    """The file of the webhook's secrets is missing, can't be read, or has a line that is no secret."""


class FolderUnusable(CannotStart):
    """The data folder can't be made or written, or another process uses it."""


class CatalogUnreadable(CannotStart):
    """The catalog's file is damaged or not a catalog; `reindex` makes it anew."""


class BackupUnusable(CannotStart):
    """A target has no whole backup, or can't become one, or of what is to be backed up none can be made."""


class AddressUnusable(CannotStart):
    """The address can't be listened on."""
