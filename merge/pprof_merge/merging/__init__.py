"""Merging: many decoded profiles → one `Profile`, by the rules of google/pprof's `profile.Merge`.

- `merge`: merges profiles in one go, by the same steps as a collection does.
- `collection`: `Collection` keeps every profile it has read, so that any selection of them can be merged.
- `numbering`: columns of a profile → numbers in tables that all profiles share, where each string, function,
  location and stack is stored once. mypyc compiles it.
- `dictionary`: these tables as NumPy sees them; `mapping_use` has mappings with all their attributes.
- `traces`: what remains of a profile's samples: stack numbers and values.
- `selection`: the traces of the profiles to merge, in order, and `sums`: their values, added up by stack.
- `headers`: which profiles are compatible, and the header of their merge.
- `weights` and `origins`: how much each profile counts, by duration, instance, version or age.
- `segment`: what a collection has read since it was last saved.
"""
