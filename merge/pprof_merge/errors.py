"""The errors that this package raises on purpose: one tree for profiles, and one error for each other input.

ProfileError                what, where
├── MalformedProfile        the bytes are not a valid pprof profile
├── LimitExceeded           the profile is larger than the caller's `Limits` allow
├── IncompatibleProfiles    each profile is valid, but their values can't be added up
├── UnfitForFormat          the profile is valid, but lacks something that the output format needs
├── UnfitForWeight          the profile is valid, but lacks something that the weight needs
└── OutputTooLarge          the output would have more bytes than the caller's `Budget` allows

RulesInvalid                a file of rules: what, line
SymbolsInvalid              a list of symbols: what
WeightingInvalid            a weight or a half-life: what
BinaryInvalid               a program that can't be read: what
"""


class ProfileError(ValueError):
    """A profile, or a set of profiles, that can't be read, merged or written.

    `what` says in words what is wrong. `where` names the part of the profile ("sample 17"), and is empty if
    the error is about the whole.
    """

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(what, where)
        self.what = what
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class MalformedProfile(ProfileError):
    """Bytes that are not a pprof profile, or a profile that contradicts itself."""


class LimitExceeded(ProfileError):
    """A profile that exceeds a limit: `limit` is the name of a field of `Limits`, `allowed` is its value."""

    def __init__(self, limit: str, allowed: int, where: str = "") -> None:
        super().__init__(f"more than {allowed:,} {limit.replace('_', ' ')}", where)
        self.args = (limit, allowed, where)
        self.limit = limit
        self.allowed = allowed


class IncompatibleProfiles(ProfileError):
    """Profiles that measure different things: their sample types or period types differ."""


class UnfitForFormat(ProfileError):
    """A profile that lacks something that the output format needs, so that its reader could not use it."""


class UnfitForWeight(ProfileError):
    """A profile that lacks something that the weight needs, such as a duration."""


class OutputTooLarge(ProfileError):
    """An output larger than its budget: it would take `size` bytes or more, and `allowed` bytes are allowed.

    `advice` says what to ask for instead.
    """

    def __init__(self, size: int, allowed: int, advice: str) -> None:
        super().__init__(f"it would take {size:,} bytes or more, and {allowed:,} are allowed; {advice}")
        self.args = (size, allowed, advice)
        self.size = size
        self.allowed = allowed
        self.advice = advice


class RulesInvalid(ValueError):
    """A file of rules with an invalid line: `what` says what is wrong with it, `line` counts from 1."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what, line)
        self.what = what
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


class SymbolsInvalid(ValueError):
    """A list of symbols that names no function."""


class WeightingInvalid(ValueError):
    """Text that is not a weight or not a half-life; the message says what is accepted."""


class BinaryInvalid(ValueError):
    """A program that can't be read, isn't the one that was profiled, or is over a limit of `BinaryLimits`."""
