"""Merges: one profile made of a selection, kept while nothing changes, and combined on request.

`merges.Merges` is the door. `inputs` chooses the blobs, `making` has a worker merge them, `combining` puts a
merge in the place of its inputs, `rules_folder` reads which functions to drop, and `warming` has workers read
what is stored before anyone asks.
"""
