"""The columns of one profile, in which rows refer to each other by row numbers, counted from 0.

`Reader` fills them from bytes, and a merge from its sums; the writer makes bytes of them. `Profile` shows
them as NumPy's arrays. mypyc compiles this module.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i32, i64

from pprof_merge.columns.vectors import column32_of, column_of, zeros, zeros32


class ProfileColumns:
    """One profile as columns. Rows of messages have a cell for each field, in the order of the schema.

    - `strings`; a reader has them as `spans` (n_strings, 2) of its `text`: where each begins, and ends
    - `mappings` (n_mappings, 10), `functions` (n_functions, 5); names are rows of `strings`
    - `locations` (n_locations, 5): id, row of the mapping or -1, address, end of its lines, folded
    - `lines` (n_lines, 3): row of the function, line, column
    - `values` (n_samples, n_types); `frames`, which are rows of locations, with `frame_ends` (n_samples + 1)
    - `labels` (n_labels, 4): key, text or -1 for a number, number, unit; with `label_ends` (n_samples + 1)

    Numbers are 64 bits with a sign, also those that the schema has without one. Columns may be longer than
    the counts say. Nobody reads the ids.
    """

    def __init__(self) -> None:
        self.strings: list[bytes] = []
        self.text: bytes = b""
        self.spans: vec[i64] = zeros(0)
        self.n_strings: i64 = 0
        self.mappings, self.functions, self.locations = zeros(0), zeros(0), zeros(0)
        self.lines, self.values, self.labels = zeros(0), zeros(0), zeros(0)
        self.frame_ends, self.label_ends = zeros(1), zeros(1)
        self.frames: vec[i32] = zeros32(0)
        self.n_types: i64 = 0
        self.n_samples: i64 = 0
        self.n_mappings: i64 = 0
        self.n_locations: i64 = 0
        self.n_functions: i64 = 0
        self.n_lines: i64 = 0
        self.n_frames: i64 = 0
        self.n_labels: i64 = 0

    def string(self, row: i64) -> bytes:
        """Return a string, given its row."""
        if self.strings:
            return self.strings[row]
        return self.text[self.spans[2 * row] : self.spans[2 * row + 1]]

    def make_strings(self) -> None:
        """Make `strings` of the spans, which they replace."""
        text, spans = self.text, self.spans
        self.strings = [text[spans[2 * row] : spans[2 * row + 1]] for row in range(self.n_strings)]
        self.text, self.spans = b"", zeros(0)

    def fill(self, frames: bytes, columns: dict[str, bytes]) -> None:
        """Set the columns, of which `frames` has 32 bits, from the bytes of NumPy's arrays.

        They come as bytes, since mypyc's code never frees a column that interpreted code hands to it.
        """
        self.frames = column32_of(frames)
        self.values, self.labels = column_of(columns["values"]), column_of(columns["labels"])
        self.frame_ends = column_of(columns["frame_ends"])
        self.label_ends = column_of(columns["label_ends"])
        self.mappings, self.functions = column_of(columns["mappings"]), column_of(columns["functions"])
        self.locations, self.lines = column_of(columns["locations"]), column_of(columns["lines"])
