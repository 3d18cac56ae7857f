"""The steps: `v4_0`, `v5_0`, `v5_1` and `v5_2`, a file for each version, with the tables as they were then.

Alembic takes them, through `catalog.migrations`.
"""
