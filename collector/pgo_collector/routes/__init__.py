"""Routes: the URLs of the API, a file for each group. `profefe/` has those below `/api/0`."""
