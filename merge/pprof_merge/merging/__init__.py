"""Merging: many decoded profiles → one `Profile`, by the rules of google/pprof's `profile.Merge`.

`merge.merge` merges profiles in one go. `collection.Collection` keeps what it has taken in, so that any
selection of it can be merged again: a `dictionary` numbers strings, functions, locations and stacks once for
all profiles, `traces` are what a profile is in these numbers, `selection` picks some of them, and `sums` adds
their values up. `headers` says which profiles go together, `weights` how much each counts, `origins` where
samples came from. A `segment` is what a collection has taken in since it was last saved.
"""
