"""Upkeep: on a schedule, `rollup` combines old profiles and `retention` deletes expired ones."""
