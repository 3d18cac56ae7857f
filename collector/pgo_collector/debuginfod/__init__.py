"""Debuginfod: names for the functions of programs that nobody has uploaded, from servers of that protocol.

`fetching.Fetching` looks for build ids without names in new profiles, and stores what servers have for them
among the programs of every service. `servers` asks them, and `answers` remembers what they said.
"""
