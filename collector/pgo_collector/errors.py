"""The collector's errors, in one tree.

A refusal carries the HTTP status that the client gets:

    CollectorError
    ├── Refusal                 answered with `status` and the message as problem details
    │   ├── NotACPUProfile      400
    │   ├── NotOfItsType        400
    │   ├── EmptyBody           400
    │   ├── EmptyProfile        400
    │   ├── ParameterUnknown    400
    │   ├── HeaderInvalid       400
    │   ├── ParameterInvalid    400
    │   │   └── LabelsInvalid
    │   │       └── NameTooLong  an OSError, too
    │   ├── PushInvalid         400
    │   ├── UnknownFormat       400
    │   ├── SymbolsUnreadable   400
    │   ├── BinaryUnreadable    400
    │   ├── BinaryUnwanted      400
    │   ├── ReportInvalid       400
    │   ├── NoSuchWeighting     400
    │   ├── CombineWeighted     400
    │   ├── KeyRefused          403
    │   ├── KeyOutOfScope       403
    │   ├── ReportRefused       403
    │   ├── FromAnotherSite     403
    │   ├── NothingToMerge      404
    │   │   └── NothingSelected
    │   ├── NoSuchFunction      404
    │   ├── NoSuchProfile       404
    │   ├── NoSuchRelease       404
    │   ├── NoSuchBinary        404
    │   ├── NoSuchTrace         404
    │   ├── NoSuchTarget        404
    │   ├── NoSuchFile          404
    │   ├── CombineNeedsPost    405
    │   ├── BodyTooSlow         408
    │   ├── BinaryThere         409
    │   ├── UploadExpected      409
    │   ├── BodyTooLarge        413
    │   ├── ContentTypeUnknown  415
    │   ├── NotPprof            422
    │   ├── NotOfThisProfile    422
    │   ├── AnswerTooLarge      422
    │   ├── NotComparable       422
    │   ├── TaskOutOfMemory     422
    │   ├── BodyTooCostly       422
    │   ├── QuotaUsedUp         429
    │   ├── NotStored           500
    │   ├── RulesUnreadable     500
    │   ├── ReleaseDamaged      500
    │   ├── NotOffered          501
    │   ├── BinariesOff         501
    │   ├── CaptureFailed       502
    │   ├── BlobsGone           503
    │   ├── CapturesBusy        503
    │   ├── FilesFull           503
    │   ├── TooManyStreams      503
    │   ├── CatalogFails        503
    │   │   ├── CatalogGone
    │   │   ├── CatalogSlow
    │   │   └── CatalogBusy
    │   │       ├── LeaseHeld
    │   │       └── LeaseLost
    │   ├── TracesFail          503
    │   ├── StorageFails        503, and an OSError, too
    │   │   ├── StorageGone
    │   │   ├── StorageSlow
    │   │   └── StorageTaken
    │   ├── IncomingFull        503
    │   ├── NotReady            503
    │   ├── Stopping            503
    │   └── WorkerUnavailable   503
    │       ├── WorkerLost
    │       ├── TaskTooSlow
    │       └── WorkersBusy
    ├── PushRefused             several profiles of a request; answered as the errors that it has
    ├── FunctionRulesInvalid    a file of rules for metrics can't be used
    ├── InputsDamaged           the list of the profiles inside a combined blob is damaged
    ├── MergeDamaged            the file of a merge is damaged
    ├── CopyDamaged             a file to copy is damaged
    ├── DebuginfodFails         a debuginfod server doesn't answer as it should
    ├── DebugFileTooLarge       a debuginfod server has a larger file than is taken
    ├── EngineDiffers           a worker of a cluster has another version of the merge engine
    └── CannotStart             ends the process with the message and without a traceback
        ├── SettingsInvalid
        ├── KeysUnreadable
        ├── KeyMalformed
        ├── SecretUnusable
        ├── FolderUnusable
        ├── StorageUnusable
        ├── CatalogUnreadable
        │   ├── CatalogInUse
        │   └── CatalogUnreachable
        ├── CatalogUnavailable
        ├── BackupUnusable
        ├── TracesUnreadable
        ├── TracingUnavailable
        ├── DaskUnavailable
        ├── WorkersUnusable
        ├── AddressUnusable
        └── FileUnreadable

A profile that can't be decoded raises `pprof_merge.ProfileError`, to which `http.problems` gives its status.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import ClassVar, Self

# Characters of a function's name in a message.
_LONGEST_NAME = 200


class CollectorError(Exception):
    """The root of the tree."""


class Refusal(CollectorError):
    """A request is refused; the message tells the client why.

    A class below it names its `status`, and after how many seconds a client may try again, if it says so.
    """

    status: ClassVar[HTTPStatus]
    _headers: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, status: int | None = None, retry_seconds: int | None = None) -> None:
        super().__init_subclass__()
        if status is not None:
            cls.status = HTTPStatus(status)
        if retry_seconds is not None:
            cls._headers = {"Retry-After": str(retry_seconds)}

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that the answer has besides the usual ones."""
        return self._headers


