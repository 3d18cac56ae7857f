"""profefe's API, below /api/0.

`api` assembles its routes and `profiles` has those of profiles. `parameters` reads the query string as
profefe does, and `envelope` writes its JSON: answers, errors, and the ids of profiles.
"""
