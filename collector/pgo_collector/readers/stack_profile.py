"""A profile of stacks whose frames have names, as most formats but pprof have them, written as pprof."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pprof_merge import Limits
from pprof_proto.profile_pb2 import Profile

from pgo_collector.errors import NotPprof

_MOST_AMOUNT = 1 << 63

# Names of labels of samples, and their values.
SampleLabels = tuple[tuple[str, str], ...]


class StackProfile:
    """A profile with these sample types, each a name and a unit, which grows within the limits of a submit.

    `text` and `location` add a string or a frame on first use, and return its id from then on.
    """

    def __init__(self, types: Iterable[tuple[str, str]], limits: Limits) -> None:
        self.profile = Profile()
        self._limits = limits
        self._texts = {"": 0}
        self._locations: dict[tuple[str, str, int], int] = {}
        self._frames = 0
        for kind, unit in types:
            self.profile.sample_type.add(type=self.text(kind), unit=self.text(unit))

    def text(self, string: str) -> int:
        """Return the index of a string in the string table. Raises LimitExceeded."""
        index = self._texts.setdefault(string, len(self._texts))
        self._limits.check("strings", index)
        return index

    def location(self, name: str, file: str = "", line: int = 0) -> int:
        """Return the id of the location of a frame. Raises LimitExceeded."""
        key = name, file, line
        if key not in self._locations:
            id_ = self._locations[key] = len(self._locations) + 1
            self._limits.check("locations", id_)
            text = self.text(name)
            self.profile.function.add(id=id_, name=text, system_name=text, filename=self.text(file))
            self.profile.location.add(id=id_).line.add(function_id=id_, line=line)
        return self._locations[key]

    def add(self, stack: Sequence[int], values: Sequence[int], labels: SampleLabels = ()) -> None:
        """Add a sample: the ids of its locations, the leaf first, and a value of each sample type.

        Raises LimitExceeded, and NotPprof for a value that takes more than 64 bits.
        """
        if max(values, default=0) >= _MOST_AMOUNT:
            raise NotPprof("the file can't be read as pprof: a value takes more than 64 bits")
        self._frames += max(len(stack), len(values))  # a value takes as much as a frame
        self._limits.check("stack_depth", len(stack))
        self._limits.check("frames", self._frames)
        sample = self.profile.sample.add(location_id=stack, value=values)
        self._limits.check("samples", len(self.profile.sample))
        for key, value in labels:
            sample.label.add(key=self.text(key), str=self.text(value))

    def written(self) -> bytes:
        """Return the profile as bare protobuf. It may be called once."""
        self.profile.string_table.extend(each.encode(errors="backslashreplace") for each in self._texts)
        return self.profile.SerializeToString()


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a text, one by one: there may be millions."""
    begin = 0
    while begin <= len(text):
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        yield text[begin:end]
        begin = end + 1
