"""Catalog: which blobs there are, which of them count, and which profiles each one holds, in SQLite.

`catalog.Catalog` is the door for what changes it, `inventory` and `summaries` list what is in it, `outbox`
holds the events that hooks still have to deliver. Inside, `tables` is the schema, `database` opens and checks
the file, `rows` writes and reads blobs, `selecting` turns a selection into SQL, and `fingerprint_cache`
remembers which blobs a selection had. `catalog_file` reads the file of a catalog that another process may
have open.
"""
