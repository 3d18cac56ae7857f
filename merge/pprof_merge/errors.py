"""What can be wrong with a profile, in one tree, and with what comes beside it. Nothing else comes out of
this package:

ProfileError                what, where
├── MalformedProfile        the bytes are not a pprof profile
├── LimitExceeded           they are more than the caller allows
├── IncompatibleProfiles    each is a profile, but their values can't be added up
├── UnfitForFormat          it is a profile, but lacks what the format asked for is made of
├── UnfitForWeight          it is a profile, but lacks what it is to be weighed by
└── OutputTooLarge          what is asked of it has more bytes than the caller allows

RulesInvalid                what, line
SymbolsInvalid              what
WeightingInvalid            what
"""


class ProfileError(ValueError):
    """A profile can't be taken.

    `what` is wrong, in words, and `where`: a part of the profile ("sample 17"), empty if it is the whole.
    """

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(what, where)
        self.what = what
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class MalformedProfile(ProfileError):
    """The bytes are not a pprof profile, or one that contradicts itself."""


class LimitExceeded(ProfileError):
    """A profile is larger than the limit whose name is `limit` (a field of `Limits`) allows."""

    def __init__(self, limit: str, allowed: int, where: str = "") -> None:
        super().__init__(f"more than {allowed:,} {limit.replace('_', ' ')}", where)
        self.args = (limit, allowed, where)
        self.limit = limit
        self.allowed = allowed


class IncompatibleProfiles(ProfileError):
    """The profiles measure different things: their sample types or period types differ."""


class UnfitForFormat(ProfileError):
    """A profile without what a format needs: the compiler or viewer could make nothing of it."""


class UnfitForWeight(ProfileError):
    """A profile without what it is to be weighed by."""


class OutputTooLarge(ProfileError):
    """An output would take more than its budget: `size` bytes or more, of which so many are `allowed`.

    `advice` says what to ask for instead.
    """

    def __init__(self, size: int, allowed: int, advice: str) -> None:
        super().__init__(f"it would take {size:,} bytes or more, and {allowed:,} are allowed; {advice}")
        self.args = (size, allowed, advice)
        self.size = size
        self.allowed = allowed
        self.advice = advice


class RulesInvalid(ValueError):
    """A file of rules has a line, counted from 1, that is none: `what` is wrong with it, in words."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what, line)
        self.what = what
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


class SymbolsInvalid(ValueError):
    """A list of symbols names no function."""


class WeightingInvalid(ValueError):
    """Not a weight, or not a half-life; the message says what there is."""
