"""Model: the values that all other rooms speak in. They do no I/O.

`series` (service, type and labels), `selection` (which profiles are asked for), `blob_names` (which profile a
stored file is), `facts` (what is known of a stored profile, and of one that a merge left out),
`profile_types` (cpu, heap, … and what each has to measure) and `times`.
"""
