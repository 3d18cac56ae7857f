"""The routes of profefe's API, below /api/0, a file each."""
