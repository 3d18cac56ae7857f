"""Catalog: the blobs that there are, which of them count, and which profiles each one counts, in SQLite.

Start with `catalog.Catalog`: all changes go through it. `inventory` and `summaries` list what is stored, and
`outbox` holds the events that hooks still have to deliver. Inside, `tables` is the schema, `database` opens
and checks the file, `rows` reads and writes the rows of blobs, `selection_sql` turns a selection into SQL,
and `fingerprint_cache` remembers the fingerprints of selections. `catalog_file` reads the catalog of a data
folder that another process may have open.
"""
