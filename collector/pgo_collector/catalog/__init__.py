"""Catalog: the blobs that there are, which of them count, and which profiles each one counts.

Start with `catalog.Catalog`: all changes go through it. `inventory` and `summaries` list what is stored, and
`outbox` holds the events that hooks still have to deliver, `ended_sessions` the sessions of the pages that
ended before their time. Inside, `tables` is the schema and `migrations`
the steps to it from earlier versions; `database` is the seam below, with `sqlite` and `postgresql` on its
other side and `faults` to tell their errors apart; by `leases`, several collectors use one catalog; `rows`
reads and writes the rows of blobs, `statements` prepares what has to be fast, `selection_sql` turns a
selection into SQL, and `fingerprint_cache` remembers the fingerprints of selections. `series_index` finds the
series in a range of time, and `stored_rows` reads a catalog that another process may have open.
"""