class NotACPUProfile(Refusal, status=400):
    """The body is a profile, but doesn't measure what a Go CPU profile measures."""


class NotOfItsType(Refusal, status=400):
    """The body is one of Go's profiles, but not the one that the parameter `type` says."""


class EmptyBody(Refusal, status=400):
    """The request needs a body and has none."""


class EmptyProfile(Refusal, status=400):
    """The profile has no samples, and the API of this route refuses such profiles."""


class ParameterUnknown(Refusal, status=400):
    """The query has a parameter that the route doesn't know."""


class HeaderInvalid(Refusal, status=400):
    """A header that a trusted proxy sets has an invalid value."""


class ParameterInvalid(Refusal, status=400):
    """A parameter of the query has an invalid value, or too many values."""


class PushInvalid(Refusal, status=400):
    """The body isn't the message or form that the route takes, or holds too many profiles."""


class PushRefused(CollectorError):
    """Several profiles of a push were refused, each with its error of `errors`; all others are stored."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


class LabelsInvalid(ParameterInvalid):
    """The text isn't labels, or has too many of them."""


class NameTooLong(LabelsInvalid, OSError):
    """The labels make a name that is too long for the object store."""


class UnknownFormat(Refusal, status=400):
    """No format has this name."""


class NoSuchWeighting(Refusal, status=400):
    """No weighting has this name, or the half-life is invalid."""


class CombineWeighted(Refusal, status=400):
    """The request is for a combine with weights, or of a part of the latencies or names. A combine stores the
    plain sum of all samples, since a weighted one would be weighted again in the next merge.
    """


class SymbolsUnreadable(Refusal, status=400):
    """The symbols of a program can't be read, or have no function."""


class BinaryUnreadable(Refusal, status=400):
    """The body isn't a program that profiles can be read with: the message says what it lacks."""


class BinaryUnwanted(Refusal, status=400):
    """No profile could be named by the program, or it was refused a short time ago."""


class KeyRefused(Refusal, status=403):
    """The request has no key that the route accepts. Never 401: pgo-fleet's clients know only 403."""


class KeyOutOfScope(Refusal, status=403):
    """The route accepts the key, but not for the service in the request."""


class FromAnotherSite(Refusal, status=403):
    """A browser sent a form of another site."""


class NothingToMerge(Refusal, status=404):
    """No profile in the selection is stored, or none can be read."""


class NothingSelected(NothingToMerge):
    """No stored profile is in the selection; `advice` says what is stored instead."""

    def __init__(self, advice: str = "") -> None:
        super().__init__(f"no stored profile matches the selection{advice and '; '}{advice}")


class BlobsGone(Refusal, status=503, retry_seconds=5):
    """Stored profiles were combined or deleted while they were read, each time that they were looked for."""


class NoSuchFunction(Refusal, status=404):
    """No function in the selection has exactly this name; `similar` are names that contain it."""

    def __init__(self, name: str, similar: Sequence[str]) -> None:
        names = ", ".join(repr(other[:_LONGEST_NAME]) for other in similar)
        hint = f"did you mean one of {names}?" if similar else "no name contains it; /v1/top lists functions"
        super().__init__(f"no function in the selection is named {name[:_LONGEST_NAME]!r}; {hint}")
        self.similar = similar


class NoSuchProfile(Refusal, status=404):
    """No profile has this id, or it is inside a combined one and can't be had by itself any more."""


class NoSuchRelease(Refusal, status=404):
    """No release has this number, or it was deleted."""


class NoSuchBinary(Refusal, status=404):
    """No program of this build was uploaded for the service, or it was deleted."""

    @classmethod
    def of(cls, build_id: str, advice: str = "see GET /v1/binaries") -> Self:
        """Return the refusal of a build id, which may be any text, with advice to the client."""
        return cls(f"no program with the build id {build_id[:200]!r} is stored: {advice}")


class NoSuchTrace(Refusal, status=404):
    """No trace has this id, it was deleted, or it is of services that the key isn't for."""


class ReportInvalid(Refusal, status=400):
    """A client reports steps of a trace in another form, or beyond a bound, which the message names."""


class ReportRefused(Refusal, status=403):
    """A client's report on a trace has no signature, or one that isn't good."""


