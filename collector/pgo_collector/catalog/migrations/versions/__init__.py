"""The steps: a file for each version, with the tables as they were then, from `v6_0` on.

Alembic takes them, through `catalog.migrations`.
"""
