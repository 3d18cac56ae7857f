"""Upkeep: on a schedule, `rollup` combines old profiles, `retention` deletes expired ones, and `joining`
learns where Go functions begin.
"""
