"""Columns: flat arrays that hold many records, and tables that number equal records.

- `vectors`: columns that grow, and the hash of their words.
- `tables`: `Table` and `IntTable` number rows of integers, so that equal rows get the same number.
- `strings`: `Strings` numbers strings.
- `views`: NumPy arrays on the same memory; `ragged`: rows of different lengths in NumPy; `narrow`: integers
  in few bytes.
- `interning`: `Interner` numbers hashable keys.

No module here knows what a profile is. mypyc compiles the first three.
"""
