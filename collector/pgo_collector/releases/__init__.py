"""The merge that pipelines build with, the same until it pays to change it."""
