"""Analysis: what a merged profile says, as pure functions of it.

`stacks` spells out each sample's stack, `grouping` names functions, packages and files; on them stand
`top_table`, `diff`, `flame_graph` and `timeline`. `call_edges` are the weighted calls that Go's compiler
reads; on them stand `overlap`, `coverage`, `outliers` and the `report`. `rules` drops functions from a
profile.
"""
