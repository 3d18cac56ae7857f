"""Model: the values that all other rooms use. They do no I/O.

`series` holds service, type and labels, which labels a sender may send, which services a key is for, and the
names of profiles and their files; `services` writes the names of several services as one, and how much each
counts; `selection` says which profiles a request asks for, and `ids` which of them, or of their samples, by
ids; `facts` describes a stored profile, and one that a merge left out; `profile_types` lists cpu, heap,
offcpu, …; `name_patterns` keeps a part of the stacks by regular expressions; `function_rules` say which
functions are metrics; `source_links` has the URLs of lines of source, `capture_targets` those of profiles
that can be taken now, and `debuginfod_servers` those of servers that have programs by build id; `root_path`
has the path of a proxy below which this server is reached; `times` has the length of a day and the format of
times.
"""
