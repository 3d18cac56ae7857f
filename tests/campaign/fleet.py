"""Marked profiles and their ledger.

Each profile has a function of its own, so a merge shows how often it counts the profile. The ledger knows
what was sent, what was acknowledged, and what may be gone.
"""

from __future__ import annotations

import gzip
import hashlib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from pprof_proto.profile_pb2 import Profile

from tests.faults.stacks import SECOND

REAL: Final = Path(__file__).parents[1] / "testdata" / "profiles"
_MARK: Final = b"mark:"
_VALUE_NANOS: Final = 10_000_000

# A service and a type.
Owner = tuple[str, str]


class Marked(NamedTuple):
    """A profile with a mark: the function `mark:<number>`, sampled once.

    `base` is the number of the real profile that the mark is added to, -1 for none. The time of an `undated`
    profile is in the request and not in its bytes.
    """

    number: int
    service: str
    type: str
    labels: str
    time_nanos: int
    base: int = -1
    undated: bool = False

    @property
    def owner(self) -> Owner:
        return self.service, self.type


class Body(NamedTuple):
    """A profile as it is sent, gzipped, and the SHA-256 of its bare protobuf, which names its blob."""

    content: bytes
    digest: str


class _Base(NamedTuple):
    """A real profile without its time; appended protobuf adds to it."""

    content: bytes
    strings: int
    last_id: int


class Maker:
    """Makes the bytes of marked profiles: always the same bytes for the same profile."""

    def __init__(self) -> None:
        self._bases = [_base_of(path) for path in sorted(REAL.glob("*.pb.gz"))]

    @property
    def bases(self) -> int:
        """Return the number of real profiles to choose from."""
        return len(self._bases)

    def body(self, marked: Marked) -> Body:
        """Return the bytes of a profile."""
        base = self._bases[marked.base] if marked.base >= 0 else _empty_base(marked.type)
        mark = Profile(duration_nanos=SECOND, time_nanos=0 if marked.undated else marked.time_nanos)
        mark.string_table.append(b"%b%d" % (_MARK, marked.number))
        new = base.last_id + 1
        mark.function.add(id=new, name=base.strings, system_name=base.strings, start_line=1)
        mark.location.add(id=new, address=0x401000).line.add(function_id=new, line=2)
        mark.sample.add(location_id=[new], value=[1, _VALUE_NANOS])
        bare = base.content + mark.SerializeToString()
        return Body(gzip.compress(bare, 1, mtime=0), hashlib.sha256(bare).hexdigest())


def marks_of(merged: bytes) -> Counter[int]:
    """Return how often a gzipped merge counts each mark. Raises ValueError if it isn't such a merge."""
    try:
        profile = Profile.FromString(gzip.decompress(merged))
    except (OSError, EOFError, Exception) as error:  # protobuf's DecodeError has no public name
        raise ValueError(f"the merge can't be read: {error}") from error
    strings = profile.string_table
    numbers = {
        function.id: int(strings[function.name].removeprefix(_MARK))
        for function in profile.function
        if strings[function.name].startswith(_MARK)
    }
    marks = {
        location.id: numbers[location.line[0].function_id]
        for location in profile.location
        if location.line and location.line[0].function_id in numbers
    }
    counts: Counter[int] = Counter()
    for sample in profile.sample:
        mark = marks.get(sample.location_id[0]) if sample.location_id else None
        if mark is not None:
            times, nanos = sample.value
            if nanos != times * _VALUE_NANOS:
                raise ValueError(f"mark {mark} counts {times} times, but has {nanos} ns")
            counts[mark] += times
    return counts


@dataclass
class Ledger:
    """The profiles that were sent, by number, and which of them must be in merges; thread-safe.

    An acknowledged profile (204) must be in merges, unless it is excused, as after its blob was damaged, or
    was taken before `horizon`, in ns, from where on retention keeps all profiles. Any other profile that was
    sent may be in merges, at most once.
    """

    horizon: int
    sent: dict[int, Marked] = field(default_factory=dict)
    acknowledged: set[int] = field(default_factory=set)
    excused: set[int] = field(default_factory=set)
    _by_digest: dict[str, int] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._told: set[int] = set()
        self._of_owner: dict[Owner, set[int]] = {}

    def send(self, marked: Marked, body: Body) -> None:
        """Note a profile that is about to be sent."""
        with self._lock:
            self.sent[marked.number] = marked
            self._by_digest[body.digest] = marked.number

    def acknowledge(self, marked: Marked) -> None:
        """Note that a profile was answered as stored."""
        with self._lock:
            self.acknowledged.add(marked.number)
            self._of_owner.setdefault(marked.owner, set()).add(marked.number)

    def excuse(self, digests: Collection[str]) -> int:
        """Excuse the profiles of these digests; return how many of them are known."""
        with self._lock:
            numbers = {self._by_digest[digest] for digest in digests if digest in self._by_digest}
            self.excused |= numbers
        return len(numbers)

    def of_digests(self, digests: Collection[str]) -> list[Marked]:
        """Return the profiles of these digests that were acknowledged."""
        with self._lock:
            numbers = sorted({self._by_digest[digest] for digest in digests if digest in self._by_digest})
            return [self.sent[number] for number in numbers if number in self.acknowledged]

    def must(self, owner: Owner) -> set[int]:
        """Return the profiles that must be in a merge of the owner requested from now on."""
        with self._lock:
            return {number for number in self._of_owner.get(owner, ()) if self._is_kept(number)}

    def wrong(self, owner: Owner, must: Collection[int], counts: Counter[int]) -> Iterator[str]:
        """Yield what is wrong with a merge's counts; `must` had to be in the merge when it was requested.

        Each wrong profile is reported once.
        """
        with self._lock:
            lost = sorted(number for number in must if not counts[number] and self._is_kept(number))
            doubled = sorted(number for number, times in counts.items() if times > 1)
            foreign = sorted(
                number for number in counts if number not in self.sent or self.sent[number].owner != owner
            )
            for name, numbers in (("lost", lost), ("doubled", doubled), ("never sent there", foreign)):
                new = [number for number in numbers if number not in self._told]
                self._told.update(new)
                if new:
                    shown = [self.sent.get(number, number) for number in new[:3]]
                    yield f"{'/'.join(owner)}: {len(new)} of {len(counts)} profiles {name}, such as {shown}"

    def _is_kept(self, number: int) -> bool:
        return number not in self.excused and self.sent[number].time_nanos >= self.horizon


def _base_of(path: Path) -> _Base:
    profile = Profile.FromString(gzip.decompress(path.read_bytes()))
    profile.time_nanos = profile.duration_nanos = 0
    last_id = max(entry.id for entries in (profile.function, profile.location) for entry in entries)
    return _Base(profile.SerializeToString(), len(profile.string_table), last_id)


def _empty_base(type_: str) -> _Base:
    """Return the header of Go's CPU profiles, or the same for another type, by its name."""
    strings = ["", "samples", "count", type_, "nanoseconds"]
    profile = Profile(period=_VALUE_NANOS)
    profile.string_table.extend(text.encode() for text in strings)
    profile.sample_type.add(type=1, unit=2)
    profile.sample_type.add(type=3, unit=4)
    profile.period_type.type, profile.period_type.unit = 3, 4
    return _Base(profile.SerializeToString(), len(strings), 0)
