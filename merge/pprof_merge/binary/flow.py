"""Flow: counts of blocks that agree with each other, nearest to what was sampled.

A block is left as often as it is entered. The sampled means of blocks don't add up like this, since samples
are few. So a linear program, solved by HiGHS, finds the flow through the function that changes them least: a
change of a block's count costs as much as the block has instructions, since each could have been sampled.
"""

from __future__ import annotations

import highspy
import numpy as np
from highspy._core import _Highs

from pprof_merge.arrays import Floats
from pprof_merge.binary.blocks import ControlFlow

# Just above 0: of flows that change as little, the shortest is taken.
_EDGE_COST = 0.001
# A call that doesn't return is the exception.
_RARE_COST = 3.0


def consistent_counts(flow: ControlFlow, means: Floats, seconds: float) -> Floats:
    """Return a count for each block, (n_blocks), near its mean.

    The means are returned if no flow is found in time, or if there are so few samples that the nearest flow
    has none of them.
    """
    edges = nearest_flow(flow, means, seconds)
    return means if edges is None else counts_of_blocks(flow, edges)


def counts_of_blocks(flow: ControlFlow, edges: Floats) -> Floats:
    """Return how often each block ran, (n_blocks), whose edges were taken so often, (n_edges)."""
    counts = np.zeros(len(flow.blocks))
    np.add.at(counts, [edge.source for edge in flow.edges], edges)
    return counts


def nearest_flow(flow: ControlFlow, means: Floats, seconds: float) -> Floats | None:
    """Return how often each edge is taken, (n_edges), so that blocks count nearly their means, (n_blocks).

    It is None if no flow is found in time, or if the nearest one has no sample.
    """
    n_blocks, n_edges = len(flow.blocks), len(flow.edges)
    sizes = np.array([len(block) for block in flow.blocks], np.float64)
    # Columns: edges, entries of the function, what a count is above its mean, what it is below.
    costs = np.concatenate(
        (
            [_RARE_COST if edge.is_rare else _EDGE_COST for edge in flow.edges],
            [0.0],
            sizes,
            sizes,
        )
    )
    # Rows: what enters each block less what leaves it, 0; what leaves it less the changes, its mean.
    starts, rows, values = [0], list[int](), list[float]()
    for edge in flow.edges:
        entries = {edge.source: -1.0}
        if not edge.leaves:
            entries[edge.target] = entries.get(edge.target, 0.0) + 1.0
        entries[n_blocks + edge.source] = 1.0
        rows += entries
        values += entries.values()
        starts.append(len(rows))
    rows.append(0)
    values.append(1.0)
    starts.append(len(rows))
    for sign in (-1.0, 1.0):
        for block in range(n_blocks):
            rows.append(n_blocks + block)
            values.append(sign)
            starts.append(len(rows))
    bounds = np.concatenate((np.zeros(n_blocks), means))
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(costs), len(bounds)
    program.col_cost_ = costs
    program.col_lower_, program.col_upper_ = np.zeros(len(costs)), np.full(len(costs), highspy.kHighsInf)
    program.row_lower_ = program.row_upper_ = bounds
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.array(starts)
    program.a_matrix_.index_ = np.array(rows)
    program.a_matrix_.value_ = np.array(values)
    # highspy.Highs writes to standard output when it is made.
    solver = _Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", seconds)
    solver.passModel(program)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    edges = np.maximum(np.array(solver.getSolution().col_value)[:n_edges], 0.0)
    return edges if edges.any() else None
