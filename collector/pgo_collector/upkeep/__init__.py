"""Upkeep: what one collector at a time does on a schedule.

`upkeep.Upkeep` runs it: `rollup` combines old profiles, `retention` deletes expired ones, unless the `clock`
has moved, and `joining` learns where Go functions begin.
"""
