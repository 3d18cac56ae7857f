"""Why a profile wasn't taken: one tree, and nothing else comes out of `Collector.submit`.

    AgentError
    ├── SubmitRefused           the collector said no; the same bytes would be refused again
    └── CollectorUnavailable    nobody said yes or no; the same bytes may be sent again later

No error holds the key.
"""


class AgentError(Exception):
    """A profile was not submitted."""


class SubmitRefused(AgentError):
    """The collector answered `status`; `detail` is its reason in words."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail

    def __str__(self) -> str:
        return f"the collector refused the profile: {self.status} {self.detail}"


class CollectorUnavailable(AgentError):
    """None of `attempts` had an answer to rely on; `cause` says what became of the last."""

    def __init__(self, attempts: int, cause: str) -> None:
        super().__init__(attempts, cause)
        self.attempts = attempts
        self.cause = cause

    def __str__(self) -> str:
        return f"the collector could not be reached, attempts: {self.attempts}, the last: {self.cause}"
