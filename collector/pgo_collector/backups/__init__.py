"""Backups: copies of a data folder as it is at one moment, made while a server runs on it, and their restore.

`backup.back_up` and `restore.restore` do it. `target` is the folder that holds a backup, `copying` copies
single files and checks them. `moving.copy_all` copies all that a storage has to another one.
"""
