"""Merges: one profile made from a selection, kept on disk until the selection changes, combined on request.

Start with `merges.Merges`. `inputs` describes the blobs of a merge to the engine, `making` has a worker merge
them, `kept` keeps merges on disk by their fingerprints, `combining` replaces blobs by their merge,
`rules_folder` reads the rules that say which functions to drop, and `warming` has the workers read stored
profiles after a start.
"""
