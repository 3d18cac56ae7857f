"""Backups: a data folder as it was at one moment, copied while a server runs on it, and put back."""
