"""Queries: what a fleet spends its time on, as the answers of the API and the pages.

`fleet.Fleet` asks the workers service by service; `tables`, `flames` and `timelines` are what comes back.
`tops` and `diffs` turn tables into answers, `listings` lists what is stored, and `answers` has the models of
all of them.
"""
