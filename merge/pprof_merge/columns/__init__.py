"""Columns: flat NumPy arrays that hold many records, and tables that number equal records.

- `ragged`: rows of different lengths, as one flat array and offsets.
- `interning`: `Interner` numbers hashable keys; `GrowingArray` is an array to append to.
- `row_table`: `RowTable` numbers rows of integers, so that equal rows get the same number.

No module here knows what a profile is.
"""
