"""Releases: the merges that pipelines build with. A release stays current until a rebuild pays off.

`releases` decides when a new merge is released, and a `release` is its record; `candidates` makes and
compares merges, `folder` keeps releases on disk, `renditions` has them in other formats, and `reports` makes
the report on a merge.
"""
