"""The routes, a file each."""
