"""Merging: many decoded profiles → one `Profile`, by the rules of google/pprof's `profile.Merge`.

- `batch`: `Batch` reads profiles and merges them once; `merge` does so with profiles that are read.
- `collection`: `Collection` keeps every profile it has read, so that any selection of them can be merged.
- `numbering`: columns of a profile → numbers in tables that all profiles share, where each string, function,
  location and stack is stored once. mypyc compiles it.
- `assembly`: sums of stacks, and the tables of the merged profile, in order. mypyc compiles it.
- `dictionary`: these tables as NumPy sees them; `mapping_use` has mappings with all their attributes.
- `traces`: what remains of a profile's samples: stack numbers and values.
- `selection`: the traces of the profiles to merge, in order; `sums`: their values, added up by stack;
  `merge`: what a selection's merge is made of, to which new profiles can be added.
- `headers`: which profiles are compatible, and the header of their merge.
- `weights`, `weighing` and `origins`: how much each profile counts, by duration, instance, version or age.
- `segment`: what a collection has read since it was last saved.
"""
