"""Analysis: pure functions from a merged profile to what a person or a build wants to know of it.

`stacks` lists the frames of each sample, `grouping` names a frame's function, package, file or line;
`top_table`, `diff`, `weighed_stacks`, `flame_graph` and `timeline` build on both, and `noise` says how far a
difference can be trusted. `latency` reads the histograms in the profiles of latency trackers. `edges` and
`compiler` find the weighted calls that Go's compiler reads, and `call_edges` has them as arrays; `overlap`,
`coverage`, `outliers` and `report` build on it. `rules` removes functions from a profile, and `focus` keeps
some of its samples or frames.
"""