class CombineNeedsPost(Refusal, status=405):
    """A combine changes what is stored, which GET and HEAD must not do."""

    _headers: ClassVar = {"Allow": "POST"}


class BinaryThere(Refusal, status=409):
    """Another program of the same build id is stored, and stored programs are never replaced."""


class UploadExpected(Refusal, status=409):
    """The same upload is on its way, or another client was just told to send it."""


class BodyTooSlow(Refusal, status=408):
    """The body didn't arrive in time; the connection is closed without waiting for the rest."""

    _headers: ClassVar = {"Connection": "close"}


class BodyTooLarge(Refusal, status=413):
    """The body is larger than the route takes."""


class ContentTypeUnknown(Refusal, status=415):
    """The route doesn't take bodies of this content type."""

    def __init__(self, message: str, taken: str = "application/proto, application/json") -> None:
        super().__init__(message)
        self._taken = taken

    @property
    def headers(self) -> dict[str, str]:
        """Return the header Accept-Post, which has the content types that the route takes."""
        return {"Accept-Post": self._taken}


class NotPprof(Refusal, status=422):
    """The body is a profile in another format than pprof."""


class NotOfThisProfile(Refusal, status=422):
    """The merge lacks something that the format or the question needs."""


class AnswerTooLarge(Refusal, status=422):
    """The answer, or the intermediate result behind it, would be larger than the settings allow."""


class NotComparable(Refusal, status=422):
    """The two selections measure different things."""


class QuotaUsedUp(Refusal, status=429):
    """The service has reached its quota of profiles a day, or of stored bytes."""

    def __init__(self, message: str, retry_seconds: int) -> None:
        super().__init__(message)
        self._retry_seconds = retry_seconds

    @property
    def headers(self) -> dict[str, str]:
        """Return the Retry-After header, in seconds."""
        return {"Retry-After": str(self._retry_seconds)}


class NotStored(Refusal, status=500):
    """The disk or the catalog failed; nothing of the profile is kept."""


class RulesUnreadable(Refusal, status=500):
    """A rules file can't be read, or has a line that isn't a rule."""


class TooManyReleaseSets(Refusal, status=400):
    """The first release of several services, when as many sets of services have releases as may."""


class ReleaseDamaged(Refusal, status=500):
    """A file of a release isn't what was written, and a build must not use another one in its place."""


class TaskOutOfMemory(Refusal, status=422):
    """A task needs more memory than its worker process may use. It isn't tried again."""

    @classmethod
    def over(cls, memory_bytes: int) -> Self:
        """Return the refusal of a task that needs more than `memory_bytes`."""
        return cls(
            f"this takes more than the {memory_bytes >> 20:,} MiB of memory that a worker process may use for"
            " it (PGOF_MEMORY_MEGABYTES or PGOF_WORKER_MEGABYTES); send or select less"
        )


class BodyTooCostly(Refusal, status=422):
    """Reading a submitted body takes more CPU time than its size allows. It isn't tried again."""


class NotOffered(Refusal, status=501):
    """The call is one of a protocol that is spoken in part, and isn't in that part."""


class BinariesOff(Refusal, status=501):
    """Uploaded programs are switched off, or what reads them isn't installed."""


class CatalogFails(Refusal, status=503, retry_seconds=30):
    """The catalog can't be read or written. The message says why, and what to do if it is damaged."""


class CatalogGone(CatalogFails, retry_seconds=5):
    """The catalog's database can't be reached or has no tables, or the connection to it is lost."""


class CatalogSlow(CatalogFails, retry_seconds=5):
    """The catalog's database has no free connection, or takes too long."""


class CatalogBusy(CatalogFails, retry_seconds=5):
    """Another request, maybe of another collector, is changing or deleting the same."""


class LeaseHeld(CatalogBusy):
    """Another collector has the lease that this one needs."""


class LeaseLost(CatalogBusy):
    """The lease wasn't renewed in time, and another collector may go on with what it is for."""


class TracesFail(Refusal, status=503, retry_seconds=30):
    """The trace store is damaged, or another program's or version's."""


class StorageFails(Refusal, OSError, status=503, retry_seconds=10):
    """The object store with the blobs doesn't do what it is asked. Nothing is lost; a later attempt may
    succeed.

    Code that handles a failing disk handles it, too.
    """


class StorageGone(StorageFails):
    """The object store can't be reached, refuses the credentials, or has no such bucket."""


class StorageSlow(StorageFails):
    """The object store doesn't answer in time, or says that it is busy."""


class StorageTaken(StorageFails):
    """Collectors with another catalog have taken the bucket, so this one changes nothing there any more."""


class IncomingFull(Refusal, status=503, retry_seconds=5):
    """The bodies that are being received take up all the disk space that they may."""


