"""Columns: flat NumPy arrays that hold many records, and tables that number them. The ground floor.

Others use `ragged` (rows of different lengths as values and offsets), `interning.Interner` and
`interning.GrowingArray`, and `row_table.RowTable`, which gives equal rows the same number.
"""
