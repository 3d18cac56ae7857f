"""Small inputs that may cost much, made from a few numbers, their genes, which a search can change."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from random import Random
from typing import NamedTuple

from tests.oracle.wire import number, packed, record

# The maximum size of an input: the search is for small inputs that cost much.
MOST_BYTES = 16 << 10
# The size before compression has a bound too, or making the inputs would take too long.
_MOST_MADE = 8 << 20
_MOST_WRITTEN = 100_000

Genes = tuple[int, ...]


class Kind(NamedTuple):
    """A kind of input.

    It has the largest value of each gene by name, a function that makes an input of genes, and the genes of a
    harmless input, from which a search begins.
    """

    genes: Mapping[str, int]
    make: Callable[[Genes], bytes]
    harmless: Genes

    def any(self, random: Random) -> Genes:
        """Return random genes; small values are far more frequent than large ones."""
        warmth = random.random()
        return tuple(_drawn(random, most, warmth) for most in self.genes.values())

    def changed(self, genes: Genes, other: Genes, random: Random) -> Genes:
        """Return genes that differ a little; a few values may come from `other`."""
        found = list(genes)
        for _ in range(random.randrange(1, 4)):
            place = random.randrange(len(found))
            most = [*self.genes.values()][place]
            value = found[place]
            found[place] = random.choice(
                (
                    min(2 * value + 1, most),
                    value // 2,
                    min(8 * value + 1, most),
                    value // 8,
                    min(value + 1, most),
                    most,
                    other[place],
                    _drawn(random, most, 1.0),
                )
            )
        return tuple(found)


def _drawn(random: Random, most: int, warmth: float) -> int:
    return min(most, int(2 ** random.uniform(0, max(warmth * most.bit_length(), 1.5))))


_LETTERS = (b"a", b"\xff", b'"', b"<", b";", b"\n", b"\xc3\xa9", b"/a.", b"\0")
_PROFILE_GENES = {
    "names": 4096, "name_length": 1 << 20, "name_letter": len(_LETTERS) - 1,
    "locations": 65_536, "lines": 250, "start_line": 1,
    "samples": 100_000, "depth": 10_000, "stacks": 2048, "step": 512,
    "types": 100, "labels": 250, "label_length": 1 << 16, "label_letter": len(_LETTERS) - 1,
    "mappings": 256, "file_length": 1 << 18, "comments": 256, "gzipped": 1,
}  # fmt: skip


class _Names:
    """A string table that grows as names are added."""

    def __init__(self) -> None:
        self.table: dict[bytes, int] = {b"": 0}

    def __call__(self, text: bytes) -> int:
        return self.table.setdefault(text, len(self.table))


def profile(genes: Genes) -> bytes:
    """Return a profile made from `_PROFILE_GENES`; empty if it would be too large."""
    of = dict(zip(_PROFILE_GENES, genes, strict=True))
    n_stacks, depth, n_samples = min(of["stacks"], of["samples"]), of["depth"], of["samples"]
    label_bytes = of["labels"] * 12
    if (
        max(of["names"], 1) * of["name_length"] * 3 > _MOST_MADE
        or n_samples * (depth * 2 + label_bytes + of["types"] + 8) > _MOST_MADE
        or max(of["locations"] * (of["lines"] + 1), n_stacks * (depth + of["labels"])) > _MOST_WRITTEN
        or of["labels"] * of["label_length"] * 3 > _MOST_MADE
        or of["mappings"] * of["file_length"] * 3 > _MOST_MADE
    ):
        return b""
    names = _Names()
    written = list(_tables(of, names))
    stacks = [_sample(of, row, names) for row in range(n_stacks)]
    written += islice(cycle(stacks), n_samples if stacks else 0)
    written += [number(13, names(b"comment %d" % row)) for row in range(of["comments"])]
    bare = b"".join(record(6, text) for text in names.table) + b"".join(written)
    return gzip.compress(bare, 6, mtime=0) if of["gzipped"] else bare


def _tables(of: Mapping[str, int], names: _Names) -> list[bytes]:
    """Return the records of all tables but samples and strings."""
    cpu, nanoseconds = names(b"cpu"), names(b"nanoseconds")
    found = [record(1, number(1, names(b"samples")), number(2, names(b"count")))]
    found += [record(1, number(1, cpu), number(2, nanoseconds))] * max(of["types"] - 1, 0)
    found.append(record(11, number(1, cpu), number(2, nanoseconds)))
    letter = _LETTERS[of["name_letter"]]
    for row in range(1, of["mappings"] + 1):
        file = names(b"/%d" % row + b"f" * of["file_length"])
        found.append(
            record(3, number(1, row), number(2, row << 24), number(3, (row + 1) << 24), number(5, file))
        )
    functions = of["names"]
    for row in range(1, functions + 1):
        text = names(b"%d" % row + letter * of["name_length"])
        found.append(record(5, number(1, row), number(2, text), number(3, text), number(5, of["start_line"])))
    for row in range(1, of["locations"] + 1):
        function = [
            number(1, 1 + (row + line) % functions) for line in range(of["lines"] if functions else 0)
        ]
        lines = (record(4, one, number(2, 2 + line)) for line, one in enumerate(function))
        mapping = number(2, 1 + row % of["mappings"]) if of["mappings"] else b""
        found.append(record(4, number(1, row), mapping, number(3, (1 << 24) + row), *lines))
    return found


def _sample(of: Mapping[str, int], row: int, names: _Names) -> bytes:
    locations = of["locations"]
    stack = [
        1 + (row * of["step"] + at * (1 + row % 7)) % locations
        for at in range(of["depth"] if locations else 0)
    ]
    values = [1 + row] * max(of["types"], 1)
    letter = _LETTERS[of["label_letter"]]
    labels = (
        record(
            3,
            number(1, names(b"k%d" % (at % 50))),
            number(2, names(b"%d" % at + letter * of["label_length"])),
        )
        for at in range(of["labels"])
    )
    return record(2, packed(1, *stack) if stack else b"", packed(2, *values), *labels)


def text_kind(fragments: Sequence[bytes], before: bytes = b"", after: bytes = b"") -> Kind:
    """Return a kind of texts: eight fragments, each repeated a number of times."""
    genes = {
        f"{what}{place}": most
        for place in range(8)
        for what, most in (("f", len(fragments) - 1), ("n", 4096))
    }
    genes["rounds"] = 64

    def make(chosen: Genes) -> bytes:
        pairs = zip(chosen[:-1:2], chosen[1:-1:2], strict=True)
        pieces = [(fragments[which], times) for which, times in pairs]
        if max(chosen[-1], 1) * sum(len(fragment) * times for fragment, times in pieces) > MOST_BYTES:
            return b""
        return before + b"".join(fragment * times for fragment, times in pieces) * max(chosen[-1], 1) + after

    return Kind(genes, make, (0, 1) * 8 + (1,))


_HARMLESS = {
    "names": 20, "name_length": 20, "locations": 40, "lines": 1, "start_line": 1, "samples": 40, "depth": 20,
    "stacks": 40, "step": 3, "types": 2, "labels": 1, "label_length": 5, "mappings": 1, "file_length": 10,
    "gzipped": 1,
}  # fmt: skip
PROFILE = Kind(_PROFILE_GENES, profile, tuple(_HARMLESS.get(name, 0) for name in _PROFILE_GENES))