class NotReady(Refusal, status=503, retry_seconds=5):
    """The server has started, and still waits for its catalog, or compares it with the blobs on disk."""


class Stopping(Refusal, status=503, retry_seconds=5):
    """The server stops, and the request isn't done after the time that it may take then."""


class NoSuchTarget(Refusal, status=404):
    """No target in the settings is the one that a profile is to be taken from."""


class NoSuchFile(Refusal, status=404):
    """No file is open under this name, or it is open for another session."""


class FilesFull(Refusal, status=503, retry_seconds=600):
    """The limit of open files, or of the disk space that they take, is reached."""


class FileRefused(CollectorError):
    """A file can't be opened, for the reason `error`, a Refusal or an error of the profile."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"{name}: {error}")
        self.name = name
        self.error = error


class CaptureFailed(Refusal, status=502):
    """The target didn't answer with a profile, or not in time, or the server stops meanwhile."""


class CapturesBusy(Refusal, status=503, retry_seconds=5):
    """The limit of profiles that are being taken at once is reached."""


class TooManyStreams(Refusal, status=503, retry_seconds=30):
    """The limit of open pages that are told of new profiles, PGOF_LIVE_STREAMS, is reached."""


class WorkerUnavailable(Refusal, status=503, retry_seconds=5):
    """No worker process did the task. A later attempt may succeed."""


class WorkerLost(WorkerUnavailable):
    """Each worker process that got the task died or hung."""


class TaskTooSlow(WorkerUnavailable):
    """The task took longer than PGOF_TASK_SECONDS, and its worker process was replaced."""


class WorkersBusy(WorkerUnavailable):
    """The task waited longer than PGOF_TASK_SECONDS for a worker process."""


class FunctionRulesInvalid(CollectorError):
    """A file of rules for metrics of functions has something that isn't a rule. The message has the line."""


class InputsDamaged(CollectorError):
    """An .inputs file isn't what was written."""


class MergeDamaged(CollectorError):
    """A file in merged/ isn't what was written."""


class CopyDamaged(CollectorError):
    """A file of a data folder or a backup isn't what was written."""


class DebuginfodFails(CollectorError):
    """A debuginfod server gave no answer that can be used. It asks for `asked_seconds` without a question."""

    def __init__(self, reason: str, asked_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.asked_seconds = asked_seconds


class DebugFileTooLarge(CollectorError):
    """A debuginfod server has a file that is over PGOF_BINARY_BYTES."""


class EngineDiffers(CollectorError):
    """A worker of a Dask cluster has another version of the merge engine than the collector."""


class CannotStart(CollectorError):
    """Something that the process needs is missing or unusable."""


class SettingsInvalid(CannotStart):
    """An environment variable has a value that is invalid for its setting."""


class KeysUnreadable(CannotStart):
    """A keys file is missing, or can't be read or written."""


class KeyMalformed(CannotStart):
    """A line of a keys file, or a line to add to one, isn't a key and its fields."""


class SecretUnusable(CannotStart):
    """The file of the webhook's secrets, or of the one that signs sessions, is missing, can't be read, or has
    something else in it.
    """


class FolderUnusable(CannotStart):
    """The data folder can't be made, written or locked, or another process uses it."""


class StorageUnusable(CannotStart):
    """The object store of PGOF_STORAGE can't be used, or the package that speaks to it isn't installed."""


class CatalogUnreadable(CannotStart):
    """The catalog's file is damaged or not a catalog, or its database can't be used."""


class CatalogInUse(CatalogUnreadable):
    """Another process has the catalog to itself."""


class CatalogUnreachable(CatalogUnreadable):
    """The catalog's database is down, refuses connections, or doesn't answer; it may come back."""


class CatalogUnavailable(CannotStart):
    """PGOF_CATALOG is set, and the package that speaks to the database isn't installed."""


class BackupUnusable(CannotStart):
    """A target has no complete backup or can't take one, or the data folder can't be backed up."""


class TracesUnreadable(CannotStart):
    """A trace store is missing, damaged, or another program's or version's."""


class TracingUnavailable(CannotStart):
    """PGOF_TRACE_OTLP_URL is set, and the packages that send traces aren't installed."""


class DaskUnavailable(CannotStart):
    """PGOF_BULK names a Dask scheduler, or a process of a cluster is started, and Dask isn't installed."""


class WorkersUnusable(CannotStart):
    """No worker process can be started, or not within PGOF_TASK_SECONDS and PGOF_WORKER_MEGABYTES."""


class FileUnreadable(CannotStart):
    """A file that is to be looked at can't be read, or is no profile."""


class AddressUnusable(CannotStart):
    """The server can't listen on the address."""
